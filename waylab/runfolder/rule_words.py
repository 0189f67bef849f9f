"""Writes rules in words: the condition that refutes, the claim that is its opposite, and the conclusion."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from waylab.runfolder.metric_words import metric_words, value_words
from waylab.runfolder.rules import NOT_REFUTED, REFUTED
from waylab.runfolder.words import joined, labels_text, number_text


class RuleLike(Protocol):
    """A rule, as a specification or a run folder has it."""

    @property
    def kind(self) -> str:
        """The kind of quantity that the rule tests: ratio, value, effect, trials or model."""

    @property
    def metric(self) -> str:
        """The metric, for example throughput_per_s."""

    @property
    def of(self) -> Mapping[str, Sequence[str]]:
        """The configurations: labels by factor."""

    @property
    def to(self) -> Mapping[str, Sequence[str]]:
        """The right side of a ratio: labels by factor."""

    @property
    def factor(self) -> str:
        """The factor of an effect, else ""."""

    @property
    def model(self) -> str:
        """The name of a model, else ""."""

    @property
    def below(self) -> float | None:
        """Refuted below this number."""

    @property
    def above(self) -> float | None:
        """Refuted above this number."""


def condition_text(rule: RuleLike) -> str:
    """Return the condition that refutes the hypothesis."""
    if rule.kind == "effect":
        return f"another factor than {rule.factor} has the largest effect on {metric_words(rule.metric)}"
    show = shown(rule)
    limits = [f"less than {show(rule.below)}"] if rule.below is not None else []
    limits += [f"more than {show(rule.above)}"] if rule.above is not None else []
    return _statement(rule, " or ".join(limits))


def claim_text(rule: RuleLike) -> str:
    """Return the claim of the hypothesis, which is the opposite of the condition of the rule that refutes it."""
    if rule.kind == "effect":
        return f"{rule.factor} has the largest effect on {metric_words(rule.metric)}"
    show = shown(rule)
    if rule.below is not None and rule.above is not None:
        return _statement(rule, f"between {show(rule.below)} and {show(rule.above)}")
    if rule.below is not None:
        return _statement(rule, f"at least {show(rule.below)}")
    return _statement(rule, f"at most {show(rule.above or 0.0)}")


def _statement(rule: RuleLike, limit: str) -> str:
    """State that the quantity of a rule is within or beyond a limit."""
    metric, of = metric_words(rule.metric), _levels(rule.of)
    if rule.kind == "trials":
        return f"the share of {metric} is {limit}"
    if rule.kind == "model":
        return f"the median error of the model {rule.model} in {metric} is {limit}"
    if rule.kind == "ratio":
        return f"{metric} with {of} is {limit} times that with {_levels(rule.to)}"
    return f"{metric}{f' with {of}' if of else ''} is {limit}"


def _levels(levels: Mapping[str, Sequence[str]]) -> str:
    """Return the levels of one side of a rule in words: `128 clients, 1 or 3 replicas`."""
    return ", ".join(labels_text(factor, labels) for factor, labels in levels.items())


def conclusion_text(rule: RuleLike, verdict: str, low: float, high: float) -> str:
    """State where the interval of the measured quantity lies relative to the limits of a rule, and the conclusion."""
    show = shown(rule)
    limits = [limit for limit in (rule.below, rule.above) if limit is not None]
    inside = [limit for limit in limits if low <= limit <= high]
    beyond = ""
    if rule.below is not None and high < rule.below:
        beyond = f"below {show(rule.below)}"
    if rule.above is not None and low > rule.above:
        beyond = f"above {show(rule.above)}"
    if verdict == NOT_REFUTED:
        return "The whole interval agrees with the claim"
    if verdict == REFUTED:
        return f"The whole interval is {beyond}" if beyond else "A test at the 2.5 % level refutes the claim"
    if inside:
        listed = joined(show(limit) for limit in inside)
        return f"The interval contains the limit {listed}, so the true value may be on either side of it"
    if beyond:
        return f"The interval is {beyond}, but the evidence is too weak after Holm's adjustment for several rules"
    return "A test at the 2.5 % level does not decide"


def shown(rule: RuleLike) -> Callable[[float], str]:
    """Return how numbers of a rule's quantity are written."""
    if rule.kind == "value":
        return lambda value: value_words(rule.metric, value)
    if rule.kind in ("trials", "model"):
        return lambda value: f"{100 * value:.3g} %"
    return number_text
