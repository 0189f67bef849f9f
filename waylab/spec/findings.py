"""The findings of a published study as frozen dataclasses: ratios, knees, bottlenecks, largest effects.

Rates are compared only where a link limits them. `published` reads them; computes nothing.
"""

from dataclasses import dataclass, field

from waylab.spec import checks
from waylab.spec.checks import setting

# Levels by factor. They select the configurations that have one of the levels of every factor named.
Levels = dict[str, tuple[str, ...]]
KINDS = ("ratio", "value", "plateau", "stage", "link", "effect")


@dataclass(frozen=True)
class Finding:
    """One finding of the study, and the configurations of ours that correspond to it."""

    text: str = setting(checks.text, "")
    # Why ours differs, or why it is undecided: one sentence that names a measurement.
    reason: str = setting(checks.text, "")
    kind: str = setting(checks.one_of(*KINDS), "ratio")
    # throughput_per_s, response_mean_ns and so on, the latter also of one operation: set.response_mean_ns.
    metric: str = setting(checks.text, "")
    to_metric: str = setting(checks.text, "")
    theirs: float = setting(checks.number(0, 1e9, above=True), 0.0)
    # The share by which ours may differ from theirs. With 0, both must lie on the same side of 1.
    within: float = setting(checks.number(0, 10), 0.0)
    expect: str = setting(checks.one_of("above", "below"), "")
    factor: str = setting(checks.text, "")
    operation: str = setting(checks.one_of("all", "get", "set"), "all")
    stage: str = setting(checks.text, "")
    place: int = setting(checks.whole(1, 10), 1)
    share: float = setting(checks.number(0, 1), 0.0)
    link: str = setting(checks.text, "")
    of: Levels = field(default_factory=dict)
    to: Levels = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """The findings of one source; without any, nothing is compared."""

    source: str = ""
    findings: tuple[Finding, ...] = ()
