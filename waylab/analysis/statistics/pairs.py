"""Two treatments compared in pairs within blocks, on the log scale: ratio, equivalence, null arm, positive control."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from waylab.analysis.statistics.repetitions import CONFIDENCE, mean_interval
from waylab.errors import LabError

# Two one-sided tests at this level, so that equivalence is claimed wrongly at most so often.
EQUIVALENCE_LEVEL = 0.05
BLOCKS_MIN = 2


@dataclass(frozen=True)
class PairedRatio:
    """The ratio of candidate to baseline with its interval; `equivalent` is None without a margin."""

    blocks: int
    ratio: float | None
    low: float | None
    high: float | None
    excludes_1: bool | None
    equivalent: bool | None


@dataclass(frozen=True)
class Equivalence:
    """Result of the equivalence test; `p` is the larger one of both tests."""

    equivalent: bool
    p: float


@dataclass(frozen=True)
class NullArmTest(PairedRatio):
    """A ratio of a thing to itself; `flagged` is None with fewer than two blocks."""

    flagged: bool | None
    text: str


@dataclass(frozen=True)
class ControlTest:
    """Paired differences after a known amount was added, in its unit; `found` is None with fewer than two blocks."""

    blocks: int
    added: float
    mean: float | None
    low: float | None
    high: float | None
    found: bool | None
    exact: bool | None
    text: str


def paired_ratio(
    log_ratios: Sequence[float], margin: float = 0.0, confidence: float = CONFIDENCE
) -> PairedRatio:
    """Ratio of candidate to baseline from one log ratio for each block, of shape (blocks,), with its t interval.

    Within a block both ran under the same conditions, so what a block adds cancels. With a margin also the
    equivalence test of `equivalence`.
    """
    interval = mean_interval(log_ratios, confidence)
    bounds = interval.bounds()
    return PairedRatio(
        interval.count,
        _exp(interval.mean),
        _exp(interval.low),
        _exp(interval.high),
        None if bounds is None else not bool(bounds[0] <= 0 <= bounds[1]),
        equivalence(log_ratios, margin).equivalent if bounds is not None and margin > 0 else None,
    )


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


def equivalence(log_ratios: Sequence[float], margin: float) -> Equivalence:
    """Test whether the ratio lies between 1 / (1 + margin) and 1 + margin: two one-sided t tests (Schuirmann 1987).

    A difference that is not significant is never taken for equality.

    Raises:
        LabError: for fewer than two blocks or a margin that is not above zero.
    """
    if not margin > 0:
        raise LabError(f"equivalence: the margin must be above 0, not {margin}")
    if len(log_ratios) < BLOCKS_MIN:
        raise LabError(f"equivalence: needs {BLOCKS_MIN} blocks at least, not {len(log_ratios)}")
    limit = math.log1p(margin)
    if max(log_ratios) == min(log_ratios):
        p = 0.0 if abs(log_ratios[0]) < limit else 1.0
    else:
        # It takes a second to load, and only those who state a margin need it.
        from statsmodels.stats.weightstats import DescrStatsW  # noqa: PLC0415

        p = float(DescrStatsW(list(log_ratios)).ttost_mean(-limit, limit)[0])
    return Equivalence(p < EQUIVALENCE_LEVEL, p)


def null_arm(log_ratios: Sequence[float], margin: float = 0.0) -> NullArmTest:
    """Judge a comparison of a thing with itself under two names.

    `flagged` when the 95 % interval of the ratio excludes 1, which happens to an honest instrument once in twenty
    times, or when the ratio itself lies beyond the margin. `text` is the result in words.
    """
    found = paired_ratio(log_ratios)
    if found.excludes_1 is None or found.ratio is None:
        text = f"the null arm has {found.blocks} blocks, and it takes {BLOCKS_MIN} to judge it"
        return NullArmTest(**vars(found), flagged=None, text=text)
    beyond = margin > 0 and abs(math.log(found.ratio)) > math.log1p(margin)
    said = f"ratio {found.ratio:.4f}, 95 % interval {found.low:.4f} to {found.high:.4f}"
    if not found.excludes_1 and not beyond:
        text = f"the same thing under two names does not differ: {said}"
        return NullArmTest(**vars(found), flagged=False, text=text)
    why = "which excludes 1" if found.excludes_1 else f"beyond the margin of {100 * margin:g} %"
    text = f"the same thing under two names differs: {said}, {why}; do not trust this campaign's comparisons"
    return NullArmTest(**vars(found), flagged=True, text=text)


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
    bounds = interval.bounds()
    numbers = (interval.count, added, interval.mean, interval.low, interval.high)
    if bounds is None:
        text = f"the positive control has {len(differences)} blocks, and it takes {BLOCKS_MIN} to judge it"
        return ControlTest(*numbers, None, None, text)
    low, high = bounds
    found = bool(low > 0 if added > 0 else high < 0)
    exact = bool(found and low <= added <= high)
    said = f"{interval.mean:.4g}, interval {low:.4g} to {high:.4g}, of {added:.4g} added"
    verdict = "was found" if found else "was NOT found: this campaign cannot see such a difference"
    return ControlTest(*numbers, found, exact, f"the positive control {verdict}: {said}")


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
