"""Two levels of one factor, compared by the model of `model.py`."""

import math
from collections.abc import Mapping

from msgspec.structs import asdict

from waylab.analysis.across.contrasts.model import MetricModel, as_family, metric_model
from waylab.analysis.across.contrasts.verdicts import verdict, verdict_sentence
from waylab.analysis.across.intervals import positive, struct_of
from waylab.analysis.across.metrics import metric_of
from waylab.analysis.statistics.pairs import judged_control, null_arm, positive_control
from waylab.runfolder.analysis import Comparison, Stratum
from waylab.runfolder.numbers import NullArm, PositiveControl, Ratio
from waylab.runfolder.run import AnnouncedComparison
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.runfolder.words import is_number, levels_text, pooled_text

Trials = list[AnalysedTrial]
# Baseline and candidate, by block and the levels of the other factors in words.
Pairs = dict[tuple[int, str], tuple[float, float]]


def comparison_results(announced: list[AnnouncedComparison], trials: Trials) -> list[Comparison]:
    """Carry out every `[[compare]]` of the specification; effects are one family, null arms another."""
    models = {compare.metric: metric_model(trials, compare.metric) for compare in announced}
    overall = [_ratio(compare, models[compare.metric]) for compare in announced]
    for role in ("effect", "null"):
        places = [place for place, compare in enumerate(announced) if compare.role == role]
        for place, ratio in zip(places, as_family([overall[place] for place in places]), strict=True):
            overall[place] = ratio
    return [
        _comparison(compare, ratio, models[compare.metric], trials)
        for compare, ratio in zip(announced, overall, strict=True)
    ]


def _sides(compare: AnnouncedComparison) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    return {compare.factor: [compare.candidate]}, {compare.factor: [compare.baseline]}


def _ratio(compare: AnnouncedComparison, model: MetricModel) -> Ratio:
    return model.ratio(*_sides(compare), compare.margin)


def _comparison(
    compare: AnnouncedComparison, overall: Ratio, model: MetricModel, trials: Trials
) -> Comparison:
    of, to = _sides(compare)
    strata = model.pairs(of, to)
    values = _paired_values(compare, trials)
    head = f"{compare.metric}, {compare.factor} {compare.candidate} against {compare.baseline}"
    over = pooled_text(strata)
    head += f", averaged over {over}" if over else ""
    return Comparison(
        **asdict(compare),
        verdict=verdict(overall, compare.metric),
        verdict_text=verdict_sentence(overall, compare.metric, compare.margin, head),
        null=_null_arm(compare, overall),
        control=_control(compare, overall, values),
        baseline_value=positive([baseline for baseline, _ in values.values()]),
        candidate_value=positive([candidate for _, candidate in values.values()]),
        pairs=len(values),
        overall=overall,
        over=over,
        strata=[
            Stratum(
                levels=levels_text(others),
                **asdict(_stratum(model, (of, to), others, compare.margin)),
            )
            for others in sorted(strata, key=_in_order)
        ],
    )


def _in_order(levels: Mapping[str, str]) -> list[tuple[float, str]]:
    """Return the sort key of a combination: numbers by value, other labels by name."""
    return [(float(label) if is_number(label) else math.inf, label) for label in levels.values()]


def _stratum(
    model: MetricModel,
    sides: tuple[dict[str, list[str]], dict[str, list[str]]],
    others: dict[str, str],
    margin: float,
) -> Ratio:
    """Return the ratio at one combination of the other factors' levels."""
    at = {name: [label] for name, label in others.items()}
    of, to = sides
    return model.ratio(of | at, to | at, margin)


def _paired_values(compare: AnnouncedComparison, trials: Trials) -> Pairs:
    """Return the metric at the baseline and at the candidate, where both were used."""
    sides: dict[tuple[int, str], dict[str, float]] = {}
    for trial in trials:
        levels = dict(trial.levels)
        level = levels.pop(compare.factor)
        if trial.used and trial.numbers and level in (compare.baseline, compare.candidate):
            value = metric_of(trial.numbers, compare.metric)
            others = ", ".join(f"{name}={label}" for name, label in levels.items())
            if value:
                sides.setdefault((trial.block, others), {})[level] = value
    return {
        key: (pair[compare.baseline], pair[compare.candidate])
        for key, pair in sides.items()
        if compare.baseline in pair and compare.candidate in pair
    }


def _by_block(pairs: Pairs) -> tuple[list[float], list[float]]:
    """Return the mean of each side per block, over the levels that every block has; without any, over all."""
    blocks: dict[int, set[str]] = {}
    for block, others in pairs:
        blocks.setdefault(block, set()).add(others)
    everywhere = set.intersection(*blocks.values()) if blocks else set()
    means: list[list[float]] = [[], []]
    for block, there in blocks.items():
        chosen = everywhere or there
        for side, found in enumerate(means):
            values = [pairs[block, others][side] for others in chosen]
            found.append(math.fsum(values) / len(values))
    return means[0], means[1]


def _null_arm(compare: AnnouncedComparison, overall: Ratio) -> NullArm | None:
    """Judge a null arm; None for any other comparison."""
    if compare.role != "null":
        return None
    judged = null_arm(overall, compare.margin, overall.p_family)
    return NullArm(**asdict(overall), flagged=judged.flagged, text=judged.text)


def _control(compare: AnnouncedComparison, overall: Ratio, values: Pairs) -> PositiveControl | None:
    """Judge a positive control; None for any other comparison.

    A control of a time is judged by paired differences in the metric's unit, one of a ratio by the ratio.
    """
    if compare.role != "control":
        return None
    if compare.added_ns:
        return struct_of(positive_control(*_by_block(values), compare.added_ns), PositiveControl)
    found = judged_control(compare.ratio, (overall.ratio, overall.low, overall.high), overall.blocks, 1.0)
    return struct_of(found, PositiveControl)
