"""How often series with and without a change of their level are called unsteady."""

import math
from collections.abc import Callable

import numpy as np
from scenario import FLAGGED, Outcome, Scenario
from scipy.signal import lfilter

from waylab.analysis.statistics.steady_state import judge


def autoregressive(random: np.random.Generator, series: int, values: int, phi: float) -> np.ndarray:
    """AR(1) in its steady state, mean 0, shape (series, values)."""
    noise = random.normal(size=(series, values))
    noise[:, 0] /= math.sqrt(1 - phi**2)
    return lfilter([1], [1, -phi], noise, axis=1)


def unsteady(seconds: int, phi: float, signal: str = "none") -> Callable[[int, np.random.Generator], Outcome]:
    """How often a series is reported as unsteady; the mean is ten standard deviations, so no change is too small."""
    share = np.arange(seconds) / seconds
    level = {
        "none": 0 * share,
        "step at 60 %": 3.0 * (share >= 0.6),
        "step at 80 %": 3.0 * (share >= 0.8),
        "drift": np.linspace(-2, 2, seconds),
        "warm-up": 5 * np.exp(-10 * share),
    }[signal]

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        series = autoregressive(random, campaigns, seconds, phi) * math.sqrt(1 - phi**2) + level
        return Outcome(campaigns, campaigns, sum(judge(10 + values).steady is False for values in series))

    return run


_CHANGES = (
    ("a step of 3 standard deviations at 60 %", "step at 60 %"),
    ("a step of 3 standard deviations at 80 %", "step at 80 %"),
    ("a drift of 4 standard deviations", "drift"),
)
STEADY = [
    *(
        Scenario(f"steady {seconds} s, AR(1) {phi:g}: called unsteady", unsteady(seconds, phi), **FLAGGED)
        for seconds, phi in (
            (20, 0.9),
            (40, 0.0),
            (40, 0.5),
            (40, 0.9),
            (60, 0.7),
            (60, 0.9),
            (120, 0.9),
            (300, 0.9),
        )
    ),
    *(
        Scenario(f"{what} in {seconds} s: called unsteady", unsteady(seconds, 0.0, signal), 0.9, None)
        for what, signal in _CHANGES
        for seconds in (40, 60, 120)
    ),
    *(
        Scenario(
            f"{what} in 60 s, AR(1) 0.5: called unsteady", unsteady(60, 0.5, signal), None, None, slow=True
        )
        for what, signal in _CHANGES
    ),
    Scenario(
        "a warm-up of 5 standard deviations, time constant 12 s of 120 s: called unsteady",
        unsteady(120, 0.0, "warm-up"),
        **FLAGGED,
    ),
]
