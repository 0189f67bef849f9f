"""Predictions from run folders: the choice among models, intervals, and held-out configurations."""

from waylab.predict.runs.chosen import CHOSEN, FittedChosen, fit_runs
from waylab.predict.runs.judge import JudgedConfiguration, judge_runs

__all__ = ["CHOSEN", "FittedChosen", "JudgedConfiguration", "fit_runs", "judge_runs"]
