"""Observations: one typed row for each trial of one or several run folders."""

from waylab.fit.observations.settings import ModelSettings, changed_settings
from waylab.fit.observations.trials import TrialObservation, base_settings, observe, pooled, usable

__all__ = [
    "ModelSettings",
    "TrialObservation",
    "base_settings",
    "changed_settings",
    "observe",
    "pooled",
    "usable",
]
