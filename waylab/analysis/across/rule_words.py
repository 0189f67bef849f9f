"""Writes rules and contrasts in words: the claim, the measured number and the conclusion."""

from collections.abc import Callable, Mapping, Sequence

from waylab.analysis.across.metrics import metric_words, value_words
from waylab.runfolder.rules import NOT_REFUTED, REFUTED, RefutationRule
from waylab.runfolder.words import is_number, joined, labels_text, several_levels

# If there are more levels than this, the text gives their number instead of a list.
_LISTED_MAX = 6


def rule_levels(levels: Mapping[str, Sequence[str]]) -> str:
    """Return the levels of one side of a rule in words: `128 clients, 1 or 3 replicas`."""
    return ", ".join(labels_text(factor, labels) for factor, labels in levels.items())


def pooled_text(combinations: Sequence[Mapping[str, str]]) -> str:
    """Name the levels over which a contrast is averaged, without the factors that have the same level in all of them.

    For example `1, 8 and 32 clients`, or `the combinations of clients (1, 8) and dispatch (pool, fused)`.
    """
    averaged = several_levels(combinations)
    labels: dict[str, list[str]] = {}
    for levels in combinations:
        for factor in (factor for factor in levels if factor in averaged):
            known = labels.setdefault(factor, [])
            known += [] if levels[factor] in known else [levels[factor]]
    if len(labels) < 2:
        return "".join(_levels_of(factor, found) for factor, found in labels.items())
    listed = joined(f"{_noun(factor)} ({_listed(found)})" for factor, found in labels.items())
    return f"the combinations of {listed}"


def _levels_of(factor: str, labels: Sequence[str]) -> str:
    if len(labels) > _LISTED_MAX:
        return f"all {len(labels)} levels of {_noun(factor)}"
    return labels_text(factor, _sorted(labels), "and")


def _listed(labels: Sequence[str]) -> str:
    return f"{len(labels)} levels" if len(labels) > _LISTED_MAX else ", ".join(_sorted(labels))


def _sorted(labels: Sequence[str]) -> Sequence[str]:
    return sorted(labels, key=float) if all(is_number(label) for label in labels) else labels


def _noun(factor: str) -> str:
    return factor.replace(".", " ").replace("_", " ")


def claim_text(rule: RefutationRule) -> str:
    """Return the claim of the hypothesis, which is the opposite of the condition of the rule that refutes it."""
    metric, of = metric_words(rule.metric), rule_levels(rule.of)
    within = _within(rule)
    if rule.kind == "effect":
        return f"{rule.factor} has the largest effect on {metric}"
    if rule.kind == "trials":
        return f"the share of {metric} is {within}"
    if rule.kind == "model":
        return f"the median error of the model {rule.model} in {metric} is {within}"
    if rule.kind == "ratio":
        return f"{metric} with {of} is {within} times that with {rule_levels(rule.to)}"
    return f"{metric}{f' with {of}' if of else ''} is {within}"


def _within(rule: RefutationRule) -> str:
    """Write the range that the hypothesis allows: `at most 1.25`, `between 0.8 and 1.25`."""
    show = shown(rule)
    if rule.below is not None and rule.above is not None:
        return f"between {show(rule.below)} and {show(rule.above)}"
    if rule.below is not None:
        return f"at least {show(rule.below)}"
    return f"at most {show(rule.above or 0.0)}"


def conclusion_text(rule: RefutationRule, verdict: str, low: float, high: float) -> str:
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


def shown(rule: RefutationRule) -> Callable[[float], str]:
    """Return how numbers of a rule's quantity are written."""
    if rule.kind == "value":
        return lambda value: value_words(rule.metric, value)
    if rule.kind in ("trials", "model"):
        return lambda value: f"{100 * value:.3g} %"
    return lambda value: f"{value:.3g}"
