"""Two treatments compared in pairs within blocks, on the log scale: ratio, equivalence, null arm, positive control."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from waylab.analysis.statistics.blocks import DEGREES_MIN, Contrast, blocks_that_decide, contrast_of_mean
from waylab.analysis.statistics.repetitions import CONFIDENCE, mean_interval
from waylab.errors import LabError

# The level of each one-sided test: the largest chance of a false claim of equivalence, or of no loss.
EQUIVALENCE_LEVEL = 0.05
LEVEL = 0.05


@dataclass(frozen=True)
class PairedRatio:
    """The ratio of candidate to baseline with its interval and tests; None if they are not possible.

    `equivalent` and `no_worse` need a margin, `no_worse` also a direction. `reason` states why there is no interval.
    """

    blocks: int
    ratio: float | None
    low: float | None
    high: float | None
    excludes_1: bool | None
    equivalent: bool | None
    no_worse: bool | None
    degrees: float
    error: float | None
    p: float | None
    reason: str


@dataclass(frozen=True)
class NullArmTest:
    """The result of a null arm, which compares a system with itself; `flagged` is None without an interval."""

    flagged: bool | None
    text: str


@dataclass(frozen=True)
class ControlTest:
    """A change by a known amount, as a difference in its unit or a ratio; `found` is None without an interval."""

    blocks: int
    added: float
    mean: float | None
    low: float | None
    high: float | None
    found: bool | None
    exact: bool | None
    text: str


def ratio_of(
    contrast: Contrast, blocks: int, margin: float = 0.0, treatments: int = 2, better: int = 0
) -> PairedRatio:
    """Turn a difference of logarithms into a ratio with its 95 % interval and tests.

    `better` is +1 if larger values are better, -1 if smaller ones are, 0 if neither is known. With a margin: whether
    the ratio lies between 1 / (1 + margin) and 1 + margin, by two one-sided t tests (Schuirmann 1987), and whether
    the candidate is no worse by more than the margin, by one of them (non-inferiority).
    """
    bounds = contrast.interval()
    equivalent = no_worse = None
    if margin > 0 and bounds is not None:
        equivalent = _shown(equivalence_p(contrast, margin))
        limit = math.log1p(margin)
        no_worse = (
            _shown(contrast.p_above(-limit) if better > 0 else contrast.p_below(limit)) if better else None
        )
    low, high = bounds if bounds is not None else (None, None)
    return PairedRatio(
        blocks,
        math.exp(contrast.estimate),
        _exp(low),
        _exp(high),
        None if bounds is None else not bool(bounds[0] <= 0 <= bounds[1]),
        equivalent,
        no_worse,
        contrast.degrees,
        contrast.error,
        contrast.p_zero(),
        "" if bounds else no_interval(blocks, treatments),
    )


def no_interval(blocks: int, treatments: int) -> str:
    """State why there is no interval, and how many blocks are needed."""
    need = blocks_that_decide(treatments)
    said = "1 block" if blocks == 1 else f"{blocks} blocks"
    return f"{said} cannot decide; it takes {need}"


def paired_ratio(log_ratios: Sequence[float], margin: float = 0.0, better: int = 0) -> PairedRatio:
    """Ratio of candidate to baseline from one log ratio for each block, of shape (blocks,).

    Within a block both ran under the same conditions, so what a block adds cancels. It is the model of `blocks` with
    two treatments.
    """
    if not log_ratios:
        return PairedRatio(0, None, None, None, None, None, None, 0, None, None, "there is no pair")
    return ratio_of(contrast_of_mean(log_ratios), len(log_ratios), margin, 2, better)


def log_ratios(baseline: Sequence[float], candidate: Sequence[float]) -> list[float]:
    """ln(candidate / baseline) of each block; both of shape (blocks,), in the same unit.

    Raises:
        LabError: unless there are as many of both, all above zero.
    """
    if len(baseline) != len(candidate):
        raise LabError(f"pairs: {len(baseline)} baselines and {len(candidate)} candidates are no pairs")
    if any(not value > 0 for value in (*baseline, *candidate)):
        raise LabError("pairs: a ratio needs values above zero")
    return [math.log(new / old) for old, new in zip(baseline, candidate, strict=True)]


def equivalence_p(contrast: Contrast, margin: float) -> float | None:
    """Return the p-value of "the ratio lies outside 1 / (1 + margin) to 1 + margin": two one-sided t tests.

    Schuirmann 1987. A difference that is not significant is never taken for equality. None without an interval.

    Raises:
        LabError: for a margin that is not above zero.
    """
    if not margin > 0:
        raise LabError(f"equivalence: the margin must be above 0, not {margin}")
    limit = math.log1p(margin)
    above, below = contrast.p_above(-limit), contrast.p_below(limit)
    return None if above is None or below is None else max(above, below)


def null_arm(found: Any, margin: float = 0.0, p: float | None = None) -> NullArmTest:
    """Judge a comparison of a system with itself under two names, by its p-value or one adjusted for several arms.

    `flagged` is True if p is below 5 %. Without any real difference this happens in one of twenty cases. `text` is
    the result in words, also if the arm is too noisy to show that the two lie within the margin. `found` has the
    attributes of a `PairedRatio`.
    """
    p = found.p if p is None else p
    if p is None or found.ratio is None:
        return NullArmTest(None, f"the null arm is not judged: {found.reason}")
    said = f"ratio {found.ratio:.4f}, 95 % interval {found.low:.4f} to {found.high:.4f}"
    if p < LEVEL:
        return NullArmTest(
            True, f"the same thing under two names differs: {said}; do not trust this campaign's comparisons"
        )
    text = f"the same thing under two names does not differ: {said}"
    if found.equivalent is False:
        text += f"; too noisy to show that it lies within {100 * margin:g} %"
    return NullArmTest(False, text)


def positive_control(
    baseline: Sequence[float], control: Sequence[float], added: float, confidence: float = CONFIDENCE
) -> ControlTest:
    """Judge an arm to which a known amount was added, say a delay; all in one unit, both of shape (blocks,).

    `found` when the interval of the paired differences excludes 0 on the right side, `exact` when it also holds
    what was added.

    Raises:
        LabError: unless there are as many of both and something was added.
    """
    if len(baseline) != len(control):
        raise LabError(
            f"positive control: {len(baseline)} baselines and {len(control)} controls are no pairs"
        )
    if added == 0:
        raise LabError("positive control: nothing was added, so there is nothing to find")
    differences = [new - old for old, new in zip(baseline, control, strict=True)]
    interval = mean_interval(differences, confidence)
    enough = interval.count > DEGREES_MIN
    bounds = (interval.mean, interval.low if enough else None, interval.high if enough else None)
    return judged_control(added, bounds, interval.count, 0.0)


def judged_control(
    expected: float, found: tuple[float | None, float | None, float | None], blocks: int, nothing: float
) -> ControlTest:
    """Judge a positive control by its mean, low and high; `nothing` is the value without a change: 0, for a ratio 1."""
    mean, low, high = found
    what = "the positive control"
    if mean is None or low is None or high is None:
        why = no_interval(blocks, 2)
        return ControlTest(blocks, expected, mean, low, high, None, None, f"{what} is not judged: {why}")
    detected = bool(low > nothing if expected > nothing else high < nothing)
    verdict = "was found" if detected else "was NOT found: this campaign cannot see such a difference"
    unit = "ratio " if nothing else ""
    goal = f"{expected:.4g} {'expected' if nothing else 'added'}"
    said = f"{unit}{mean:.4g}, interval {low:.4g} to {high:.4g}, of {goal}"
    exact = detected and low <= expected <= high
    return ControlTest(blocks, expected, mean, low, high, detected, exact, f"{what} {verdict}: {said}")


def _shown(p: float | None) -> bool:
    return p is not None and p < EQUIVALENCE_LEVEL


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
