"""What a chain leaves over: its errors at calibration cells, carried to the cells nearby.

No smooth cycle fits every cell. Errors at cells with nearly the same clients or the same pool resemble each other. A
Gaussian process with the correlation exp(-distance) predicts them, and predicts none far away or in another
deployment.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from waylab.fit.table.effects import deployment_of
from waylab.fit.table.observations import CellSettings

Array = NDArray[np.float64]

# Distances in the logarithms of clients and of workers over which the correlation falls to 1 / e, and the variance of
# a cell's own error relative to that of the common one. All values within a factor of two are as good, whichever of
# three data sets is left out.
_CLIENTS = 1.0
_WORKERS = 1.5
_OWN = 0.2


class LeftOver:
    """Errors at calibration cells: logarithms of measured over fitted, by quantity."""

    def __init__(self, errors: Sequence[tuple[CellSettings, Mapping[str, float]]]) -> None:
        self._known: dict[str, tuple[list[CellSettings], Array]] = {}
        for name in sorted({name for _, found in errors for name in found}):
            cells = [settings for settings, found in errors if name in found]
            values = np.array([found[name] for _, found in errors if name in found])
            weights = np.linalg.solve(_alike(cells, cells) + _OWN * np.eye(len(cells)), values)
            self._known[name] = cells, np.asarray(weights, dtype=np.float64)

    def ratio(self, name: str, settings: CellSettings) -> float:
        """Expected ratio of measured to fitted at these settings."""
        if name not in self._known:
            return 1.0
        cells, weights = self._known[name]
        return math.exp(float((_alike([settings], cells) @ weights)[0]))


def _places(cells: Sequence[CellSettings]) -> Array:
    return np.array(
        [
            (
                math.log(one.clients) / _CLIENTS,
                math.log(max(one.workers, 1)) / _WORKERS,
                2 * one.writes_share,
                math.log1p(one.multiget_keys),
                float(one.sharded),
                math.log1p(one.value_bytes),
            )
            for one in cells
        ]
    )


def _alike(left: Sequence[CellSettings], right: Sequence[CellSettings]) -> Array:
    apart = np.abs(_places(left)[:, None, :] - _places(right)[None, :, :]).sum(axis=2)
    same = np.array([deployment_of(one) for one in left])[:, None] == [deployment_of(one) for one in right]
    return np.asarray(np.where(same, np.exp(-apart), 0.0), dtype=np.float64)
