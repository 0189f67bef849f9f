"""The verdicts of the run: every rule of the hypothesis with its verdict and number, as plain text.

The page, the terminal, samples and campaigns show the same lines.
"""

from dataclasses import dataclass

from waylab.report.page.content import Content
from waylab.runfolder import rules as verdicts

_Levels = dict[str, list[str]]


@dataclass(frozen=True)
class RuleLine:
    """One rule or announced comparison: its verdict, and a sentence with the number."""

    verdict: str
    said: str

    @property
    def mark(self) -> str:
        """A sign that is readable without colours."""
        marks = {verdicts.REFUTED: "✗", verdicts.NOT_REFUTED: "✓", verdicts.UNDECIDED: "?"}
        return marks.get(self.verdict, "•")


def rules(content: Content) -> list[RuleLine]:
    """Return every rule that would refute the hypothesis, with its verdict."""
    return [RuleLine(rule.verdict, rule.said) for rule in _results(content)]


def comparisons(content: Content) -> list[RuleLine]:
    """Return the comparisons that the specification announced, with their verdicts.

    A comparison of the same contrast as a rule is left out, because the rule states the same ratio and interval. The
    table of comparisons contains it.
    """
    announced = [one for one in content.analysis.comparisons if one.role == "effect"]
    known = [_contrast(rule.metric, rule.of, rule.to) for rule in content.analysis.rules]
    return [
        RuleLine(one.verdict, said)
        for one, said in zip(announced, content.analysis.answer, strict=False)
        if _contrast(one.metric, {one.factor: [one.candidate]}, {one.factor: [one.baseline]}) not in known
    ]


def _contrast(metric: str, of: _Levels, to: _Levels) -> tuple[str, list[_Levels]]:
    """Return the key of a contrast; a ratio and its inverse have the same key."""
    return metric, sorted((of, to), key=str)


def hypothesis_verdict(content: Content) -> str:
    """Return the verdict of the hypothesis in words."""
    results = _results(content)
    return verdicts.hypothesis_verdict(results) if results else "no rule decides it"


def _results(content: Content) -> list[verdicts.RuleResult]:
    return [*content.analysis.rules, *content.predictions.rules]
