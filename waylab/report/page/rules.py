"""What the run decides: every rule of the hypothesis with its verdict and number, as plain text.

The page, the terminal, samples and campaigns show the same lines.
"""

from dataclasses import dataclass

from waylab.report.page.content import Content

_COMPARISONS = {
    "equivalent": "the same within the margin",
    "better": "different, the candidate is better",
    "worse": "different, the candidate is worse",
}


@dataclass(frozen=True)
class RuleLine:
    """One rule or announced comparison: verdict, what it decides, and the number."""

    verdict: str
    text: str
    said: str

    @property
    def mark(self) -> str:
        """A sign that is readable without colours."""
        return {"refuted": "✗", "not refuted": "✓", "undecided": "?"}.get(self.verdict, "•")


def rules(content: Content) -> list[RuleLine]:
    """Return every rule that would refute the hypothesis, with its verdict."""
    analysis, predictions = content.analysis, content.predictions
    results = [*getattr(analysis, "rules", ()), *getattr(predictions, "rules", ())]
    return [RuleLine(rule.verdict, rule.text, rule.said) for rule in results]


def comparisons(content: Content) -> list[RuleLine]:
    """Return every comparison that the specification announced, with its verdict."""
    return [
        RuleLine(
            _COMPARISONS.get(c.verdict, c.verdict),
            f"{c.metric}: {c.factor} {c.candidate} to {c.baseline}",
            c.verdict_text,
        )
        for c in content.analysis.comparisons
        if c.role == "effect"
    ]


def hypothesis_verdict(content: Content) -> str:
    """Return the verdict of the hypothesis: refuted if one rule is, not refuted if no rule is, else undecided."""
    verdicts = [rule.verdict for rule in rules(content)]
    if "refuted" in verdicts:
        return "refuted"
    if verdicts and all(verdict == "not refuted" for verdict in verdicts):
        return "not refuted"
    return "undecided" if verdicts else "not decided by a rule"
