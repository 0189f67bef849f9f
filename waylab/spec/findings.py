"""What a study found, one finding at a time, as frozen dataclasses: ratios, knees, bottlenecks, and what matters most.

Rates are compared only where a link sets them. Read by `published`; computes nothing.
"""

from dataclasses import dataclass, field

from waylab.spec import checks
from waylab.spec.checks import setting

# Levels by factor; a configuration is meant when it has one of the levels of every factor that is named.
Levels = dict[str, tuple[str, ...]]
KINDS = ("ratio", "value", "plateau", "stage", "link", "effect")


@dataclass(frozen=True)
class Finding:
    """One thing that the study found, and what of ours corresponds to it."""

    text: str = setting(checks.text, "")
    kind: str = setting(checks.one_of(*KINDS), "ratio")
    # throughput_per_s, response_mean_ns and so on, the latter also of one operation: set.response_mean_ns.
    metric: str = setting(checks.text, "")
    to_metric: str = setting(checks.text, "")
    theirs: float = setting(checks.number(0, 1e9, above=True), 0.0)
    # A share by which ours may differ from theirs; otherwise the side of 1 must be the same.
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
