"""Where the steady state of a series begins, and whether it lasts. Knows nothing of trials."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from waylab.analysis.statistics import level
from waylab.analysis.statistics.level import LevelChange, level_change
from waylab.analysis.statistics.warm_up import mser
from waylab.errors import LabError

# A smaller change of the level, as a share of the mean, does not matter even if it is significant.
CHANGE_MIN = 0.05
# In shorter series, a late step of three standard deviations is found in fewer than nine of ten cases.
VALUES_MIN = 40


@dataclass(frozen=True)
class Steadiness:
    """How many values to cut off at the beginning, and whether the level of the others is constant.

    `steady` is False if the level changes: then `change` is that change and nothing is cut. It is None if the series is
    too short and `refused` says so.
    """

    values: int
    cut: int
    steady: bool | None
    change: LevelChange | None
    refused: str | None


def judge(values: ArrayLike) -> Steadiness:
    """Find the warm-up of a series of shape (values,) with MSER-5, and test whether the level changes later.

    The first test covers the whole series, because MSER also cuts off a part of a drift. It ignores an early change,
    unless MSER finds that half of the series would have to go. The second test covers what remains after the cut.

    Raises:
        LabError: as `mser`.
    """
    series = np.asarray(values, dtype=float)
    found = mser(series)
    if found.refused is not None:
        return Steadiness(found.values, 0, None, None, found.refused)
    whole = _change(series)
    if whole and (whole.late or not found.steady):
        return Steadiness(found.values, 0, False, whole, None)
    later = _change(series[found.cut :]) if found.cut else None
    if later:
        return Steadiness(found.values, 0, False, later, None)
    if found.values < VALUES_MIN:
        refused = (
            f"too short: {found.values} values, and it takes {VALUES_MIN} to see whether the level changes"
        )
        return Steadiness(found.values, found.cut, None, None, refused)
    return Steadiness(found.values, found.cut, True, None, None)


def latest(series: dict[str, ArrayLike]) -> tuple[Steadiness, str]:
    """Judge several series of one run by name; return the one that becomes steady last, and its name.

    A series without a steady state takes precedence; one that cannot be judged comes last.

    Raises:
        LabError: without any series, or for series that `judge` refuses.
    """
    if not series:
        raise LabError("steady state: no series to judge")
    judged = {name: judge(values) for name, values in series.items()}

    def lateness(name: str) -> tuple[int, int]:
        found = judged[name]
        return {False: 2, True: 1, None: 0}[found.steady], found.cut

    last = max(judged, key=lateness)
    return judged[last], last


def _change(series: np.ndarray) -> LevelChange | None:
    """Return the change of a series, if it is significant and large."""
    if series.size < level.VALUES_MIN or not series.mean() > 0:
        return None
    found = level_change(series)
    return found if found.larger_than(CHANGE_MIN) else None
