"""Which factor matters: effects and shares of the variation when all factors are crossed, and the residual checks.

Effects are contrasts of the model of `model.py`, so they equal the comparisons of the same levels.
"""

import math

import numpy as np
from msgspec.structs import replace

from waylab.analysis.across.contrasts.model import (
    MetricModel,
    Weights,
    as_family,
    metric_model,
    missing_ratio,
    significant,
)
from waylab.analysis.across.contrasts.two_levels import word_weights
from waylab.analysis.across.intervals import struct_of
from waylab.analysis.across.metrics import METRICS, shared_metrics, value_of
from waylab.analysis.statistics import anova as tables
from waylab.analysis.statistics.designs import two_level_plan
from waylab.analysis.statistics.diagnostics import DiagnosticCheck, diagnose, judged_together
from waylab.analysis.statistics.factorial import two_level_effects
from waylab.errors import LabError
from waylab.runfolder.effects import Effect, Factorial, FactorialMetric, Residual, ResidualCheck, Share
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.run import ExperimentSpec
from waylab.runfolder.trial_numbers import AnalysedTrial

# Interactions of more factors cannot be read, and need more trials than a run has.
_FACTORS_MAX = 6
_SIGNIFICANT = 0.05
_REST = "further interactions"

Levels = dict[str, list[str]]
Trials = list[AnalysedTrial]


def factorial(spec: ExperimentSpec, trials: Trials) -> Factorial:
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
    crossed = [trial for trial in trials if not arms & set(trial.levels.items())]
    cells = {trial.configuration for trial in crossed}
    if len(cells) * 2 ** len(generators) != math.prod(len(labels) for labels in levels.values()):
        return Factorial(levels=levels, text="not all combinations of the levels were run")
    complete, blocks = _complete_blocks(crossed)
    if not complete:
        return Factorial(levels=levels, text="there is no block in which every configuration was used")
    two_levels = all(len(labels) == 2 for labels in several.values())
    if not two_levels and blocks < 2:
        return Factorial(levels=levels, text="it takes two complete blocks to tell effects from errors")
    metrics = []
    for metric in shared_metrics([trial.measured() for trial in complete]):
        values = [value_of(trial.measured(), metric) or 0.0 for trial in complete]
        model = metric_model(trials, metric)
        try:
            if two_levels:
                contrasts = _effects_of_words(model, several, complete, generators)
                shares = _shares_of_words(several, complete, values, blocks, generators)
            else:
                contrasts = _effects_of_levels(model, several)
                shares = _shares_of_factors(several, complete, values, model)
        except LabError as error:
            return Factorial(levels=levels, text=str(error))
        metrics.append(_metric(model, contrasts, shares, crossed))
    kind = "2k" if two_levels else "general"
    return Factorial(kind=kind, levels=levels, blocks=blocks, metrics=_judged_together(metrics))


def _judged_together(found: list[tuple[FactorialMetric, list[DiagnosticCheck]]]) -> list[FactorialMetric]:
    """Judge the residual checks of all metrics as one family."""
    checks = iter(judged_together([check for _, checks in found for check in checks]))
    return [
        replace(metric, checks=[struct_of(next(checks), ResidualCheck) for _ in mine])
        for metric, mine in found
    ]


def factorial_facts(found: Factorial) -> list[str]:
    """State for every metric which effects explain most, and which checks speak against the model."""
    sentences = []
    for metric in found.metrics:
        apart = {part.name: part.share for part in metric.shares}
        blocks, error = apart.pop("blocks", 0.0), apart.pop("error", 0.0)
        ranked = sorted(apart.items(), key=lambda part: part[1], reverse=True)
        listed = ", ".join(f"{name} {100 * share:.1f} %" for name, share in ranked[:3])
        rest = math.fsum(share for _, share in ranked[3:])
        others = f", the other effects {100 * rest:.1f} %" if ranked[3:] else ""
        sentences.append(
            f"Of the variation of {metric.title}, {listed}{others}; differences between the blocks "
            f"{100 * blocks:.1f} %, error {100 * error:.1f} % ({found.blocks} complete blocks, log scale)."
        )
        against = [check.text for check in metric.checks if check.kept is False]
        if against:
            sentences.append(f"Against the model of {metric.title}: {'; '.join(against)}.")
    return sentences


def _instrument_arms(spec: ExperimentSpec) -> set[tuple[str, str]]:
    """Name the levels that only check the instrument: the second of a null arm, a positive control."""
    return {
        (compare.factor, compare.candidate) for compare in spec.compare if compare.role in ("null", "control")
    }


def _complete_blocks(trials: Trials) -> tuple[Trials, int]:
    """Return the trials of the blocks in which every configuration was used, in the order in which they ran."""
    everything = {trial.configuration for trial in trials}
    blocks: dict[int, set[str]] = {}
    for trial in trials:
        if trial.used:
            blocks.setdefault(trial.block, set()).add(trial.configuration)
    whole = {block for block, names in blocks.items() if names == everything}
    kept = [trial for trial in trials if trial.used and trial.block in whole]
    return sorted(kept, key=lambda trial: trial.order), len(whole)


# The weights of an effect and the effects confounded with it, by its name.
Contrasts = dict[str, tuple[Weights, list[str]]]


def _effects_of_words(
    model: MetricModel, factors: Levels, trials: Trials, generators: list[str]
) -> Contrasts:
    """Return the contrast of every effect that a two-level design can tell apart."""
    configurations = {trial.configuration: trial.levels for trial in trials}
    words = _words(factors, generators)
    found: Contrasts = {}
    for word, aliases in words:
        name = (
            f"{word[0]} {factors[word[0]][1]} / {factors[word[0]][0]}" if len(word) == 1 else " x ".join(word)
        )
        found[name] = (word_weights(configurations, factors, word), aliases)
    return found


def _words(factors: Levels, generators: list[str]) -> list[tuple[tuple[str, ...], list[str]]]:
    aliases = two_level_plan(list(factors), generators).aliases
    return [(tuple(group[0].split(" x ")), list(group[1:])) for group in aliases]


def _effects_of_levels(model: MetricModel, factors: Levels) -> Contrasts:
    """Return the contrast of every level with the first level of its factor."""
    return {
        f"{name} {label} / {labels[0]}": (model.weights({name: [label]}, {name: [labels[0]]}), [])
        for name, labels in factors.items()
        for label in labels[1:]
    }


def _shares_of_words(
    factors: Levels, trials: Trials, values: list[float], blocks: int, generators: list[str]
) -> list[Share]:
    signs = [
        [1 if trial.levels[name] == labels[1] else -1 for name, labels in factors.items()] for trial in trials
    ]
    names = [trial.block for trial in trials] if blocks > 1 else None
    words = [word for word, _ in _words(factors, generators)]
    found = two_level_effects(signs, values, list(factors), names, "multiplicative", words)
    shares = [
        Share(name=effect.name, share=effect.share, significant=effect.significant)
        for effect in found.effects
        if effect.name != "mean"
    ]
    shares += [Share(name="blocks", share=found.share_blocks, significant=None)] if blocks > 1 else []
    return [*shares, Share(name="error", share=found.share_error, significant=None)]


def _shares_of_factors(
    factors: Levels, trials: Trials, values: list[float], model: MetricModel
) -> list[Share]:
    """Return the shares of factors and of pairs of factors; all higher interactions are one share."""
    given = {name: [trial.levels[name] for trial in trials] for name in factors}
    found = tables.anova(given, values, [trial.block for trial in trials], 2, "multiplicative")
    shares = [_share(source) for source in found.sources]
    if len(factors) < 3:
        return shares
    names, blocks = [trial.configuration for trial in trials], [trial.block for trial in trials]
    error = tables.error_share(names, blocks, values)
    further = max(0.0, shares[-1].share - error)
    return [
        *shares[:-1],
        Share(name=_REST, share=further, significant=None),
        Share(name="error", share=shares[-1].share - further, significant=None),
    ]


def _share(source: tables.VarianceSource) -> Share:
    judged = source.p is not None and source.name != "blocks"
    significant_ = bool(source.p < _SIGNIFICANT) if judged and source.p is not None else None
    return Share(name=source.name, share=source.share, significant=significant_, f=source.f, p=source.p)


def _metric(
    model: MetricModel, contrasts: Contrasts, shares: list[Share], trials: Trials
) -> tuple[FactorialMetric, list[DiagnosticCheck]]:
    assert model.model is not None, "there is a complete block"
    ratios = [
        model.ratio_of_weights(weights) if weights else missing_ratio() for weights, _ in contrasts.values()
    ]
    effects = [
        _effect(name, ratio, aliases)
        for (name, (_, aliases)), ratio in zip(contrasts.items(), as_family(ratios), strict=True)
        if ratio.ratio is not None
    ]
    checks, residuals, text = _checks(model, trials)
    content = FactorialMetric(
        metric=model.metric,
        title=METRICS[model.metric],
        effects=effects,
        shares=shares,
        error_deviation=model.model.deviation,
        degrees=model.model.degrees,
        checks=[],
        residuals=residuals,
        text=text,
    )
    return content, checks


def _effect(name: str, found: Ratio, aliases: list[str]) -> Effect:
    assert found.ratio is not None, "only estimated effects are listed"
    return Effect(
        name=name,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p_family=found.p_family,
        significant=None if found.low is None else significant(found),
        relative=found.ratio - 1,
        relative_low=None if found.low is None else found.low - 1,
        relative_high=None if found.high is None else found.high - 1,
        aliases=aliases,
    )


def _checks(model: MetricModel, trials: Trials) -> tuple[list[DiagnosticCheck], list[Residual], str]:
    """Return the checks of the residuals, the numbers of their plots, and why there are none."""
    assert model.model is not None, "there is a complete block"
    if model.model.degrees < 1:
        return [], [], "without repetitions there are no residuals to check"
    names = {trial.configuration for trial in trials}
    places = sorted(
        (place for place, trial in enumerate(model.trials) if trial.configuration in names),
        key=lambda place: model.trials[place].order,
    )
    kept = [model.trials[place] for place in places]
    residuals, fitted = model.model.residuals[places], model.model.fitted[places]
    cells = [trial.configuration for trial in kept]
    try:
        covariance = model.model.residual_covariance[np.ix_(places, places)]
        found = diagnose(residuals, fitted, [trial.order for trial in kept], cells, covariance)
    except LabError as error:
        return [], [], str(error)
    ranked = sorted(range(len(kept)), key=lambda place: float(found.residuals[place]))
    normal = {place: float(found.normal[rank]) for rank, place in enumerate(ranked)}
    points = [
        Residual(
            trial=trial.id,
            configuration=trial.configuration,
            order=trial.order,
            residual=float(found.residuals[place]),
            previous=float(found.residuals[place - 1]) if place else None,
            fitted=float(found.fitted[place]),
            normal=normal[place],
        )
        for place, trial in enumerate(kept)
    ]
    return list(found.checks), points, ""
