"""Evaluates the rules that refute the hypothesis: each is refuted, not refuted or undecided, with its number."""

import math
from dataclasses import dataclass

from msgspec.structs import asdict

from waylab.analysis.across.contrasts.model import NO_PAIR, MetricModel, meant, metric_model
from waylab.analysis.across.contrasts.two_levels import largest_effect
from waylab.analysis.across.metrics import described_metric_of
from waylab.analysis.statistics.blocks import DEGREES_MIN, Contrast, contrast_of_mean, holm
from waylab.runfolder.metric_words import metric_words, value_words
from waylab.runfolder.rule_words import claim_text, conclusion_text, shown
from waylab.runfolder.rules import NOT_REFUTED, REFUTED, UNDECIDED, RefutationRule, RuleResult
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.runfolder.words import number_text, pooled_text

# Both sides of the 95 % interval: a rule is decided exactly if the interval lies on one side of its limit.
LEVEL = 0.025

Trials = list[AnalysedTrial]


@dataclass(frozen=True)
class Quantity:
    """The quantity that a rule tests, its interval and the p-values of both decisions; None without an interval."""

    # The measured number with its evidence; empty if there is none.
    words: str
    value: float | None
    low: float | None = None
    high: float | None = None
    blocks: int = 0
    p_refuted: float | None = None
    p_kept: float | None = None
    # The verdict if it follows from counting trials and needs no test.
    certain: str = ""
    reason: str = ""


def rule_results(rules: list[RefutationRule], trials: Trials) -> list[RuleResult]:
    """Evaluate the rules about measurements; those about models need predictions.

    The hypothesis is refuted if any rule is, so refutations are adjusted for the number of rules (Holm).
    """
    measured = [rule for rule in rules if rule.kind != "model"]
    return judged(measured, [_quantity(rule, trials) for rule in measured])


def judged(rules: list[RefutationRule], quantities: list[Quantity]) -> list[RuleResult]:
    """Decide each rule by its quantity."""
    adjusted = iter(holm([one.p_refuted for one in quantities if one.p_refuted is not None]))
    return [
        _judged(rule, one, None if one.p_refuted is None else next(adjusted))
        for rule, one in zip(rules, quantities, strict=True)
    ]


def _judged(rule: RefutationRule, found: Quantity, p: float | None) -> RuleResult:
    verdict = found.certain or UNDECIDED
    if p is not None and p < LEVEL:
        verdict = REFUTED
    elif found.p_kept is not None and found.p_kept < LEVEL:
        verdict = NOT_REFUTED
    return RuleResult(
        **asdict(rule),
        value=found.value,
        low=found.low,
        high=found.high,
        blocks=found.blocks,
        p=p,
        verdict=verdict,
        said=_said(rule, found, verdict),
    )


def _said(rule: RefutationRule, found: Quantity, verdict: str) -> str:
    """State verdict and claim, then the measured number, then the conclusion."""
    said = f"{verdict.capitalize()}: {claim_text(rule)}."
    said += f" Measured: {found.words}." if found.words else ""
    if found.low is not None and found.high is not None:
        return f"{said} {conclusion_text(rule, verdict, found.low, found.high)}."
    reason = found.reason if verdict == UNDECIDED else ""
    return f"{said} {reason[0].upper()}{reason[1:]}." if reason else said


def _quantity(rule: RefutationRule, trials: Trials) -> Quantity:
    if rule.kind == "trials":
        return _trials(rule, trials)
    if rule.kind == "effect":
        return _effect(rule, trials)
    if rule.kind == "value":
        return _value(rule, trials)
    return _ratio(rule, metric_model(trials, rule.metric))


def _ratio(rule: RefutationRule, model: MetricModel) -> Quantity:
    ratio = model.ratio(rule.of, rule.to)
    contrast = model.contrast(model.weights(rule.of, rule.to))
    if ratio.ratio is None or contrast is None:
        return Quantity("", None, reason=NO_PAIR)
    over = pooled_text(model.pairs(rule.of, rule.to))
    return _tested(rule, contrast, ratio.blocks, (f"{number_text(ratio.ratio)} times", over), ratio.reason)


def _value(rule: RefutationRule, trials: Trials) -> Quantity:
    blocks: dict[int, dict[str, float]] = {}
    others: list[dict[str, str]] = []
    for trial in trials:
        value = described_metric_of(trial.numbers, rule.metric) if trial.used and trial.numbers else None
        if value and value > 0 and meant(trial.levels, rule.of):
            blocks.setdefault(trial.block, {})[trial.configuration] = math.log(value)
            others.append({name: label for name, label in trial.levels.items() if name not in rule.of})
    if not blocks:
        return Quantity("", None, reason="no used trial has this metric")
    # A block that lacks a configuration is left out, because its mean would be over fewer configurations.
    every = set().union(*blocks.values())
    logs = [math.fsum(found.values()) / len(every) for found in blocks.values() if len(found) == len(every)]
    if not logs:
        return Quantity("", None, reason="no block has a used trial of each of its configurations")
    contrast = contrast_of_mean(logs)
    words = (value_words(rule.metric, math.exp(contrast.estimate)), pooled_text(others))
    reason = f"it takes {DEGREES_MIN + 1} blocks to decide" if len(logs) <= DEGREES_MIN else ""
    return _tested(rule, contrast, len(logs), words, reason)


def _tested(
    rule: RefutationRule, contrast: Contrast, blocks: int, words: tuple[str, str], reason: str
) -> Quantity:
    """Test a difference of logarithms against the limits of a rule; `words` are the number and its levels."""
    value, bounds = math.exp(contrast.estimate), contrast.interval()
    number, over = words
    over = f", averaged over {over}" if over else ""
    if bounds is None:
        return Quantity(f"{number}{over}", value, blocks=blocks, reason=reason)
    refuted, kept = [], []
    if rule.above is not None and rule.above > 0:
        refuted.append(contrast.p_above(math.log(rule.above)))
        kept.append(contrast.p_below(math.log(rule.above)))
    if rule.below is not None and rule.below > 0:
        refuted.append(contrast.p_below(math.log(rule.below)))
        kept.append(contrast.p_above(math.log(rule.below)))
    low, high = math.exp(bounds[0]), math.exp(bounds[1])
    show = shown(rule)
    said = f"{number} (95 % interval {show(low)} to {show(high)}, {blocks} blocks{over})"
    p_refuted = min((p for p in refuted if p is not None), default=None)
    p_kept = max((p for p in kept if p is not None), default=None)
    return Quantity(said, value, low, high, blocks, p_refuted, p_kept)


def _trials(rule: RefutationRule, trials: Trials) -> Quantity:
    """Return a share of the trials, which is counted and needs no test."""
    run = [trial for trial in trials if trial.run]
    if rule.metric == "failed_trials":
        counted, hits = run, [trial for trial in run if not trial.used]
    else:
        counted = [trial for trial in run if _steady(trial) is not None]
        hits = [trial for trial in counted if _steady(trial) is False]
    words = f"{len(hits)} of {len(counted)} trials"
    if not counted:
        return Quantity("", None, reason="no trial is long enough to judge its steady state")
    share = len(hits) / len(counted)
    beyond = (rule.above is not None and share > rule.above) or (
        rule.below is not None and share < rule.below
    )
    return Quantity(
        words,
        share,
        blocks=len({trial.block for trial in counted}),
        certain=REFUTED if beyond else NOT_REFUTED,
    )


def _steady(trial: AnalysedTrial) -> bool | None:
    warm_up = trial.numbers.within.warm_up if trial.numbers else None
    return warm_up.steady if warm_up else None


def _effect(rule: RefutationRule, trials: Trials) -> Quantity:
    """The factor must have the largest effect of all effects of a two-level design."""
    found = largest_effect(rule.metric, rule.factor, rule.of, trials)
    if found is None:
        return Quantity("", None, reason=NO_PAIR)
    words = (
        f"{rule.factor} changes {metric_words(rule.metric)} by a factor of {found.mine:.3f}, "
        f"{found.other_name} by {found.other:.3f} ({found.blocks} blocks)"
    )
    return Quantity(
        words,
        found.mine,
        blocks=found.blocks,
        p_refuted=found.p_smaller,
        p_kept=found.p_larger,
        reason="the difference of the two effects is within their errors"
        if found.p_larger is not None
        else found.reason,
    )
