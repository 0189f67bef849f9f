"""Baselines: nearest measured, USL, Gaussian process, and the queueing models of the field reports."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from waylab.fit.table.gaussian_process import GaussianProcess, features_of, fit_gaussian_process
from waylab.fit.table.interface import CellPrediction, OutsideTimes, RefusedFitError
from waylab.fit.table.observations import CellSettings, ObservedCell
from waylab.models import ClosedMMc, ModelError, UslFit, closed_network, fit_usl, solve

_SHARE_MAX = 30.0


@dataclass(frozen=True)
class NearestModel:
    """The measurement of the nearest calibrated configuration."""

    name: str = "nearest"

    def fit(self, cells: Sequence[ObservedCell]) -> "FittedNearest":
        """Keep the cells."""
        return FittedNearest(cells)


@dataclass(frozen=True)
class FittedNearest:
    """Calibrated cells by their settings."""

    cells: Sequence[ObservedCell]
    parameters: Mapping[str, float] = field(default_factory=dict)
    unidentified: Sequence[str] = ()

    def predict(self, settings: CellSettings) -> CellPrediction:
        """The cell with the smallest sum of absolute differences of the logarithms of its settings."""
        known = features_of([one.settings for one in self.cells])
        apart = np.abs(known - features_of([settings])).sum(axis=1)
        nearest = self.cells[int(apart.argmin())]
        rate = nearest.throughput_per_s
        return CellPrediction(
            rate,
            nearest.mean.response_clients_s or nearest.settings.clients / rate,
            nearest.mean.response_middleware_s,
            nearest.mean.holding_s,
            nearest.mean.response_p95_s,
        )


@dataclass(frozen=True)
class UslModel:
    """The Universal Scalability Law over the clients, for each pool size apart; of the nearest pool for others."""

    name: str = "usl"

    def fit(self, cells: Sequence[ObservedCell]) -> "FittedUsl":
        """Fit one law to each pool size with three numbers of clients.

        Raises:
            RefusedFitError: when no pool size has three.
        """
        groups: dict[CellSettings, list[ObservedCell]] = {}
        for one in cells:
            groups.setdefault(_without_clients(one.settings), []).append(one)
        laws: list[tuple[CellSettings, UslFit]] = []
        for key in sorted(groups):
            group = groups[key]
            try:
                law = fit_usl(
                    [one.settings.clients for one in group],
                    [one.throughput_per_s for one in group],
                    samples=0,
                )
            except ModelError:
                continue
            laws.append((key, law))
        if not laws:
            raise RefusedFitError(
                "USL needs three different numbers of clients; measure other numbers of clients"
            )
        return FittedUsl(laws, OutsideTimes(cells))


def _without_clients(one: CellSettings) -> CellSettings:
    return CellSettings(
        one.experiment,
        one.workload,
        one.servers,
        one.middlewares,
        one.workers,
        one.client_machines,
        1,
        one.writes_share,
        one.multiget_keys,
        one.sharded,
        one.value_bytes,
    )


@dataclass(frozen=True)
class FittedUsl:
    """One law for each combination of the other settings."""

    laws: Sequence[tuple[CellSettings, UslFit]]
    outside: OutsideTimes
    unidentified: Sequence[str] = ()

    @property
    def parameters(self) -> Mapping[str, float]:
        """The parameters of the first law."""
        law = self.laws[0][1].law
        return {"gamma": law.gamma, "alpha": law.alpha, "beta": law.beta}

    def predict(self, settings: CellSettings) -> CellPrediction:
        """The law of the nearest settings."""
        own = features_of([_without_clients(settings)])
        apart = np.abs(features_of([key for key, _ in self.laws]) - own).sum(axis=1)
        rate = self.laws[int(apart.argmin())][1].law.throughput_per_s(settings.clients)
        if not rate > 0:
            raise RefusedFitError("USL predicts no throughput there")
        return self.outside.prediction(settings, float(rate))


@dataclass(frozen=True)
class GaussianProcessModel:
    """A Gaussian process over the logarithms of settings, for ln X and for ln of the time inside."""

    name: str = "gaussian-process"

    def fit(self, cells: Sequence[ObservedCell]) -> "FittedGaussianProcess":
        """Fit one process to each.

        Raises:
            RefusedFitError: with fewer than three cells.
        """
        if len(cells) < 3:
            raise RefusedFitError("a Gaussian process needs three configurations; measure more")
        rates = fit_gaussian_process(
            features_of([one.settings for one in cells]),
            np.log([one.throughput_per_s for one in cells]),
        )
        timed = [(one, one.mean.response_middleware_s) for one in cells if one.mean.response_middleware_s]
        inside = None
        if len(timed) >= 3:
            inside = fit_gaussian_process(
                features_of([one.settings for one, _ in timed]), np.log([time_s for _, time_s in timed])
            )
        return FittedGaussianProcess(rates, inside)


@dataclass(frozen=True)
class FittedGaussianProcess:
    """The processes."""

    rates: GaussianProcess
    inside: GaussianProcess | None
    parameters: Mapping[str, float] = field(default_factory=dict)
    unidentified: Sequence[str] = ()

    def predict(self, settings: CellSettings) -> CellPrediction:
        """The means of both processes."""
        at = features_of([settings])
        rate = math.exp(float(np.clip(self.rates.predict(at)[0], -_SHARE_MAX, _SHARE_MAX)))
        inside_s = None
        if self.inside is not None:
            inside_s = math.exp(float(np.clip(self.inside.predict(at)[0], -_SHARE_MAX, _SHARE_MAX)))
        return CellPrediction(rate, settings.clients / rate, inside_s)


@dataclass(frozen=True)
class PoolQueueModel:
    """The models of the field reports in a closed loop: frozen service times behind a think time.

    `mm1`: one server with the largest measured throughput. `mmm`: one server for each worker, with the mean holding
    time. `network`: workers with the holding time at the least load, and behind them one server with the largest
    throughput, as stations of a network.
    """

    name: str

    def fit(self, cells: Sequence[ObservedCell]) -> "FittedPoolQueue":
        """Take the parameters as the reports do."""
        fastest = max(one.throughput_per_s for one in cells)
        idle = min(cells, key=lambda one: one.settings.clients)
        held = [one.mean.holding_s for one in cells if one.mean.holding_s is not None]
        cycle_s = idle.settings.clients / idle.throughput_per_s
        if idle.mean.response_middleware_s is not None:
            think_s = max(0.0, cycle_s - idle.mean.response_middleware_s)
        else:
            think_s = 0.0
        least_s = idle.mean.holding_s or idle.mean.response_middleware_s or cycle_s
        return FittedPoolQueue(
            self.name, fastest, think_s, float(np.mean(held)) if held else least_s, min(least_s, cycle_s)
        )


@dataclass(frozen=True)
class FittedPoolQueue:
    """Rate of the one server, think time, mean and least holding time."""

    kind: str
    fastest_per_s: float
    think_s: float
    holding_s: float
    least_s: float
    unidentified: Sequence[str] = ()

    @property
    def parameters(self) -> Mapping[str, float]:
        """The parameters of the queue."""
        return {
            "fastest_per_s": self.fastest_per_s,
            "think_s": self.think_s,
            "holding_s": self.holding_s,
            "least_s": self.least_s,
        }

    def predict(self, settings: CellSettings) -> CellPrediction:
        """Solve the queue with the settings' clients and workers."""
        # More workers than clients change nothing, and each costs time.
        slots = min(settings.slots or settings.clients, settings.clients)
        if self.kind == "mm1":
            queue = ClosedMMc(settings.clients, 1, 1 / self.fastest_per_s, self.think_s)
            rate, inside_s = queue.throughput_per_s, queue.response_mean_s
        elif self.kind == "mmm":
            queue = ClosedMMc(settings.clients, slots, self.holding_s, self.think_s)
            rate, inside_s = queue.throughput_per_s, queue.response_mean_s
        else:
            server_s = 1 / self.fastest_per_s
            network = closed_network(
                {"workers": max(self.least_s - server_s, 0.01 * self.least_s), "server": server_s},
                population=settings.clients,
                think_s=self.think_s,
                servers={"workers": slots},
            )
            result = solve(network)
            rate, inside_s = result.throughput_total_per_s, result.response_mean_s
        return CellPrediction(
            rate,
            settings.clients / rate,
            inside_s if settings.slots else None,
            self.holding_s if settings.slots else None,
        )


def baselines() -> list[NearestModel | UslModel | GaussianProcessModel | PoolQueueModel]:
    """All baselines."""
    return [
        NearestModel(),
        UslModel(),
        GaussianProcessModel(),
        PoolQueueModel("mm1"),
        PoolQueueModel("mmm"),
        PoolQueueModel("network"),
    ]
