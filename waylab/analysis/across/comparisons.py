"""Two levels of one factor, compared in pairs within blocks on the log scale."""

import math

from msgspec.structs import asdict

from waylab.analysis.across.intervals import interval, ratio, struct_of
from waylab.analysis.across.metrics import metric_of
from waylab.analysis.across.verdicts import verdict, verdict_sentence
from waylab.analysis.statistics.pairs import null_arm, positive_control
from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.analysis import Comparison, Stratum
from waylab.runfolder.numbers import NullArm, PositiveControl
from waylab.runfolder.run import AnnouncedComparison
from waylab.runfolder.trial_numbers import TrialNumbers

# Block, and the levels of the other factors in words.
Key = tuple[int, str]


def comparison_results(announced: list[AnnouncedComparison], trials: list[TrialResult]) -> list[Comparison]:
    """Carry out every `[[compare]]` of the specification."""
    return [_comparison(compare, trials) for compare in announced]


def _comparison(compare: AnnouncedComparison, trials: list[TrialResult]) -> Comparison:
    values = _paired_values(compare, trials)
    ratios = {key: math.log(candidate / baseline) for key, (baseline, candidate) in values.items()}
    strata = list(dict.fromkeys(others for _, others in ratios))
    balanced = _balanced(ratios)
    overall = ratio(_per_block(balanced), compare.margin)
    head = f"{compare.metric}, {compare.factor} {compare.candidate} against {compare.baseline}"
    return Comparison(
        **asdict(compare),
        verdict=verdict(overall, compare.metric),
        verdict_text=verdict_sentence(overall, compare.metric, compare.margin, head),
        null=_null_arm(compare, balanced),
        control=_control(compare, balanced, values),
        baseline_value=interval([baseline for baseline, _ in values.values()]),
        candidate_value=interval([candidate for _, candidate in values.values()]),
        pairs=len(balanced),
        pairs_left_out=len(ratios) - len(balanced),
        overall=overall,
        strata=[
            Stratum(
                levels=stratum,
                **asdict(
                    ratio([one for (_, others), one in ratios.items() if others == stratum], compare.margin)
                ),
            )
            for stratum in strata
        ],
    )


def _paired_values(compare: AnnouncedComparison, trials: list[TrialResult]) -> dict[Key, tuple[float, float]]:
    """Return the metric at the baseline and at the candidate, where both were used."""
    pairs: dict[Key, dict[str, TrialNumbers]] = {}
    for trial in trials:
        levels = dict(trial.content.levels)
        level = levels.pop(compare.factor)
        if trial.used and level in (compare.baseline, compare.candidate):
            others = ", ".join(f"{name}={label}" for name, label in levels.items())
            pairs.setdefault((trial.content.block, others), {})[level] = trial.numbers
    found = {}
    for key, pair in pairs.items():
        if compare.baseline in pair and compare.candidate in pair:
            baseline = metric_of(pair[compare.baseline], compare.metric)
            candidate = metric_of(pair[compare.candidate], compare.metric)
            if baseline and candidate:
                found[key] = (baseline, candidate)
    return found


def _null_arm(compare: AnnouncedComparison, ratios: dict[Key, float]) -> NullArm | None:
    """Judge a null arm; None for any other comparison."""
    if compare.role != "null":
        return None
    return struct_of(null_arm(_per_block(ratios), compare.margin), NullArm)


def _control(
    compare: AnnouncedComparison, ratios: dict[Key, float], values: dict[Key, tuple[float, float]]
) -> PositiveControl | None:
    """Judge a positive control; None for any other comparison.

    A control of a time is judged by paired differences in the metric's unit, one of a ratio on the log scale.
    """
    if compare.role != "control":
        return None
    if compare.added_ns:
        baseline, candidate = (_per_block({key: values[key][side] for key in ratios}) for side in (0, 1))
        return struct_of(positive_control(baseline, candidate, compare.added_ns), PositiveControl)
    logs = _per_block(ratios)
    found = positive_control([0.0] * len(logs), logs, math.log(compare.ratio))
    mean, low, high = (
        None if value is None else math.exp(value) for value in (found.mean, found.low, found.high)
    )
    text = found.text
    if found.found is not None:
        result = "was found" if found.found else "was NOT found: this campaign cannot see such a difference"
        text = (
            f"the positive control {result}: ratio {mean:.4g}, interval {low:.4g} to {high:.4g}, "
            f"of {compare.ratio:.4g} expected"
        )
    return PositiveControl(
        blocks=found.blocks,
        added=compare.ratio,
        mean=mean,
        low=low,
        high=high,
        found=found.found,
        exact=found.exact,
        text=text,
    )


def _balanced(ratios: dict[Key, float]) -> dict[Key, float]:
    """Keep the pairs that make all blocks mean the same.

    If some pair is missing somewhere, its levels are left out of all blocks, because adding a block costs more than
    adding a level.
    Where no levels are complete, only the most complete blocks are kept.
    """
    blocks: dict[int, set[str]] = {}
    for block, others in ratios:
        blocks.setdefault(block, set()).add(others)
    if not blocks:
        return {}
    everywhere = set.intersection(*blocks.values())
    if everywhere:
        return {key: ratio for key, ratio in ratios.items() if key[1] in everywhere}
    most = max(blocks.values(), key=len)
    return {key: ratio for key, ratio in ratios.items() if blocks[key[0]] == most and key[1] in most}


def _per_block(ratios: dict[Key, float]) -> list[float]:
    """One number per block, the mean over its pairs: the block is the unit, its pairs are not independent."""
    blocks: dict[int, list[float]] = {}
    for (block, _), number in ratios.items():
        blocks.setdefault(block, []).append(number)
    return [math.fsum(pairs) / len(pairs) for pairs in blocks.values()]
