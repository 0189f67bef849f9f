"""The cheapest configurations that meet a goal, with the probability that they do, and the run to make next."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from waylab.errors import LabError
from waylab.fit.interface import RefusedFitError, unidentifiable
from waylab.fit.layered import FittedLayered
from waylab.fit.observations import ModelSettings
from waylab.predict.runs.chosen import FittedChosen

PROMISED = 0.9
_DRAWS = 150
_CANDIDATES_MAX = 400
_SHOWN = 5
_RUNS_MAX = 24
# Parts that may be bought, and how many at most: this many times the largest measured count.
_REACH = 3
_COUNT_MIN = 8
_NORMAL_90 = 1.645


class UnreachableGoalError(LabError):
    """No configuration meets the goal."""


@dataclass(frozen=True)
class CapacityGoal:
    """A limit of a response time: `share` is a percentile such as "99", or "mean"."""

    share: str
    limit_s: float


@dataclass(frozen=True)
class CapacityOption:
    """A configuration, its cost, the probability that it meets the goal, and what limits it."""

    settings: ModelSettings
    cost: float
    probability: float
    response_s: float
    limited_by: str


@dataclass(frozen=True)
class NextRun:
    """The measurement that would shrink the interval of the proposed configuration most: half widths in percent."""

    settings: ModelSettings
    before: float
    after: float


@dataclass(frozen=True)
class CapacityPlan:
    """Options by cost: those that meet the goal as promised, and the next cheaper ones. The first is proposed."""

    options: Sequence[CapacityOption]
    cheaper: Sequence[CapacityOption]
    next_run: NextRun | None
    warnings: Sequence[str]


def plan_capacity(
    fitted: FittedChosen, base: ModelSettings, goal: CapacityGoal, costs: Mapping[str, float]
) -> CapacityPlan:
    """Search all counts of the parts that have a cost; `base` gives the load and everything else.

    Raises:
        RefusedFitError: when the layered model cannot judge the goal.
        UnreachableGoalError: when no configuration meets it.
    """
    candidates = _candidates(fitted, base, costs)
    good, cheaper = search_capacity(fitted, base, goal, costs, candidates)
    near = sorted(cheaper, key=lambda one: -one.probability)[:_SHOWN]
    warnings = [
        f"{text}, so that the probability is less certain" for text in fitted.domain.beyond(good[0].settings)
    ]
    return CapacityPlan(
        good, near, _next_run(fitted, _layered(fitted), good[0].settings, candidates), warnings
    )


def search_capacity(
    fitted: FittedChosen,
    base: ModelSettings,
    goal: CapacityGoal,
    costs: Mapping[str, float],
    candidates: Sequence[ModelSettings],
) -> tuple[list[CapacityOption], list[CapacityOption]]:
    """The cheapest candidates that meet the goal as promised, and all that are cheaper than the first of them.

    Raises:
        RefusedFitError: when the layered model cannot judge the goal.
        UnreachableGoalError: when no candidate meets it.
    """
    layered = _layered(fitted)
    reason = unidentifiable(fitted.domain, base)
    if reason:
        raise RefusedFitError(reason)
    options: list[CapacityOption] = []
    good: list[CapacityOption] = []
    for one in sorted(candidates, key=lambda one: (_cost(one, costs), one)):
        options.append(_option(fitted, layered, one, _cost(one, costs), goal))
        if options[-1].probability >= PROMISED:
            good.append(options[-1])
            # Further ones are more expensive, and are not shown.
            if len(good) == _SHOWN:
                break
    if not good:
        best = max(options, key=lambda one: one.probability)
        raise UnreachableGoalError(
            f"no configuration meets the goal with a probability of {100 * PROMISED:.0f} %; the best has "
            f"{100 * best.probability:.0f} % and is limited by {best.limited_by}"
        )
    return good, [one for one in options if one.cost < good[0].cost]


def _layered(fitted: FittedChosen) -> FittedLayered:
    if fitted.layered is None:
        raise RefusedFitError(fitted.fits.reasons.get("layered", "the layered model could not be fitted"))
    return fitted.layered


def _cost(one: ModelSettings, costs: Mapping[str, float]) -> float:
    return float(sum(price * getattr(one, name) for name, price in costs.items()))


def _candidates(fitted: FittedChosen, base: ModelSettings, costs: Mapping[str, float]) -> list[ModelSettings]:
    """All combinations of counts, the cheapest first."""
    ranges = []
    for name in costs:
        levels = fitted.domain.levels[name]
        ranges.append(range(1, max(_COUNT_MIN, int(_REACH * levels[-1])) + 1))
    found = []
    for counts in itertools.product(*ranges):
        values = dict(zip(costs, counts, strict=True))
        if values.get("servers", base.servers) < base.replicas:
            continue
        found.append(replace(base, **values))  # type: ignore[arg-type]
    return sorted(found, key=lambda one: (_cost(one, costs), one))[:_CANDIDATES_MAX]


def _option(
    fitted: FittedChosen, layered: FittedLayered, settings: ModelSettings, cost: float, goal: CapacityGoal
) -> CapacityOption:
    found = layered.draws(settings, _DRAWS)
    weights = fitted.percentile_weights(interpolates=not fitted.domain.beyond(settings))
    ratio, point = layered.shape_ratio(settings, goal.share, weights), layered.solve([settings])
    response_s = ratio * float(point.response_s[0])
    # Beyond what the parameters leave open: variation between trials and blocks, and what intervals were widened by.
    of_blocks = fitted.variation.block * math.sqrt(1 + 1 / fitted.variation.blocks)
    spread = math.hypot(layered.run_noise * fitted.widening, of_blocks)
    with np.errstate(divide="ignore"):
        margin = np.log(goal.limit_s / (ratio * found.response_s)) / spread
    holds = np.where(found.steady, norm.cdf(margin), 0.0)
    limited = layered.bottleneck(settings) if point.steady[0] else "too little capacity for the load"
    return CapacityOption(
        settings, cost, float(holds.mean()), response_s if point.steady[0] else math.inf, limited
    )


def _next_run(
    fitted: FittedChosen, layered: FittedLayered, proposed: ModelSettings, candidates: Sequence[ModelSettings]
) -> NextRun | None:
    """By the linearised model: how much one trial of each configuration would say about the proposed one."""
    target = layered.slopes(proposed)[1]
    covariance, noise = layered.covariance, math.hypot(layered.run_noise, fitted.variation.block)
    before = float(target @ covariance @ target)
    levels = fitted.domain.levels["clients"]
    runs = [
        replace(one, clients=int(clients), rate_per_s=0.0)
        for one in _spaced(candidates, _RUNS_MAX // 2)
        for clients in {levels[0], levels[-1]}
    ]
    best: NextRun | None = None
    scale = 100 * _NORMAL_90 * fitted.widening
    for one in [replace(proposed, clients=int(levels[-1]), rate_per_s=0.0), *runs]:
        slopes = layered.slopes(one)[0]
        along = float(slopes @ covariance @ slopes)
        gained = float(target @ covariance @ slopes) ** 2 / (along + noise**2)
        found = NextRun(
            one, scale * math.sqrt(before + noise**2), scale * math.sqrt(max(before - gained, 0.0) + noise**2)
        )
        if best is None or found.after < best.after:
            best = found
    return best


def _spaced(found: Sequence[ModelSettings], count: int) -> list[ModelSettings]:
    if len(found) <= count:
        return list(found)
    return [found[place * len(found) // count] for place in range(count)]
