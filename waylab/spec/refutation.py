"""A rule that refutes the hypothesis: metric, contrast, threshold and direction. `rules` reads it."""

from dataclasses import dataclass, field

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
