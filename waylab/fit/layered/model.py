"""Fits the layered model through its solver: throughput, response time and CPU time of all trials together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.interface import (
    Domain,
    Estimate,
    ModelPrediction,
    RefusedFitError,
    domain_of_runs,
    unidentifiable,
)
from waylab.fit.layered.bootstrap import curvature_ratio
from waylab.fit.layered.fitting import Estimates, estimate
from waylab.fit.layered.instances import networks_of
from waylab.fit.layered.network import CycleNetwork, CycleSolutions, hosts_of, solve_cycles
from waylab.fit.layered.passages import response_parts
from waylab.fit.layered.search import STEP
from waylab.fit.layered.shapes import blended, fit_shapes
from waylab.fit.observations import ModelSettings, TrialObservation, pooled
from waylab.fit.table.discrepancy import FAR, LENGTH

Array = NDArray[np.float64]

NAME = "layered"
_BUSY = 0.7
_UNKNOWN = 0.7
# Counts whose effect follows from the structure of the model, which trials at one level cannot refute.
_COUNTS = frozenset(
    (
        "load_threads",
        "proxies",
        "loops",
        "slots",
        "readers",
        "servers",
        "server_threads",
        "services",
        "lanes",
    )
)


@dataclass(frozen=True)
class LayeredModel:
    """Centres with CPU demands that fall with batching, cores that hosts share, slots, and replicas at once."""

    name: str = NAME

    def fit(self, observations: Sequence[TrialObservation]) -> "FittedLayered":
        """Estimate the demands by damped least squares through the solver.

        Raises:
            RefusedFitError: with too few configurations, or with trials of several systems.
        """
        return FittedLayered(observations, estimate(observations))

    def refit(self, observations: Sequence[TrialObservation], start: "FittedLayered") -> "FittedLayered":
        """The same, from the parameters of a fit to nearly the same trials."""
        return FittedLayered(observations, estimate(observations, start.estimates))


class FittedLayered:
    """Demands with their covariance."""

    name = NAME

    def __init__(self, observations: Sequence[TrialObservation], estimates: Estimates) -> None:
        self.estimates = estimates
        self._parameters = estimates.parameters
        self.logs, self.covariance = estimates.logs, estimates.covariance
        self.noise, self.run_noise = estimates.noise, estimates.run_noise
        self.foreign_share = float(np.mean([one.foreign_share for one in observations]))
        self.domain: Domain = domain_of_runs(observations)
        means = pooled(observations)
        windows = [(one.warm_up_s, one.warm_up_s + one.measured_s) for one in means]
        # Predictions are for trials as long as the calibrated ones.
        self._window_s = sorted(windows, key=lambda one: one[1])[len(windows) // 2]
        shares = [one.foreign_share for one in means]
        nets = networks_of(
            self._parameters,
            [one.settings for one in means],
            np.broadcast_to(self.logs, (len(means), len(self.logs))),
            shares,
        )
        found = solve_cycles(nets)
        self._shapes = fit_shapes(
            means,
            [_busiest(found, place) for place in range(len(means))],
            [
                response_parts(net, found, place, one.settings, windows[place])
                for place, (net, one) in enumerate(zip(nets, means, strict=True))
            ],
        )

    @property
    def parameters(self) -> Mapping[str, float]:
        """CPU seconds and delays by name."""
        return dict(zip([one.name for one in self._parameters], np.exp(self.logs).tolist(), strict=True))

    @property
    def log_spreads(self) -> Mapping[str, float]:
        """Standard deviations of the logarithms of the parameters."""
        return dict(
            zip(
                [one.name for one in self._parameters],
                np.sqrt(np.diag(self.covariance)).tolist(),
                strict=True,
            )
        )

    @property
    def unidentified(self) -> Sequence[str]:
        """Parameters of which the trials say hardly more than was assumed before."""
        spreads = self.log_spreads
        found = [one.name for one in self._parameters if spreads[one.name] > _UNKNOWN * one.log_spread]
        return tuple(f"{name}: the trials say little about it, so that its prior decides" for name in found)

    def solve(
        self,
        settings: Sequence[ModelSettings],
        foreign: Sequence[float] | None = None,
        logs: Array | None = None,
    ) -> CycleSolutions:
        """Solve the network of each configuration; `logs` are other parameters, one row or one for each."""
        shares = foreign if foreign is not None else [self.foreign_share] * len(settings)
        rows = np.broadcast_to(self.logs if logs is None else logs, (len(settings), len(self.logs)))
        return solve_cycles(networks_of(self._parameters, settings, rows, shares))

    def network(self, settings: ModelSettings) -> CycleNetwork:
        """The network of a configuration, with the fitted demands."""
        return networks_of(self._parameters, [settings], self.logs[None, :], [self.foreign_share])[0]

    def shape_ratio(self, settings: ModelSettings, share: str, weights: Mapping[str, float]) -> float:
        """A percentile of all response times divided by their mean, by weighted models of percentiles; 1 for the mean.

        Raises:
            RefusedFitError: when the percentile was not measured.
        """
        if share == "mean":
            return 1.0
        found = self.solve([settings])
        mean_s = float(found.response_s[0])
        values = blended(self._percentile_models_s(settings, found), weights).get("all", {})
        if share not in values:
            raise RefusedFitError(
                f"the {share}th percentile is not predicted; known: {', '.join(values) or 'none'}"
            )
        return values[share] / mean_s

    def _percentile_models_s(
        self, settings: ModelSettings, found: CycleSolutions
    ) -> dict[str, dict[str, dict[str, float]]]:
        parts = response_parts(self.network(settings), found, 0, settings, self._window_s)
        return self._shapes.percentiles_s(settings, _busiest(found, 0), parts)

    def bottleneck(self, settings: ModelSettings) -> str:
        """What limits a configuration."""
        return self._described(settings)[2]

    def _described(self, settings: ModelSettings) -> tuple[dict[str, float], dict[str, float], str]:
        """Utilisation of centres and of hosts, and the bottleneck."""
        found, network = self.solve([settings]), self.network(settings)
        names = [one.name for one in network.centres]
        use = dict(zip(names, found.utilisation[0].tolist(), strict=True))
        hosts = dict(
            zip([f"CPU of {host}" for host in hosts_of(network)], found.host_use[0].tolist(), strict=True)
        )
        return use, hosts, _bottleneck(use, hosts, float(found.waiting[0]), settings)

    def slopes(self, settings: ModelSettings) -> Array:
        """Derivatives of ln X and ln R by the logarithms of the parameters, shape (2, parameters)."""
        return self._slopes_and_ratios(settings, np.empty((0, len(self.logs))))[0]

    def _slopes_and_ratios(self, settings: ModelSettings, draws: Array) -> tuple[Array, Array]:
        """The derivatives, and ln X and ln R of draws of the parameters relative to those of the fit."""
        steps = np.vstack([self.logs, self.logs + STEP * np.eye(len(self.logs)), draws])
        found = self.solve([settings] * len(steps), logs=steps)
        values = np.log(np.stack([found.throughput_per_s, found.response_s]))
        away, size = values[:, 1:] - values[:, :1], len(self.logs)
        return np.asarray(away[:, :size] / STEP), np.asarray(away[:, size:])

    def spreads(self, settings: ModelSettings) -> tuple[Array, Array]:
        """Standard deviations of ln X and ln R that the fit leaves open: without the effects of blocks, and those.

        They come from the derivatives, and from the bootstrap where the model is not linear: they are as much larger
        as its draws reach further than their linear form.
        """
        draws = self.estimates.draws
        slopes, exact = self._slopes_and_ratios(settings, draws.exact)
        ratio = curvature_ratio(exact.T, (draws.linear - self.logs) @ slopes.T)
        parts = [
            ratio * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slopes, one, slopes), 0.0))
            for one in (self.covariance, self.estimates.block_covariance)
        ]
        return parts[0], parts[1]

    def draws(self, settings: ModelSettings, count: int, seed: int = 1) -> CycleSolutions:
        """Solutions for parameters drawn from their joint distribution."""
        random = np.random.default_rng(seed)
        logs = random.multivariate_normal(self.logs, self.covariance, size=count, method="eigh")
        return self.solve([settings] * count, logs=logs)

    def discrepancy(self, settings: ModelSettings) -> float:
        """Standard deviation of ln X because counts differ from the only calibrated ones: no trial shows their effect.

        It grows with the logarithm of the ratio to 15 %, as for tables of other systems (`fit/table/discrepancy.py`).
        """
        squares = 0.0
        for name in self.domain.constant(settings):
            known, wanted = self.domain.levels[name][0], float(getattr(settings, name))
            if name in _COUNTS and known > 0 and wanted > 0:
                squares += math.log(wanted / known) ** 2
        return FAR * math.sqrt(1 - math.exp(-squares / LENGTH**2))

    def check(self, settings: ModelSettings) -> None:
        """Refuse settings of which the trials say nothing."""
        reason = unidentifiable(self.domain, settings)
        if reason:
            raise RefusedFitError(reason)
        known = next(iter(self.domain.others))
        if settings.others not in self.domain.others:
            differing = sorted({name for name, _ in set(settings.others) ^ set(known)})
            raise RefusedFitError(
                f"{', '.join(differing[:3])}: not measured like this, and no model knows the effect"
            )

    def predict(self, settings: ModelSettings) -> ModelPrediction:
        """Solve the network of the settings.

        Raises:
            RefusedFitError: when a setting differs of which the trials say nothing, or the load is not sustainable.
        """
        self.check(settings)
        found = self.solve([settings])
        if not found.steady[0]:
            raise RefusedFitError(
                f"{settings.rate_per_s:,.0f} requests/s are more than this configuration can serve"
            )
        rate, response_s = float(found.throughput_per_s[0]), float(found.response_s[0])
        of_fit, of_blocks = self.spreads(settings)
        # An error of X appears in R, larger by the ratio of the whole cycle to R.
        unlike = self.discrepancy(settings) * np.array([1.0, 1.0 + settings.think_s / response_s])
        spreads = np.sqrt(of_fit**2 + self.run_noise**2 + unlike**2)
        use, hosts, bottleneck = self._described(settings)
        models_s = self._percentile_models_s(settings, found)
        return ModelPrediction(
            settings,
            NAME,
            Estimate(rate),
            Estimate(response_s),
            uncertainty=(float(spreads[0]), float(spreads[1])),
            block_uncertainty=(float(of_blocks[0]), float(of_blocks[1])),
            responses_s=self._shapes.responses_s(settings, _busiest(found, 0), response_s),
            percentiles_s=next(iter(models_s.values()), {}),
            percentile_models_s=models_s,
            utilisation=use | hosts,
            present=dict(zip(use, found.present[0].tolist(), strict=True))
            | {"slots, waiting": float(found.waiting[0])},
            bottleneck=bottleneck,
            extrapolates=self.domain.beyond(settings),
        )


def _bottleneck(
    use: Mapping[str, float], hosts: Mapping[str, float], waiting: float, settings: ModelSettings
) -> str:
    if settings.slots and waiting > 1:
        return "slots"
    host = max(hosts, key=lambda name: hosts[name], default="")
    if host and hosts[host] > _BUSY and hosts[host] > 0.8 * max(use.values()):
        return host
    centre = max(use, key=lambda name: use[name])
    return centre if use[centre] > _BUSY else "none: clients wait for single requests"


def _busiest(found: CycleSolutions, place: int) -> float:
    hosts = float(found.host_use[place].max()) if found.host_use.shape[1] else 0.0
    return max(hosts, float(found.utilisation[place].max()))
