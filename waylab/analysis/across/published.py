"""What a study found beside what was measured here: ratios, knees, bottlenecks. A stated rule says what is reproduced.

Never absolute times: the machines differ. Rates only where a link sets them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from waylab.analysis.across.intervals import interval, ratio
from waylab.analysis.across.metrics import metric_of
from waylab.analysis.statistics.factorial import choose_scale, two_level_effects
from waylab.analysis.trial.numbers import TrialResult
from waylab.errors import LabError
from waylab.runfolder.analysis import FindingResult, PublishedResults
from waylab.runfolder.run import ExperimentSpec, PublishedFinding
from waylab.runfolder.trial_numbers import AnalysedTrial

YES, NO, UNDECIDED, NOT_RUN = "yes", "no", "undecided", "not run"
# The share of the best throughput from which on a load counts as enough.
PLATEAU_SHARE = 0.9
# From here on a link is what limits; the rest is lost where its queue runs empty for a moment.
FULL_SHARE = 0.9

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


def published_results(spec: ExperimentSpec, trials: list[TrialResult]) -> PublishedResults | None:
    """Set every finding of `[published]` beside ours; None when the specification names none."""
    if not spec.published.findings:
        return None
    used = [trial.content for trial in trials if trial.used]
    findings = [_finding(finding, used) for finding in spec.published.findings]
    counts = {word: sum(one.reproduced == word for one in findings) for word in (YES, NO, UNDECIDED, NOT_RUN)}
    return PublishedResults(source=spec.published.source, findings=findings, counts=counts)


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


def _finding(finding: PublishedFinding, used: Trials) -> FindingResult:
    judges: dict[str, Callable[[PublishedFinding, Trials], _Ours | None]] = {
        "ratio": _ratio,
        "value": _value,
        "plateau": _plateau,
        "stage": _stage,
        "link": _link,
        "effect": _effect,
    }
    found = judges[finding.kind](finding, used)
    if found is None:
        found = _Ours(None, None, None, 0, "no trial that was used is of this kind", NOT_RUN)
    return FindingResult(
        text=finding.text,
        kind=finding.kind,
        metric=finding.metric,
        of=finding.of,
        to=finding.to,
        theirs=finding.theirs or finding.share or None,
        **vars(found),
    )


def _ratio(finding: PublishedFinding, used: Trials) -> _Ours | None:
    """Paired within blocks, and within the levels that neither side names."""
    named = {*finding.of, *finding.to}
    sides = (("of", finding.of, finding.metric), ("to", finding.to, finding.to_metric or finding.metric))
    found: dict[tuple[int, str], dict[str, list[float]]] = {}
    for trial in used:
        others = ", ".join(f"{k}={v}" for k, v in trial.levels.items() if k not in named)
        for side, levels, metric in sides:
            value = metric_of(trial.measured(), metric) if _meant(trial, levels) else None
            if value:
                pair = found.setdefault((trial.block, others), {})
                pair.setdefault(side, []).append(math.log(value))
    pairs = {key: _mean(pair["of"]) - _mean(pair["to"]) for key, pair in found.items() if len(pair) == 2}
    if not pairs:
        return None
    result = ratio(_by_block(pairs))
    assert result.ratio is not None
    said = ""
    if finding.within and result.excludes_1 and finding.theirs != 1:
        same = (result.ratio > 1) == (finding.theirs > 1)
        said = f"ours lies on {'the same' if same else 'the other'} side of 1"
    return _judged(finding, result.ratio, (result.low, result.high), result.blocks, said)


def _value(finding: PublishedFinding, used: Trials) -> _Ours | None:
    values = [metric_of(one.measured(), finding.metric) for one in used if _meant(one, finding.of)]
    found = interval([value for value in values if value is not None])
    if found.mean is None:
        return None
    return _judged(finding, found.mean, (found.low, found.high), found.count)


def _judged(
    finding: PublishedFinding,
    ours: float,
    bounds: tuple[float | None, float | None],
    blocks: int,
    said: str = "",
) -> _Ours:
    """Compare an interval with a number and its margin, or with the side of 1 that it lies on."""
    theirs, within, (low, high) = finding.theirs, finding.within, bounds
    above = finding.expect == "above" if finding.expect else theirs > 1
    inside = outside = False
    if within and theirs:
        least, most = theirs / (1 + within), theirs * (1 + within)
        rule = f"the interval lies within {100 * within:g} % of theirs"
        if low is not None and high is not None:
            inside, outside = least <= low and high <= most, low > most or high < least
    else:
        rule = f"the interval lies {'above' if above else 'below'} 1"
        if low is not None and high is not None:
            inside, outside = (low > 1, high < 1) if above else (high < 1, low > 1)
    return _Ours(ours, low, high, blocks, rule, YES if inside else NO if outside else UNDECIDED, said)


def _plateau(finding: PublishedFinding, used: Trials) -> _Ours | None:
    blocks: dict[int, dict[float, list[float]]] = {}
    for trial in used:
        value = metric_of(trial.measured(), finding.metric) if _meant(trial, finding.of) else None
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
        f"in every block theirs lies above the last load before the first with {100 * PLATEAU_SHARE:g} % of the best, "
        "and not above that"
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
        if operation is None or not _meant(trial, finding.of):
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
        if _meant(trial, finding.of) and finding.link in trial.measured().links.utilisation
    ]
    if not uses:
        return None
    found = interval(uses)
    result = UNDECIDED
    if found.low is not None and found.high is not None:
        result = YES if found.low >= FULL_SHARE else NO if found.high < FULL_SHARE else UNDECIDED
    rule = f"{finding.link} is used to {100 * FULL_SHARE:g} % at least"
    return _Ours(found.mean, found.low, found.high, found.count, rule, result)


def _effect(finding: PublishedFinding, used: Trials) -> _Ours | None:
    """Judge which effect of a 2^k r design explains most of the variation (Jain 1991, chapter 18)."""
    meant = [trial for trial in used if _meant(trial, finding.of)]
    names = [name for name in (meant[0].levels if meant else {}) if name not in finding.of]
    levels = {name: list(dict.fromkeys(trial.levels[name] for trial in meant)) for name in names}
    if not meant or any(len(found) != 2 for found in levels.values()):
        return None
    by_block: dict[int, Trials] = {}
    for trial in meant:
        by_block.setdefault(trial.block, []).append(trial)
    complete = [one for block in by_block.values() if len(block) == 2 ** len(names) for one in block]
    if not complete:
        return None
    signs = [[1 if one.levels[name] == levels[name][1] else -1 for name in names] for one in complete]
    values = [metric_of(one.measured(), finding.metric) or 0.0 for one in complete]
    cells: dict[str, list[float]] = {}
    for one, value in zip(complete, values, strict=True):
        cells.setdefault(one.configuration, []).append(value)
    try:
        scale = choose_scale(list(cells.values())).scale
        design = two_level_effects(signs, values, names, [one.block for one in complete], scale)
    except LabError:
        return None
    effects = sorted(design.effects[1:], key=lambda effect: -effect.share)
    mine = design.effect(finding.factor)
    result = UNDECIDED
    if effects[0].significant:
        result = YES if effects[0].name == mine.name else NO
    rule = f"{mine.name} explains more of the variation than any other effect, and its interval excludes 0"
    said = f"most is explained by {effects[0].name}"
    return _Ours(mine.share, None, None, len(complete) // 2 ** len(names), rule, result, said)


def _by_count(right: int, total: int) -> str:
    """Return the result of a rule that must hold every time."""
    return YES if right == total else NO if not right else UNDECIDED


def _meant(trial: AnalysedTrial, levels: dict[str, list[str]]) -> bool:
    return all(trial.levels.get(factor) in labels for factor, labels in levels.items())


def _by_block(pairs: dict[tuple[int, str], float]) -> list[float]:
    """One number for each block, over the levels that every block has; else the blocks would not mean the same."""
    blocks: dict[int, dict[str, float]] = {}
    for (block, others), value in pairs.items():
        blocks.setdefault(block, {})[others] = value
    everywhere = set.intersection(*(set(block) for block in blocks.values()))
    if everywhere:
        return [_mean([block[others] for others in sorted(everywhere)]) for block in blocks.values()]
    most = max((frozenset(block) for block in blocks.values()), key=len)
    return [_mean(list(block.values())) for block in blocks.values() if frozenset(block) == most]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
