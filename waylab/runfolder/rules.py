"""Rules that refute a hypothesis: as a specification states them, and as the analysis evaluates them."""

from msgspec import Struct

REFUTED, NOT_REFUTED, UNDECIDED = "refuted", "not refuted", "undecided"


class RefutationRule(Struct, frozen=True, kw_only=True):
    """One rule. The hypothesis is refuted if the quantity lies below `below` or above `above`."""

    text: str  # the rule in words
    kind: str  # ratio, value, effect, trials or model
    metric: str  # the metric, for example throughput_per_s
    of: dict[str, list[str]]  # the configurations: labels by factor
    to: dict[str, list[str]]  # the right side of a ratio: labels by factor
    factor: str  # factor of an effect, else ""
    model: str  # name of a model, else ""
    below: float | None  # refuted below this number
    above: float | None  # refuted above this number


class RuleResult(RefutationRule, frozen=True, kw_only=True):
    """A rule with the quantity that decides it."""

    value: float | None  # the quantity; null if it could not be measured
    low: float | None  # lower end of its 95 % interval
    high: float | None  # upper end of its 95 % interval
    blocks: int  # number of blocks behind it, or of configurations for a model
    p: float | None  # p-value of the refutation, one-sided, adjusted for the number of rules (Holm)
    verdict: str  # refuted, not refuted or undecided
    said: str  # the verdict with its number, in one sentence


def hypothesis_verdict(rules: list[RuleResult]) -> str:
    """Return refuted if one rule is, not refuted if none is, else undecided."""
    verdicts = {rule.verdict for rule in rules}
    if REFUTED in verdicts:
        return REFUTED
    return NOT_REFUTED if verdicts == {NOT_REFUTED} else UNDECIDED
