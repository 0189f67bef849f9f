"""Which factor matters: effects and shares of the variation when all factors are crossed, and the residual checks."""

import math
from collections.abc import Sequence

from waylab.analysis.across.intervals import struct_of
from waylab.analysis.across.metrics import METRICS, shared_metrics, value_of
from waylab.analysis.statistics import anova as tables
from waylab.analysis.statistics.designs import two_level_plan
from waylab.analysis.statistics.diagnostics import diagnose
from waylab.analysis.statistics.factorial import choose_scale, two_level_effects
from waylab.analysis.trial.numbers import TrialResult
from waylab.errors import LabError
from waylab.runfolder.effects import (
    Effect,
    Factorial,
    FactorialMetric,
    ModelScale,
    Residual,
    ResidualCheck,
    Share,
)
from waylab.runfolder.run import ExperimentSpec

# Interactions of more factors cannot be read, and need more trials than a run has.
_FACTORS_MAX = 6
_SIGNIFICANT = 0.05

Levels = dict[str, list[str]]


def factorial(spec: ExperimentSpec, trials: list[TrialResult]) -> Factorial:
    """Effects of the factors on every metric, from the blocks in which every configuration was used."""
    arms = _instrument_arms(spec)
    levels = {
        factor.name: [level.label for level in factor.levels if (factor.name, level.label) not in arms]
        for factor in spec.factors
    }
    several = {name: labels for name, labels in levels.items() if len(labels) > 1}
    if not 2 <= len(several) <= _FACTORS_MAX:
        return Factorial(
            levels=levels, text=f"it takes two to {_FACTORS_MAX} factors to tell their effects apart"
        )
    generators = spec.design.generators
    trials = [trial for trial in trials if not arms & set(trial.content.levels.items())]
    cells = {trial.content.configuration for trial in trials}
    if len(cells) * 2 ** len(generators) != math.prod(len(labels) for labels in levels.values()):
        return Factorial(levels=levels, text="not all combinations of the levels were run")
    complete, blocks = _complete_blocks(trials)
    if not complete:
        return Factorial(levels=levels, text="there is no block in which every configuration was used")
    two_levels = all(len(labels) == 2 for labels in several.values())
    if not two_levels and blocks < 2:
        return Factorial(levels=levels, text="it takes two complete blocks to tell effects from errors")
    judge = _two_levels if two_levels else _general
    metrics = []
    for metric in shared_metrics([trial.numbers for trial in complete]):
        values = [value_of(trial.numbers, metric) or 0.0 for trial in complete]
        try:
            metrics.append(judge(metric, several, complete, values, blocks, generators))
        except LabError as error:
            return Factorial(levels=levels, text=str(error))
    return Factorial(kind="2k" if two_levels else "general", levels=levels, blocks=blocks, metrics=metrics)


def factorial_facts(found: Factorial) -> list[str]:
    """Say for every metric which effects explain most, and what is against the model."""
    sentences = []
    for metric in found.metrics:
        ranked = sorted(metric.shares, key=lambda part: part.share, reverse=True)
        most = [part for part in ranked if part.name not in ("error", "blocks")][:3]
        listed = ", ".join(f"{part.name} {100 * part.share:.1f} %" for part in most)
        error = next((part.share for part in ranked if part.name == "error"), 0.0)
        sentences.append(
            f"Of the variation of {metric.title}, {listed}; the error {100 * error:.1f} % "
            f"({metric.scale.scale} model, {found.blocks} complete blocks)."
        )
        against = [check.text for check in metric.checks if check.kept is False]
        if against:
            sentences.append(f"Against that model of {metric.title}: {'; '.join(against)}.")
    return sentences


def _instrument_arms(spec: ExperimentSpec) -> set[tuple[str, str]]:
    """Name the levels that only check the instrument: the second of a null arm, a positive control."""
    return {
        (compare.factor, compare.candidate) for compare in spec.compare if compare.role in ("null", "control")
    }


def _complete_blocks(trials: list[TrialResult]) -> tuple[list[TrialResult], int]:
    """Return the trials of the blocks in which every configuration was used, in the order in which they ran."""
    everything = {trial.content.configuration for trial in trials}
    blocks: dict[int, set[str]] = {}
    for trial in trials:
        if trial.used:
            blocks.setdefault(trial.content.block, set()).add(trial.content.configuration)
    whole = {block for block, names in blocks.items() if names == everything}
    kept = [trial for trial in trials if trial.used and trial.content.block in whole]
    return sorted(kept, key=lambda trial: trial.content.order), len(whole)


def _scale(trials: list[TrialResult], values: list[float]) -> ModelScale:
    cells: dict[str, list[float]] = {}
    for trial, value in zip(trials, values, strict=True):
        cells.setdefault(trial.content.configuration, []).append(value)
    return struct_of(choose_scale(list(cells.values())), ModelScale)


def _two_levels(
    metric: str,
    factors: Levels,
    trials: list[TrialResult],
    values: list[float],
    blocks: int,
    generators: list[str],
) -> FactorialMetric:
    scale = _scale(trials, values)
    aliases = two_level_plan(list(factors), generators).aliases if generators else ()
    words = [tuple(group[0].split(" x ")) for group in aliases] or None
    signs = [
        [1 if trial.content.levels[name] == labels[1] else -1 for name, labels in factors.items()]
        for trial in trials
    ]
    names = [trial.content.block for trial in trials] if blocks > 1 else None
    found = two_level_effects(signs, values, list(factors), names, scale.scale, words)
    mean = found.effect("mean").value
    without_mean = [effect for effect in found.effects if effect.name != "mean"]
    effects = [
        _effect(
            effect.name,
            (effect.value, effect.low, effect.high),
            effect.significant,
            (mean, scale.scale),
            next((list(group[1:]) for group in aliases if group[0] == effect.name), []),
        )
        for effect in without_mean
    ]
    shares = [
        Share(name=effect.name, share=effect.share, significant=effect.significant) for effect in without_mean
    ]
    shares += [Share(name="blocks", share=found.share_blocks, significant=None)] if blocks > 1 else []
    shares.append(Share(name="error", share=found.share_error, significant=None))
    checks, residuals, text = _checks(trials, found.residuals.tolist(), found.fitted.tolist(), found.degrees)
    return FactorialMetric(
        metric=metric,
        title=METRICS[metric],
        scale=scale,
        mean=mean,
        effects=effects,
        shares=shares,
        error_deviation=found.error_deviation,
        degrees=found.degrees,
        checks=checks,
        residuals=residuals,
        text=text,
    )


def _general(
    metric: str,
    factors: Levels,
    trials: list[TrialResult],
    values: list[float],
    blocks: int,
    generators: list[str],
) -> FactorialMetric:
    assert blocks > 1 and not generators, (
        "fractions have two levels, and without repetitions there is no error"
    )
    scale = _scale(trials, values)
    given = {name: [trial.content.levels[name] for trial in trials] for name in factors}
    found = tables.anova(given, values, [trial.content.block for trial in trials], 2, scale.scale)
    in_order = sorted(
        found.effects,
        key=lambda one: (list(factors).index(one.factor), factors[one.factor].index(one.level)),
    )
    effects = [
        _effect(
            f"{effect.factor} {effect.level}",
            (effect.value, effect.low, effect.high),
            not effect.low <= 0 <= effect.high,
            (found.mean, scale.scale),
        )
        for effect in in_order
    ]
    checks, residuals, text = _checks(trials, found.residuals.tolist(), found.fitted.tolist(), 1)
    return FactorialMetric(
        metric=metric,
        title=METRICS[metric],
        scale=scale,
        mean=found.mean,
        effects=effects,
        shares=[_share(source) for source in found.sources],
        error_deviation=found.error_deviation,
        degrees=next(source.degrees for source in found.sources if source.name == "error"),
        checks=checks,
        residuals=residuals,
        text=text,
    )


def _share(source: tables.VarianceSource) -> Share:
    judged = source.p is not None and source.name != "blocks"
    significant = bool(source.p < _SIGNIFICANT) if judged and source.p is not None else None
    return Share(name=source.name, share=source.share, significant=significant, f=source.f, p=source.p)


def _effect(
    name: str,
    numbers: tuple[float, float | None, float | None],
    significant: bool | None,
    model: tuple[float, str],
    aliases: Sequence[str] = (),
) -> Effect:
    """Add to an effect its share of the mean: q / mean, or 10^q - 1 where effects multiply."""
    mean, scale = model

    def share(value: float | None) -> float | None:
        if value is None:
            return None
        return 10**value - 1 if scale == "multiplicative" else value / mean

    value, low, high = numbers
    return Effect(
        name=name,
        value=value,
        low=low,
        high=high,
        significant=significant,
        relative=share(value),
        relative_low=share(low),
        relative_high=share(high),
        aliases=list(aliases),
    )


def _checks(
    trials: list[TrialResult], residuals: list[float], fitted: list[float], degrees: int
) -> tuple[list[ResidualCheck], list[Residual], str]:
    """Return the checks of the residuals, the numbers of their plots, and why there are none."""
    if degrees < 1:
        return [], [], "without repetitions there are no residuals to check"
    contents = [trial.content for trial in trials]
    cells = [content.configuration for content in contents]
    try:
        found = diagnose(residuals, fitted, [content.order for content in contents], cells)
    except LabError as error:
        return [], [], str(error)
    ranked = sorted(range(len(contents)), key=lambda place: float(found.residuals[place]))
    normal = {place: float(found.normal[rank]) for rank, place in enumerate(ranked)}
    points = [
        Residual(
            trial=content.id,
            configuration=content.configuration,
            order=content.order,
            residual=float(found.residuals[place]),
            previous=float(found.residuals[place - 1]) if place else None,
            fitted=float(found.fitted[place]),
            normal=normal[place],
        )
        for place, content in enumerate(contents)
    ]
    return [struct_of(check, ResidualCheck) for check in found.checks], points, ""
