"""How far a layered chain may be wrong where nothing was measured, beyond the uncertainty of its parameters."""

import math
from collections.abc import Sequence

from waylab.fit.table.observations import CellSettings

# An error of X appears in the time inside, larger by the ratio of the whole cycle to that time, up to this ratio.
CYCLE_MAX = 4.0
# Standard deviations of ln X: of a curve far from the cells of its deployment, and of any prediction. Each deployment
# has curves of its own, and only their levels and capacities are parameters.
FAR = 0.15
_NEAR = 0.02
# Distance in the logarithm of clients or of workers over which curves become unlike each other.
LENGTH = 2.0


def discrepancy(settings: CellSettings, calibrated: Sequence[CellSettings]) -> float:
    """Standard deviation of ln X, from the distance to the nearest calibrated cell of the same deployment."""
    squares = [
        math.log(one.clients / settings.clients) ** 2
        + math.log(max(one.workers, 1) / max(settings.workers, 1)) ** 2
        for one in calibrated
    ]
    alike = math.exp(-min(squares) / LENGTH**2) if squares else 0.0
    return math.hypot(_NEAR, FAR * math.sqrt(1 - alike))
