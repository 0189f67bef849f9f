"""Fits the layered model through its solver: throughput, response time and CPU time of all trials together."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from waylab.fit.layered.demands import Parameter, network_of, parameters_of, roles_of
from waylab.fit.layered.network import CycleNetwork, CycleSolutions, hosts_of, solve_cycles
from waylab.fit.layered.shapes import fit_shapes
from waylab.fit.observations import ModelSettings, TrialObservation, pooled
from waylab.fit.table.discrepancy import FAR, LENGTH

Array = NDArray[np.float64]

NAME = "layered"
_ROUNDS = 12
_CONVERGED = 1e-3
_STEP = 0.03
_NOISE_MIN = 0.01
_NOISE_START = 0.08
_CPU_NOISE = 1.5
# Squared size, in standard errors, beyond which the influence of a trial grows no more (pseudo-Huber loss).
_OUTLIER = 4.0
_BUSY = 0.7
_UNKNOWN = 0.7
# CPU time that is charged to no program: interrupts, switches, caches.
_OVERHEAD = Parameter("overhead", 1.1, 0.25)
# How fast a program's CPU time falls with what waits for it.
_BATCHING = Parameter("batching", 0.7, 0.5)
_BATCHING_STARTS = (-0.7, 0.7)
_WORST = 50.0
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
        return _fit(observations, None)

    def refit(self, observations: Sequence[TrialObservation], start: "FittedLayered") -> "FittedLayered":
        """The same, from the parameters of a fit to nearly the same trials."""
        return _fit(observations, start)


class FittedLayered:
    """Demands with their covariance."""

    name = NAME

    def __init__(
        self,
        observations: Sequence[TrialObservation],
        parameters: Sequence[Parameter],
        logs: Array,
        covariance: Array,
        noise: float,
        run_noise: float,
    ) -> None:
        self._parameters = tuple(parameters)
        self.logs, self.covariance = logs, covariance
        self.noise, self.run_noise = noise, run_noise
        self.foreign_share = float(np.mean([one.foreign_share for one in observations]))
        self.domain: Domain = domain_of_runs(observations)
        means = pooled(observations)
        found = self.solve([one.settings for one in means], [one.foreign_share for one in means])
        self._shapes = fit_shapes(means, [_busiest(found, place) for place in range(len(means))])

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
        return solve_cycles(_networks(self._parameters, settings, rows, shares))

    def network(self, settings: ModelSettings) -> CycleNetwork:
        """The network of a configuration, with the fitted demands."""
        return _networks(self._parameters, [settings], self.logs[None, :], [self.foreign_share])[0]

    def shape_ratio(self, settings: ModelSettings, share: str) -> float:
        """A percentile of all response times divided by their mean; 1 for the mean.

        Raises:
            RefusedFitError: when the percentile was not measured.
        """
        if share == "mean":
            return 1.0
        values = self._shapes.percentiles_s(settings, _busiest(self.solve([settings]), 0), 1.0).get("all", {})
        if share not in values:
            raise RefusedFitError(
                f"the {share}th percentile is not predicted; known: {', '.join(values) or 'none'}"
            )
        return values[share]

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
        steps = self.logs + _STEP * np.vstack([np.zeros(len(self.logs)), np.eye(len(self.logs))])
        found = self.solve([settings] * len(steps), logs=steps)
        values = np.log(np.stack([found.throughput_per_s, found.response_s]))
        return np.asarray((values[:, 1:] - values[:, :1]) / _STEP)

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
        slopes = self.slopes(settings)
        # An error of X appears in R, larger by the ratio of the whole cycle to R.
        unlike = self.discrepancy(settings) * np.array([1.0, 1.0 + settings.think_s / response_s])
        spreads = np.sqrt(
            np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes) + self.run_noise**2 + unlike**2
        )
        use, hosts, bottleneck = self._described(settings)
        load = _busiest(found, 0)
        return ModelPrediction(
            settings,
            NAME,
            Estimate(rate),
            Estimate(response_s),
            uncertainty=(float(spreads[0]), float(spreads[1])),
            responses_s=self._shapes.responses_s(settings, load, response_s),
            percentiles_s=self._shapes.percentiles_s(settings, load, response_s),
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


def _networks(
    parameters: Sequence[Parameter], settings: Sequence[ModelSettings], logs: Array, foreign: Sequence[float]
) -> list[CycleNetwork]:
    networks: list[CycleNetwork] = []
    names = [one.name for one in parameters]
    for one, row, share in zip(settings, np.exp(logs), foreign, strict=True):
        values = dict(zip(names, row.tolist(), strict=True))
        overhead, power = values["overhead"], values["batching"]
        net = network_of(one, values, share)
        centres = tuple(
            replace(
                centre, batched_s=overhead * centre.batched_s, alone_s=overhead * centre.alone_s, power=power
            )
            if centre.host
            else centre
            for centre in net.centres
        )
        networks.append(replace(net, centres=centres))
    return networks


@dataclass(frozen=True)
class _Targets:
    """What is compared with the solutions: logarithms, and how many standard errors of X each is worth."""

    trials: Sequence[TrialObservation]

    def errors(
        self, found: CycleSolutions, overhead: Array, centres: Sequence[str], rows: NDArray[np.int_]
    ) -> Array:
        """Differences of logarithms in units of the noise of X, shape (parameter rows, errors)."""
        columns = []
        for place, one in enumerate(self.trials):
            at = rows[:, place]
            if not one.settings.rate_per_s:
                columns.append(np.log(found.throughput_per_s[at] / one.throughput_per_s))
            if one.settings.rate_per_s or one.settings.think_s:
                columns.append(np.log(found.response_s[at] / one.response_s) / 2)
            for index, name in enumerate(centres):
                if one.cpu_s.get(name, 0) > 0:
                    columns.append(np.log(found.cpu_s[at, index] / overhead / one.cpu_s[name]) / _CPU_NOISE)
                elif one.link_s.get(name, 0) > 0:
                    columns.append(np.log(found.cpu_s[at, index] / one.link_s[name]))
        return np.asarray(np.clip(np.nan_to_num(np.stack(columns, axis=1), posinf=_WORST), -_WORST, _WORST))


def _fit(observations: Sequence[TrialObservation], start: FittedLayered | None) -> FittedLayered:
    settings = [one.settings for one in observations]
    _check(observations)
    known = sorted({one for one in settings})
    roles = roles_of(settings[0])
    mean_cpu = {
        role: float(np.mean(found))
        for role in roles
        if (found := [one.cpu_s[role] for one in observations if one.cpu_s.get(role, 0) > 0])
    }
    mean_link = {
        name: float(np.mean([one.link_s[name] for one in observations if name in one.link_s]))
        for name in dict.fromkeys(name for one in observations for name in one.link_s)
    }
    least_s = min(one.response_s for one in observations)
    parameters = [*parameters_of(known, mean_cpu, least_s, mean_link), _BATCHING, _OVERHEAD]
    before = np.log([one.start for one in parameters])
    widths = np.array([one.log_spread for one in parameters])
    logs = before.copy()
    if start is not None and len(start.logs) == len(logs):
        logs = start.logs.copy()
    targets = _Targets(observations)
    foreign = [one.foreign_share for one in observations]
    batching_at, overhead_at = parameters.index(_BATCHING), len(parameters) - 1
    centres = [one.name for one in _networks(parameters, known[:1], before[None, :], foreign[:1])[0].centres]

    def errors(rows: Array, shares: Sequence[float]) -> Array:
        """For rows of parameters: errors of all trials, solved in one batch, trials of one configuration once."""
        count = len(rows)
        unlike = dict.fromkeys(zip(settings, shares, strict=True))
        order = {key: place for place, key in enumerate(unlike)}
        found = solve_cycles(
            _networks(
                parameters,
                [one for one, _ in unlike] * count,
                np.repeat(rows, len(unlike), axis=0),
                [share for _, share in unlike] * count,
            )
        )
        mine = np.array([order[key] for key in zip(settings, shares, strict=True)])
        places = np.arange(count)[:, None] * len(unlike) + mine
        return targets.errors(found, np.exp(rows[:, overhead_at]), centres, places)

    def noise_of(at: Array) -> float:
        """Robust: the median absolute deviation, as if the errors were normal."""
        return max(_NOISE_MIN, 1.4826 * float(np.median(np.abs(errors(at[None, :], foreign)[0]))))

    noise = _NOISE_START if start is None else start.noise
    if start is None:
        # How work batches has several local optima.
        tries = [logs + np.where(np.arange(len(logs)) == batching_at, step, 0.0) for step in _BATCHING_STARTS]
        logs = min(
            (_search(errors, one, before, widths, noise, foreign) for one in tries),
            key=lambda found: found[2],
        )[0]
        noise = noise_of(logs)
    logs, curvature, _ = _search(errors, logs, before, widths, noise, foreign)
    noise = noise_of(logs)
    covariance = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    share = float(np.mean(foreign))
    spread = errors(logs[None, :], [share] * len(foreign))[0]
    of_rates = spread[np.array(_is_rate(observations, centres))]
    run_noise = max(_NOISE_MIN, float(np.sqrt(np.mean(of_rates**2)))) if of_rates.size else noise
    return FittedLayered(observations, parameters, logs, covariance, noise, run_noise)


def _is_rate(observations: Sequence[TrialObservation], centres: Sequence[str]) -> list[bool]:
    found = []
    for one in observations:
        closed = not one.settings.rate_per_s
        found += [True] if closed else []
        found += [not closed] if not closed or one.settings.think_s else []
        found += [False for name in centres if one.cpu_s.get(name, 0) > 0 or one.link_s.get(name, 0) > 0]
    return found


def _search(
    errors: Callable[[Array, Sequence[float]], Array],
    logs: Array,
    before: Array,
    widths: Array,
    noise: float,
    foreign: Sequence[float],
) -> tuple[Array, Array, float]:
    """Damped Gauss-Newton with finite differences; returns the logarithms, and curvature and cost there."""

    def cost(found: Array, at: Array) -> float:
        scaled = found / noise
        robust = 2 * _OUTLIER * (np.sqrt(1 + scaled**2 / _OUTLIER) - 1)
        return float(robust.sum() + (((at - before) / widths) ** 2).sum())

    size, damping = len(logs), 1e-2
    curvature, least = np.eye(size), np.inf
    for _ in range(_ROUNDS):
        rows = np.vstack([logs, logs + _STEP * np.eye(size)])
        found = errors(rows, foreign)
        base, slopes = found[0], ((found[1:] - found[0]) / _STEP).T
        weights = (1 + (base / noise) ** 2 / _OUTLIER) ** -0.5 / noise**2
        uphill = slopes.T @ (weights * base) + (logs - before) / widths**2
        curvature = (slopes.T * weights) @ slopes + np.diag(widths**-2.0)
        best = least = cost(base, logs)
        for _ in range(6):
            step = np.clip(
                -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), uphill), -1.0, 1.0
            )
            new = cost(errors((logs + step)[None, :], foreign)[0], logs + step)
            if new < best:
                break
            damping *= 5
        else:
            break
        logs, least = logs + step, new
        damping = max(damping / 5, 1e-6)
        if best - new < _CONVERGED * max(1.0, best):
            break
    return logs, curvature, float(least)


def _check(observations: Sequence[TrialObservation]) -> None:
    """Refuse what cannot identify the model."""
    settings = {one.settings for one in observations}
    if len({roles_of(one) for one in settings}) > 1 or len({one.others for one in settings}) > 1:
        names = sorted(
            {name for one in settings for name, _ in set(one.others) ^ set(next(iter(settings)).others)}
        )
        raise RefusedFitError(
            f"the trials are of different systems ({', '.join(names[:3]) or 'other programs'}); fit each apart"
        )
    if (
        len({(one.hosts, tuple(tuple(part[:-1]) for part in (*one.cores, *one.links))) for one in settings})
        > 1
    ):
        raise RefusedFitError(
            "the programs of some trials run on other hosts, or share them otherwise; fit each apart"
        )
    if len({bool(one.rate_per_s) for one in settings}) > 1:
        raise RefusedFitError("open and closed loops cannot be fitted together; fit each apart")
    loads = {(one.in_flight, one.rate_per_s, one.think_s, one.pool) for one in settings}
    if len(settings) < 2 or len(loads) < 2:
        raise RefusedFitError(
            "the layered model needs two different loads or pools; measure another number of clients"
        )
