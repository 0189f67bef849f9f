"""Loads that change over time: response times, queue and losses at each moment, and the return to normal."""

from waylab.predict.profile.arrivals import Bursts, arrival_times, fit_bursts, read_arrivals
from waylab.predict.profile.phases import Phase, read_profile
from waylab.predict.profile.run import ProfileResult, ProfileWindow, predict_profile

__all__ = [
    "Bursts",
    "Phase",
    "ProfileResult",
    "ProfileWindow",
    "arrival_times",
    "fit_bursts",
    "predict_profile",
    "read_arrivals",
    "read_profile",
]
