"""A rule that refutes the hypothesis: metric, contrast, threshold and direction. `rules` reads it."""

from dataclasses import dataclass, field

from waylab.runfolder.words import labels_text
from waylab.spec import checks
from waylab.spec.checks import setting
from waylab.spec.findings import Levels

# Metrics of the trials as such, not of what was measured in them.
TRIAL_METRICS = ("failed_trials", "unsteady_trials")


@dataclass(frozen=True)
class Rule:
    """One rule: a value (`of` alone), a ratio (`of` and `to`), an effect (`factor`) or an error (`model`)."""

    text: str = setting(checks.text, "")
    metric: str = setting(checks.text, "")
    factor: str = setting(checks.text, "")
    model: str = setting(checks.text, "")
    below: float | None = setting(checks.number(0, 1e12), None)
    above: float | None = setting(checks.number(0, 1e12), None)
    of: Levels = field(default_factory=dict)
    to: Levels = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of quantity that the rule tests: ratio, value, effect, trials or model."""
        if self.metric in TRIAL_METRICS:
            return "trials"
        if self.factor:
            return "effect"
        if self.model:
            return "model"
        return "ratio" if self.to else "value"

    def in_words(self) -> str:
        """Return the rule as a sentence that names the levels."""
        limits = [f"less than {self.below:g}"] if self.below is not None else []
        limits += [f"more than {self.above:g}"] if self.above is not None else []
        limit, of = " or ".join(limits), _words(self.of)
        if self.kind == "effect":
            return f"another factor has a larger effect on {self.metric} than {self.factor}"
        if self.kind == "trials":
            return f"the share of {self.metric.replace('_', ' ')} is {limit}"
        if self.kind == "model":
            return f"the median error of the model {self.model} in {self.metric} is {limit}"
        if self.kind == "ratio":
            return f"{self.metric} with {of} is {limit} times that with {_words(self.to)}"
        return f"{self.metric}{f' with {of}' if of else ''} is {limit}"


def _words(levels: Levels) -> str:
    return ", ".join(labels_text(factor, labels) for factor, labels in levels.items())
