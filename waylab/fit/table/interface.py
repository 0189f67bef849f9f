"""What every model of a table offers: fit to cells, predict settings, or give the reason for refusing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from waylab.errors import LabError
from waylab.fit.table.observations import CellSettings, ObservedCell


class RefusedFitError(LabError):
    """A model cannot be fitted to these cells; the message gives the reason and the measurement that would help."""


@dataclass(frozen=True)
class CellPrediction:
    """What a model predicts for one configuration, without intervals: rate per second, times in seconds.

    `response_s` is the time that clients see, `inside_s` the time in the middlewares. `None`: the model has none.
    """

    throughput_per_s: float
    response_s: float
    inside_s: float | None = None
    holding_s: float | None = None
    p95_s: float | None = None
    bottleneck: str = ""
    # Standard deviations of ln X and of ln of the time inside, by the model's own account; None: it has none.
    spread: float | None = None
    spread_inside: float | None = None

    def response_in(self, view: str) -> float | None:
        """The mean response time as the clients or the middlewares see it."""
        return self.response_s if view == "clients" else self.inside_s


@dataclass(frozen=True)
class CalibratedDomain:
    """The smallest and largest calibrated value of each numeric setting."""

    ranges: Mapping[str, tuple[float, float]]
    levels: Mapping[str, frozenset[object]]

    def beyond(self, settings: CellSettings) -> list[str]:
        """How these settings lie beyond the calibrated ones; empty for an interpolation."""
        found = []
        for name, (low, high) in self.ranges.items():
            value = float(getattr(settings, name))
            if value > high:
                ratio = f", {value / high:.3g} times the largest calibrated" if high > 0 else ""
                found.append(f"{name} = {value:g}{ratio}")
            elif value < low:
                found.append(f"{name} = {value:g}, below the smallest calibrated, {low:g}")
        for name, known in self.levels.items():
            if getattr(settings, name) not in known:
                found.append(f"{name} = {getattr(settings, name)} is not calibrated")
        return found


_RANGES = (
    "clients",
    "workers",
    "servers",
    "middlewares",
    "writes_share",
    "multiget_keys",
    "value_bytes",
    "client_machines",
)


def domain_of(cells: Sequence[ObservedCell]) -> CalibratedDomain:
    """The domain that cells span."""
    return CalibratedDomain(
        {
            name: (
                min(float(getattr(one.settings, name)) for one in cells),
                max(float(getattr(one.settings, name)) for one in cells),
            )
            for name in _RANGES
        },
        {"sharded": frozenset(one.settings.sharded for one in cells)},
    )


class FittedTableModel(Protocol):
    """A model with its parameters."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Parameters in plain units."""

    @property
    def unidentified(self) -> Sequence[str]:
        """What the calibration cells could not identify, so that the prior decides it."""

    def predict(self, settings: CellSettings) -> CellPrediction:
        """Predict one configuration.

        Raises:
            RefusedFitError: when the settings cannot be predicted.
        """


class TableModel(Protocol):
    """A way to learn from cells."""

    @property
    def name(self) -> str:
        """The name in tables and JSON."""

    def fit(self, cells: Sequence[ObservedCell]) -> FittedTableModel:
        """Estimate the parameters.

        Raises:
            RefusedFitError: when the cells cannot identify the model.
        """


@dataclass(frozen=True)
class OutsideTimes:
    """The rest of the cycle in the calibration: N / X minus the time inside, from the cell of nearest load."""

    cells: Sequence[ObservedCell] = field(repr=False)

    def outside_s(self, clients: int) -> float:
        """Time outside of the middlewares at the calibrated number of clients nearest to this."""
        known = [one for one in self.cells if one.mean.response_middleware_s is not None]
        if not known:
            return 0.0
        nearest = min(known, key=lambda one: abs(math.log(one.settings.clients / clients)))
        assert nearest.mean.response_middleware_s is not None
        return max(
            0.0, nearest.settings.clients / nearest.throughput_per_s - nearest.mean.response_middleware_s
        )

    def prediction(self, settings: CellSettings, throughput_per_s: float) -> CellPrediction:
        """A prediction from the throughput alone: response time by the interactive law."""
        response_s = settings.clients / throughput_per_s
        inside_s = max(response_s - self.outside_s(settings.clients), 0.02 * response_s)
        return CellPrediction(throughput_per_s, response_s, inside_s if settings.slots else None)
