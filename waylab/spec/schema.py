"""A specification and its parts as frozen dataclasses; each field carries its default and its check.

`experiments/demo.toml` explains every key.
"""

from dataclasses import dataclass, field, replace

from waylab.spec import checks
from waylab.spec.checks import setting
from waylab.spec.factors import Factor
from waylab.spec.findings import Published
from waylab.spec.hosts import Assignment, TestbedSettings
from waylab.spec.refutation import Rule
from waylab.spec.settings import Load
from waylab.spec.systems import System

# Levels of factors by their labels: `(("clients", ("1",)), ("workers", ("8", "64")))`.
Pattern = tuple[tuple[str, tuple[str, ...]], ...]


# The covariate of a design whose contrasts are adjusted for the speed of the machine.
MACHINE_SPEED = "machine_speed"


@dataclass(frozen=True)
class Design:
    """Which combinations of levels are run, how often and in which order."""

    kind: str = setting(checks.one_of("crossed", "listed", "2k", "2k-p"), "crossed")
    generators: tuple[str, ...] = setting(checks.texts, ())
    exclude: tuple[Pattern, ...] = ()
    trials: tuple[Pattern, ...] = ()
    blocks: int = setting(checks.whole(1, 1000), 3)
    seed: int = setting(checks.whole(0), 1)
    order: str = setting(checks.one_of("random", "mirrored"), "random")
    covariate: str = setting(checks.one_of("", MACHINE_SPEED), "")


@dataclass(frozen=True)
class StoppingSettings:
    """The precision of the metrics after which no further block is run; a precision of 0 is no rule."""

    precision: float = setting(checks.number(0, 1), 0.0)
    metrics: tuple[str, ...] = setting(checks.metrics, ("throughput_per_s",))
    blocks_min: int = setting(checks.whole(3, 1000), 4)
    blocks_max: int = setting(checks.whole(3, 1000), 12)
    budget_s: float = setting(checks.number(0, 864_000), 0.0)


@dataclass(frozen=True)
class PredictionSplit:
    """The configurations that models are fitted to, and those that they are evaluated on."""

    calibrate: tuple[Pattern, ...] = ()
    held_out: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class Scale:
    """The changes of another scale than the full one; `levels` are the remaining levels."""

    blocks: int | None = setting(checks.whole(1, 1000), None)
    test_time_s: float | None = setting(checks.number(0, 86400, above=True), None)
    warm_up_s: float | None = setting(checks.number(0, 3600), None)
    precision: float | None = setting(checks.number(0, 1, above=True), None)
    blocks_min: int | None = setting(checks.whole(3, 1000), None)
    blocks_max: int | None = setting(checks.whole(3, 1000), None)
    budget_s: float | None = setting(checks.number(0, 864_000), None)
    levels: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Gates:
    """The limits that a trial must meet to be used; a looser limit than the default needs a reason."""

    generator_cpu_max: float = setting(checks.number(0, 1.5, above=True), 0.8)
    foreign_cpu_max: float = setting(checks.number(0, 1, above=True), 0.2)
    cpu_wait_max: float = setting(checks.number(0, 1, above=True), 0.05)
    steal_max: float = setting(checks.number(0, 1, above=True), 0.1)
    hit_ratio_min: float = setting(checks.number(0, 1), 0.999)
    interactive_law_max: float = setting(checks.number(0, 10, above=True), 0.03)
    dropped_records_max: int = setting(checks.whole(0), 0)
    link_error_max: float = setting(checks.number(0, 1, above=True), 0.05)
    errors_max: int = setting(checks.whole(0), 0)
    verification: bool = setting(checks.flag, True)
    steady_state: bool = setting(checks.flag, True)
    reason: str = setting(checks.text, "")

    def loosened(self) -> list[str]:
        """Name the limits that are looser than the defaults."""
        default = Gates()
        names = [
            name
            for name in (
                "generator_cpu_max",
                "foreign_cpu_max",
                "cpu_wait_max",
                "steal_max",
                "interactive_law_max",
                "dropped_records_max",
                "link_error_max",
            )
            if getattr(self, name) > getattr(default, name)
        ]
        names += ["errors_max"] if self.errors_max > default.errors_max else []
        names += ["hit_ratio_min"] if self.hit_ratio_min < default.hit_ratio_min else []
        names += [name for name in ("verification", "steady_state") if not getattr(self, name)]
        return names

    def usual(self) -> dict[str, float]:
        """Return the defaults of the loosened limits by name."""
        default = Gates()
        return {name: getattr(default, name) for name in self.loosened()}


@dataclass(frozen=True)
class Compare:
    """Two levels of one factor, compared in pairs within blocks."""

    factor: str = setting(checks.text, "")
    baseline: str = ""
    candidate: str = ""
    metric: str = setting(checks.metric, "throughput_per_s")
    margin: float = setting(checks.number(0, 10), 0.0)
    role: str = setting(checks.one_of("effect", "null", "control"), "effect")
    added: str = setting(checks.duration_text, "")
    ratio: float = setting(checks.number(0, 1000), 0.0)


@dataclass(frozen=True)
class ReportOptions:
    """Options of the report."""

    x: str = setting(checks.text, "")
    threats: tuple[str, ...] = setting(checks.texts, ())


@dataclass(frozen=True)
class TrialSettings:
    """The settings of a trial, all of which a level of a factor may change."""

    system: System = field(default_factory=System)
    load: Load = field(default_factory=Load)
    assignment: Assignment = field(default_factory=Assignment)

    def assigned(self) -> "TrialSettings":
        """Return the settings with the hosts of the roles that the specification describes itself."""
        hosts = {name: role.hosts for name, role in self.system.roles.items()}
        return replace(self, assignment=replace(self.assignment, roles=hosts)) if hosts else self


@dataclass(frozen=True)
class Spec:
    """One experiment."""

    name: str = setting(checks.text, "")
    question: str = setting(checks.text, "")
    hypothesis: str = setting(checks.text, "")
    refuted_by: tuple[Rule, ...] = ()
    system: System = field(default_factory=System)
    load: Load = field(default_factory=Load)
    testbed: TestbedSettings = field(default_factory=TestbedSettings)
    assignment: Assignment = field(default_factory=Assignment)
    factors: tuple[Factor, ...] = ()
    design: Design = field(default_factory=Design)
    stopping: StoppingSettings = field(default_factory=StoppingSettings)
    predict: PredictionSplit = field(default_factory=PredictionSplit)
    scales: tuple[tuple[str, Scale], ...] = ()
    gates: Gates = field(default_factory=Gates)
    compare: tuple[Compare, ...] = ()
    published: Published = field(default_factory=Published)
    report: ReportOptions = field(default_factory=ReportOptions)

    @property
    def settings(self) -> TrialSettings:
        """The settings of a trial before any level changes them."""
        return TrialSettings(self.system, self.load, self.assignment)
