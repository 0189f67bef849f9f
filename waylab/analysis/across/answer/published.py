"""What a study found beside what was measured here: ratios, knees, bottlenecks. A stated rule says what is reproduced.

Never absolute times: the machines differ. Rates only where a link sets them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from waylab.analysis.across.answer.blocks_needed import blocks_needed
from waylab.analysis.across.contrasts.model import meant, metric_model
from waylab.analysis.across.contrasts.two_levels import largest_effect
from waylab.analysis.across.intervals import interval
from waylab.analysis.across.metrics import described_metric_of, metric_of
from waylab.analysis.statistics.blocks import Contrast, blocks_for, contrast_of_mean, holm
from waylab.runfolder.analysis import PRECISION_AIM, FindingResult, PublishedResults
from waylab.runfolder.run import PublishedFinding, PublishedStudy
from waylab.runfolder.trial_numbers import AnalysedTrial

YES, NO, UNDECIDED, NOT_RUN = "yes", "no", "undecided", "not run"
# The share of the best throughput from which on a load counts as enough.
PLATEAU_SHARE = 0.9
# From here on a link is what limits; the rest is lost where its queue runs empty for a moment.
FULL_SHARE = 0.9

# For the decisions on all findings of a study together.
LEVEL = 0.05

Trials = list[AnalysedTrial]


@dataclass(frozen=True)
class _Ours:
    """Our number beside a finding, the rule that decides, and its result."""

    ours: float | None
    low: float | None
    high: float | None
    blocks: int
    rule: str
    reproduced: str
    said: str = ""
    p: float | None = None
    contrast: Contrast | None = None
    # Distance of our number to the next border of the rule, in the unit of the contrast.
    margin: float | None = None


def published_results(published: PublishedStudy, trials: Trials) -> PublishedResults | None:
    """Compare every finding of `[published]` with ours; None if there is no finding.

    The findings of a study are one family: each decision holds at 5 % for all of them (Holm).
    """
    if not published.findings:
        return None
    used = [trial for trial in trials if trial.used]
    found = [_ours(finding, used) for finding in published.findings]
    adjusted = iter(holm([one.p for one in found if one.p is not None]))
    p_values = [None if one.p is None else next(adjusted) for one in found]
    # Holm's method rejects the smallest p-values first, so only the remaining ones share the level.
    open_ = sum(p is not None and p >= LEVEL for p in p_values)
    findings = [
        _finding(finding, ours, p, LEVEL / max(open_, 1) if p is not None else LEVEL)
        for finding, ours, p in zip(published.findings, found, p_values, strict=True)
    ]
    counts = {word: sum(one.reproduced == word for one in findings) for word in (YES, NO, UNDECIDED, NOT_RUN)}
    family = sum(one.p is not None for one in found)
    return PublishedResults(source=published.source, findings=findings, counts=counts, family=family)


def published_facts(published: PublishedResults | None) -> list[str]:
    """Say in one sentence how many findings are reproduced."""
    if published is None:
        return []
    counts, total = published.counts, len(published.findings)
    sentence = (
        f"Of {total} findings of {published.source}, {counts[YES]} are reproduced and {counts[NO]} are not"
    )
    rest = [f"{counts[UNDECIDED]} undecided"] if counts[UNDECIDED] else []
    rest += [f"{counts[NOT_RUN]} not run at this scale"] if counts[NOT_RUN] else []
    return [sentence + (f"; {', '.join(rest)}." if rest else ".")]


def _ours(finding: PublishedFinding, used: Trials) -> _Ours:
    judges: dict[str, Callable[[PublishedFinding, Trials], _Ours | None]] = {
        "ratio": _ratio,
        "value": _value,
        "plateau": _plateau,
        "stage": _stage,
        "link": _link,
        "effect": _effect,
    }
    missing = _Ours(None, None, None, 0, "no trial in use has these settings", NOT_RUN)
    return judges[finding.kind](finding, used) or missing


def _finding(finding: PublishedFinding, ours: _Ours, p: float | None, level: float) -> FindingResult:
    """Return the result; a decision that does not hold for the whole family is undecided."""
    reproduced, needed = ours.reproduced, None
    if reproduced in (YES, NO) and p is not None and p >= LEVEL:
        reproduced = UNDECIDED
    if reproduced == UNDECIDED and ours.contrast and ours.margin is not None:
        needed = blocks_needed(ours.contrast, ours.blocks, ours.margin, level)
    precise = None
    if ours.contrast and finding.kind in ("ratio", "value"):
        precise = blocks_for(ours.contrast, ours.blocks, math.log1p(PRECISION_AIM))
    return FindingResult(
        text=finding.text,
        kind=finding.kind,
        metric=finding.metric,
        of=finding.of,
        to=finding.to,
        theirs=finding.theirs or finding.share or None,
        ours=ours.ours,
        low=ours.low,
        high=ours.high,
        blocks=ours.blocks,
        said=ours.said,
        p=p,
        rule=ours.rule,
        reproduced=reproduced,
        reason=finding.reason,
        blocks_needed=needed,
        blocks_for_aim=precise,
    )


def _ratio(finding: PublishedFinding, used: Trials) -> _Ours | None:
    """Return the contrast of both sides; of two metrics, the ratios of the trials that have both."""
    if finding.to_metric in ("", finding.metric):
        model = metric_model(used, finding.metric)
        contrast = model.contrast(weights := model.weights(finding.of, finding.to))
        blocks = model.blocks(weights) if weights else 0
    else:
        logs = _log_ratios(finding, used)
        contrast, blocks = (contrast_of_mean(logs), len(logs)) if logs else (None, 0)
    if contrast is None:
        return None
    said = ""
    bounds = contrast.interval()
    if finding.within and bounds and not bounds[0] <= 0 <= bounds[1] and finding.theirs != 1:
        same = (contrast.estimate > 0) == (finding.theirs > 1)
        said = f"ours lies on {'the same' if same else 'the other'} side of 1"
    return _judged(finding, contrast, blocks, said)


def _log_ratios(finding: PublishedFinding, used: Trials) -> list[float]:
    """Return ln(metric / other metric) of each block: the mean over its trials, which have both metrics."""
    blocks: dict[int, list[float]] = {}
    for trial in used:
        if meant(trial.levels, finding.of) and meant(trial.levels, finding.to):
            one = metric_of(trial.measured(), finding.metric)
            other = metric_of(trial.measured(), finding.to_metric)
            if one and other:
                blocks.setdefault(trial.block, []).append(math.log(one / other))
    return [_mean(values) for values in blocks.values()]


def _value(finding: PublishedFinding, used: Trials) -> _Ours | None:
    values = [
        described_metric_of(one.measured(), finding.metric) for one in used if meant(one.levels, finding.of)
    ]
    logs = [math.log(value) for value in values if value]
    return _judged(finding, contrast_of_mean(logs), len(logs)) if logs else None


def _judged(finding: PublishedFinding, found: Contrast, blocks: int, said: str = "") -> _Ours:
    """Compare an interval with a number and its margin, or with the side of 1 that it lies on."""
    theirs, within, bounds = finding.theirs, finding.within, found.interval()
    above = finding.expect == "above" if finding.expect else theirs > 1
    result, p = UNDECIDED, None
    if within and theirs:
        least, most = math.log(theirs / (1 + within)), math.log(theirs * (1 + within))
        rule = f"the interval lies within {100 * within:g} % of theirs"
        margin = min(abs(found.estimate - least), abs(found.estimate - most))
        if bounds is not None:
            inside = least <= bounds[0] and bounds[1] <= most
            outside = bounds[0] > most or bounds[1] < least
            tests = (found.p_above(least), found.p_below(most)), (found.p_above(most), found.p_below(least))
            # Twice a one-sided p-value is below 5 % exactly if the 95 % interval lies on that side.
            p_inside, p_outside = 2 * max(filter(None, tests[0]), default=0.0), 2 * _least(tests[1])
            result = YES if inside else NO if outside else UNDECIDED
            p = min(1.0, p_outside if outside else p_inside)
    else:
        rule, margin = f"the interval lies {'above' if above else 'below'} 1", abs(found.estimate)
        if bounds is not None:
            low, high = bounds
            inside, outside = (low > 0, high < 0) if above else (high < 0, low > 0)
            result, p = YES if inside else NO if outside else UNDECIDED, found.p_zero()
    low_, high_ = (None, None) if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1]))
    return _Ours(math.exp(found.estimate), low_, high_, blocks, rule, result, said, p, found, margin)


def _least(values: tuple[float | None, ...]) -> float:
    return min((value for value in values if value is not None), default=1.0)


def _plateau(finding: PublishedFinding, used: Trials) -> _Ours | None:
    blocks: dict[int, dict[float, list[float]]] = {}
    for trial in used:
        value = metric_of(trial.measured(), finding.metric) if meant(trial.levels, finding.of) else None
        if value is not None:
            level = float(trial.levels[finding.factor])
            blocks.setdefault(trial.block, {}).setdefault(level, []).append(value)
    levels = sorted({level for block in blocks.values() for level in block})
    # A block that lacks a load might have its best there.
    curves = [
        {level: _mean(block[level]) for level in levels}
        for block in blocks.values()
        if set(block) == set(levels)
    ]
    if not curves or len(levels) < 3:
        return None
    knees = [min(n for n, x in curve.items() if x >= PLATEAU_SHARE * max(curve.values())) for curve in curves]
    rule = (
        f"in every block, theirs lies above the last load with less than {100 * PLATEAU_SHARE:g} % of the highest "
        "throughput, and not above the next one"
    )
    before = [max([level for level in levels if level < knee], default=0.0) for knee in knees]
    right = sum(low < finding.theirs <= knee for low, knee in zip(before, knees, strict=True))
    result = _by_count(right, len(knees)) if len(knees) > 1 else UNDECIDED
    return _Ours(median(knees), min(knees), max(knees), len(knees), rule, result)


def _stage(finding: PublishedFinding, used: Trials) -> _Ours | None:
    shares: dict[int, list[tuple[float, int]]] = {}
    largest: dict[str, int] = {}
    for trial in used:
        operation = trial.measured().stages.get(finding.operation)
        if operation is None or not meant(trial.levels, finding.of):
            continue
        means = {name: times.mean_ns for name, times in operation.stages.items() if name != "total"}
        order = sorted(means, key=lambda name: -means[name])
        largest[order[0]] = largest.get(order[0], 0) + 1
        place = order.index(finding.stage) + 1
        share = means[finding.stage] / operation.stages["total"].mean_ns
        shares.setdefault(trial.block, []).append((share, place))
    if not shares:
        return None
    found = interval([_mean([share for share, _ in block]) for block in shares.values()])
    places = [place for block in shares.values() for _, place in block]
    right = sum(place == finding.place for place in places)
    order_word = {1: "the longest stage", 2: "the second longest stage"}.get(
        finding.place, f"stage number {finding.place} by length"
    )
    said = f"so in {right} of {len(places)} trials; the longest is " + ", ".join(
        f"{name} in {count}" for name, count in largest.items()
    )
    rule = f"{finding.stage} is {order_word} in every trial"
    return _Ours(found.mean, found.low, found.high, found.count, rule, _by_count(right, len(places)), said)


def _link(finding: PublishedFinding, used: Trials) -> _Ours | None:
    uses = [
        trial.measured().links.utilisation[finding.link]
        for trial in used
        if meant(trial.levels, finding.of) and finding.link in trial.measured().links.utilisation
    ]
    if not uses:
        return None
    found = interval(uses)
    result = UNDECIDED
    if found.low is not None and found.high is not None:
        result = YES if found.low >= FULL_SHARE else NO if found.high < FULL_SHARE else UNDECIDED
    rule = f"at least {100 * FULL_SHARE:g} % of the link {finding.link} is used"
    contrast = contrast_of_mean(uses)
    margin = abs(contrast.estimate - FULL_SHARE)
    return _Ours(
        found.mean, found.low, found.high, found.count, rule, result, contrast=contrast, margin=margin
    )


def _effect(finding: PublishedFinding, used: Trials) -> _Ours | None:
    """Judge whether an effect of a 2^k r design is larger than every other (Jain 1991, chapter 18)."""
    found = largest_effect(finding.metric, finding.factor, finding.of, used)
    if found is None:
        return None
    result, p = UNDECIDED, None
    if found.p_larger is not None and found.p_smaller is not None:
        p = min(1.0, 2 * min(found.p_larger, found.p_smaller))
        if p < LEVEL:
            result = YES if found.p_larger < found.p_smaller else NO
    rule = f"the effect of {finding.factor} is larger than every other, by a test of their difference at 5 %"
    said = f"the largest other effect is that of {found.other_name}, a factor of {found.other:.3f}"
    return _Ours(found.share, None, None, found.blocks, rule, result, said, p)


def _by_count(right: int, total: int) -> str:
    """Return the result of a rule that must hold every time."""
    return YES if right == total else NO if not right else UNDECIDED


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
