"""The result of every solver: means by station and class, and quantiles if the solver computes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import AssumptionError, ModelError
from waylab.models.network import Network

Array = NDArray[np.float64]


class Distribution(Protocol):
    """A distribution of a time in seconds."""

    def quantile(self, share: float) -> float:
        """Quantile for a share between 0 and 1."""
        ...


@dataclass(frozen=True)
class Result:
    """The steady state of a network. Arrays follow `network.class_names` and `network.station_names`.

    Shapes: (C,) by the class in which a request began; (K, C) by station and the class there. Means unless said.
    `half_widths` holds the half-width of the 95 % confidence interval of the arrays of the same name (simulation).
    """

    network: Network
    method: str
    kind: str
    """`exact`, `approximation` or `simulation`."""
    throughput_per_s: Array
    """(C,) requests completed per second."""
    response_s: Array
    """(C,) from leaving the client to being back; NaN for a class in which no request begins."""
    station_throughput_per_s: Array
    """(K, C) visits completed per second."""
    station_response_s: Array
    """(K, C) waiting and service, one visit; NaN for a class that does not visit."""
    station_waiting_s: Array
    """(K, C) before service, one visit. For processor sharing: response less service alone."""
    queue_length: Array
    """(K, C) present, waiting or in service."""
    utilisation: Array
    """(K, C) share of the servers that is busy; with rates, of the time with a request present; 0 for a delay."""
    quantiles: Mapping[str, Distribution] = field(default_factory=dict)
    """Distribution of the response time by class name, if the solver computes it."""
    present_probability: Mapping[str, Array] = field(default_factory=dict)
    """By station name: probability of n = 0, 1, ... present, if the solver computes it."""
    fork_response_s: Array | None = None
    """(F, C) from fork to join."""
    pool_waiting_s: Array | None = None
    """(P, C) waiting for a slot."""
    pool_busy: Array | None = None
    """(P,) mean number of busy slots."""
    lost_per_s: Array | None = None
    """(C,) requests lost at a full station."""
    half_widths: Mapping[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        classes, stations = len(self.network.classes), len(self.network.stations)
        for name, shape in _SHAPES.items():
            array = np.asarray(getattr(self, name), dtype=float)
            expected = (classes,) if shape == "C" else (stations, classes)
            assert array.shape == expected, f"{self.method}: {name} has shape {array.shape}, not {expected}"
            assert not (array < -1e-9).any(), f"{self.method}: {name} is negative: {array}"
            assert not np.isinf(array).any(), f"{self.method}: {name} is infinite: {array}"
            object.__setattr__(self, name, array)

    @property
    def throughput_total_per_s(self) -> float:
        """Requests of all classes."""
        return float(np.nansum(self.throughput_per_s))

    @property
    def response_mean_s(self) -> float:
        """Mean response time over all requests."""
        weights = self.throughput_per_s
        times = np.where(weights > 0, self.response_s, 0.0)
        return float(weights @ times / weights.sum())

    @property
    def station_utilisation(self) -> Array:
        """(K,) over all classes."""
        return np.asarray(self.utilisation.sum(axis=1))

    @property
    def station_queue_length(self) -> Array:
        """(K,) over all classes."""
        return np.asarray(self.queue_length.sum(axis=1))

    @property
    def bottleneck(self) -> str:
        """The station with the highest utilisation."""
        return self.network.station_names[int(np.argmax(self.station_utilisation))]

    def response_quantile_s(self, share: float, class_name: str | None = None) -> float:
        """Quantile of the response time of a class.

        Raises:
            AssumptionError: when the solver gives no distribution.
            ModelError: for a share outside 0 to 1, or an unknown class.
        """
        if not 0 < share < 1:
            raise ModelError("share", f"must lie between 0 and 1, not {share}")
        name = class_name or self.network.class_names[0]
        self.network.job_class(name)
        if name not in self.quantiles:
            raise AssumptionError(
                self.method, "nothing about distributions", "a quantile was requested; simulate"
            )
        return self.quantiles[name].quantile(share)


_SHAPES = {
    "throughput_per_s": "C",
    "response_s": "C",
    "station_throughput_per_s": "KC",
    "station_response_s": "KC",
    "station_waiting_s": "KC",
    "queue_length": "KC",
    "utilisation": "KC",
}
