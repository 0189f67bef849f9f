"""`run.json`: the specification of a run, resolved, and its plan. Written once, when the run folder is made."""

import re
from typing import Any

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from waylab.runfolder.gate_words import gate_limit, gate_name, limit_gate
from waylab.runfolder.rules import RefutationRule

# Settings by name as the specification has them, nested; a system of the user's own has settings of its own.
Settings = dict[str, Any]
# One setting: a number, a word or a list of them.
Value = bool | int | float | str | list[str] | None

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class FactorLevel(Struct, frozen=True, kw_only=True):
    """One level of a factor."""

    label: str  # name of the level, for example "16"
    settings: dict[str, Value]  # the settings of this level, by dotted key


class FactorLevels(Struct, frozen=True, kw_only=True):
    """A factor and its levels, in the order of the specification."""

    name: str  # short name of the factor
    key: str | None  # dotted key of the setting, if every level sets only this one
    levels: list[FactorLevel]  # the first level is the base case


class DesignSettings(Struct, frozen=True, kw_only=True):
    """Which combinations of levels are run, how often, and in which order."""

    kind: str  # crossed, listed, 2k or 2k-p
    generators: list[str]  # words that define a fraction of a two-level design
    exclude: list[dict[str, list[str]]]  # combinations that are left out: labels by factor
    trials: list[dict[str, list[str]]]  # combinations of a listed design: labels by factor
    blocks: int  # number of blocks
    seed: int  # seed of the order within the blocks
    order: str  # random or mirrored
    covariate: str = ""  # machine_speed, or empty: what contrasts are adjusted for


class GateLimits(Struct, frozen=True, kw_only=True):
    """What a trial must meet to be used."""

    generator_cpu_max: float  # CPU time of the load generator, as a share of its threads' time
    foreign_cpu_max: float  # CPU time of other programs, as a share of the machine
    steal_max: float  # steal time, as a share of the machine
    hit_ratio_min: float  # keys found, as a share of the keys read
    interactive_law_max: float  # residual of the interactive response time law
    dropped_records_max: int  # records that were dropped or lost
    link_error_max: float  # deviation of an emulated link from its settings, as a share
    errors_max: int  # error replies
    verification: bool  # whether wrong, torn or stale values fail the trial
    steady_state: bool = True  # whether a trial without a steady state fails
    reason: str  # why a limit is looser than its default
    loosened: list[str]  # names of the limits that are looser than their defaults
    cpu_wait_max: float = 0.05  # time for which a host waited for a CPU that its quota allowed, as a share
    usual: dict[str, bool | float] = field(default_factory=dict)  # defaults of the loosened limits, by name
    imported: bool = False  # whether the results were imported, so that some gates cannot be judged

    @property
    def passed(self) -> str:
        """What a trial that is used did, in words: it passed every gate, or the gates as loosened."""
        if not self.loosened:
            return "passed every gate that can be judged" if self.imported else "passed every gate"
        return f"passed the gates, of which some were loosened: {'; '.join(self.loosened_limits)}"

    @property
    def loosened_limits(self) -> list[str]:
        """Every limit that is looser than its default, with its unit, beside the default."""
        return [self._limit(name) for name in self.loosened]

    def _limit(self, name: str) -> str:
        value, gate = getattr(self, name), limit_gate(name)
        if isinstance(value, bool):
            return f"{gate_name(gate)} (switched off)"
        usual = f" instead of {gate_limit(gate, self.usual[name])}" if name in self.usual else ""
        return f"{gate_name(gate)} {gate_limit(gate, value)}{usual}"


class AnnouncedComparison(Struct, frozen=True, kw_only=True):
    """A comparison of two levels of a factor that the specification announces."""

    factor: str  # name of the factor
    baseline: str  # label of the baseline's level
    candidate: str  # label of the candidate's level
    metric: str  # the compared metric, for example throughput_per_s
    margin: float  # margin of the equivalence test, as a share; 0 is no test
    role: str  # effect, null (a level against itself) or control (a known amount was added)
    added: str  # the duration that was added to a control, as written; "" for none
    ratio: float  # the expected ratio of a control; 0 for none
    added_ns: int | None  # the duration that was added to a control, in nanoseconds


class PublishedFinding(Struct, frozen=True, kw_only=True):
    """One finding of a published study, and the configurations of this run that correspond to it."""

    text: str  # the finding in the study's words
    kind: str  # ratio, value, plateau, stage, link or effect
    metric: str  # metric of the left side
    to_metric: str  # metric of the right side of a ratio; "" for the same
    theirs: float  # the study's number, in the metric's unit; 0 if only a direction is known
    within: float  # share by which ours may differ; 0 if only the side of 1 counts
    expect: str  # above or below 1, if only a direction is known
    factor: str  # factor of a plateau or of an effect
    operation: str  # operation of a stage
    stage: str  # name of a stage
    place: int  # rank of the stage by length, from 1
    share: float  # share of an effect or of a link
    link: str  # name of a link, for example "server up"
    of: dict[str, list[str]]  # left side: labels by factor
    to: dict[str, list[str]]  # right side of a ratio: labels by factor
    reason: str = ""  # why ours differs, in one sentence


class PublishedStudy(Struct, frozen=True, kw_only=True):
    """The findings of a published study that the experiment repeats."""

    source: str  # name of the study
    findings: list[PublishedFinding]  # empty if the experiment repeats no study


class ReportSettings(Struct, frozen=True, kw_only=True):
    """What the report shows beyond its defaults."""

    x: str  # factor along the figures; "" leaves the choice to the analysis
    threats: list[str]  # threats to validity that the author adds


class SystemDescription(Struct, frozen=True, kw_only=True):
    """What analysis, models and report need to know of a system, whatever system it is."""

    name: str  # name of the system, for example proxy
    protocol: (
        str  # what the load speaks: memcached or messages; of another generator, the name of its adapter
    )
    programs: dict[str, int]  # number of programs by role, in the order of a request's path; without the load
    load_reaches: str  # one or all: the programs of the first role that each load generator connects to
    middle: str  # word for what stands between the load and the servers: proxy or service
    stage_program: str | None  # program whose records have the stages; null if none has
    stages: list[str]  # names of the stages, in order
    operations: list[str]  # operations that are shown apart
    record_files: dict[
        str, int
    ]  # record files that each program must leave; cache only if the server is embedded
    hit_ratio: bool  # whether a read that finds nothing is a fault
    keeps_order: bool  # whether the system promises to keep the order of messages
    titles: dict[str, str]  # word for a program in drawings, by role
    shown: dict[str, list[list[str]]]  # label and dotted key of the settings that describe a program, by role


class ExperimentSpec(Struct, frozen=True, kw_only=True):
    """The specification of an experiment, with all defaults filled in."""

    name: str  # name of the experiment
    question: str  # what is asked
    hypothesis: str  # what the author expects
    refuted_by: list[RefutationRule]  # rules that refute the hypothesis
    system: Settings  # settings of the system under test
    load: Settings  # settings of the load
    testbed: Settings  # kind of testbed and its hosts
    assignment: dict[str, list[str]]  # names of hosts by role
    factors: list[FactorLevels]  # what is varied
    design: DesignSettings  # which combinations are run
    stopping: Settings  # rule that ends the run early
    predict: Settings  # configurations for calibration and held-out ones
    gates: GateLimits  # what a trial must meet
    compare: list[AnnouncedComparison]  # comparisons that were announced before there was data
    published: PublishedStudy  # findings of a published study
    report: ReportSettings  # options of the report

    def __post_init__(self) -> None:
        """Check the description."""
        check_described(self.system)

    @property
    def description(self) -> SystemDescription:
        """The system in words that do not depend on which system it is."""
        return described(self.system)

    @property
    def refutation(self) -> str:
        """The rules that refute the hypothesis, in one line."""
        return "; ".join(rule.text for rule in self.refuted_by)


class LoadSettings(Struct, frozen=True, kw_only=True):
    """The load of a trial."""

    clients: int  # number of clients over all load generators
    threads: int = 1  # threads of each load generator
    ratio: str = "0:1"  # sets to gets
    operations: str = ""  # requests to a message service, by the load generator's names
    prefill: int = 0  # messages or keys that are stored before the load
    protocol: str = "text"  # text or meta
    rate: float = 0.0  # offered rate in requests per second; 0 for a closed loop
    arrivals: str = "poisson"  # distribution of the gaps between arrivals in an open loop
    data_size: int | str = 128  # size of values in bytes, or its distribution
    key_size: int | str = ""  # size of keys in bytes, or its distribution; "" for the shortest
    key_pattern: str = "uniform"  # distribution of the keys that are requested
    key_minimum: int = 0  # smallest number of a key
    key_maximum: int = 10000  # largest number of a key
    multi_key_get: int = 1  # keys of each get
    pipeline: int = 1  # requests in flight of each client
    think_time: str = "none"  # think time as written
    think_mean_s: float = 0.0  # mean think time in seconds
    test_time_s: float = 0.0  # length of the measured window, in seconds
    warm_up_s: float = 0.0  # time before the measured window, in seconds
    sample: int = 1  # one record is kept for this many requests

    def same_but_for_clients(self, other: "LoadSettings") -> bool:
        """Return whether two loads differ in nothing but their number of clients."""
        return self == replace(other, clients=self.clients)


class PlannedTrial(Struct, frozen=True, kw_only=True):
    """One trial as it was planned: one configuration in one block."""

    id: str  # name of the trial and of its folder
    order: int  # position in the plan, from 1
    block: int  # number of the block, from 1
    configuration: str  # name of the configuration
    levels: dict[str, str]  # label of the level, by factor
    system: Settings  # settings of the system
    load: LoadSettings  # settings of the load
    seed: int  # seed of the load generator
    assignment: dict[str, list[str]]  # names of hosts by role
    role: str  # calibration, held-out or ""
    expected_s: float  # expected duration in seconds
    time_scale: float = 1.0  # seconds of this trial for one second of the described hosts
    covariate: str = ""  # what is measured to adjust contrasts: machine_speed, or empty

    def __post_init__(self) -> None:
        """Check the name of the trial's folder, and the description."""
        check_file_name(self.id)
        check_described(self.system)

    @property
    def description(self) -> SystemDescription:
        """The system in words that do not depend on which system it is."""
        return described(self.system)


class Run(Struct, frozen=True, kw_only=True):
    """A run: what is asked, and all its trials in the order in which they run."""

    format: str  # waylab-run/2
    waylab: str  # version of the lab
    name: str  # name of the experiment
    created_utc: str  # when the run was started, as text
    created_unix_s: float  # when the run was started, in seconds since 1970
    scale: str  # full, quick or another scale of the specification
    quick: bool  # whether the run is smaller than the full scale
    spec_path: str  # path of the specification as it was given
    spec: ExperimentSpec  # the specification with all defaults filled in
    expected_s: float  # expected duration of the plan, in seconds
    plan: list[PlannedTrial]  # the trials in order
    reproduce: list[str]  # commands that repeat the run

    def __post_init__(self) -> None:
        """Check the names that become names of files."""
        check_file_name(self.name)


def check_file_name(name: str) -> None:
    """Raise ValueError unless a name is safe as a part of a path: letters, digits, dots, dashes, no dot in front."""
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} should be letters, digits, dots and dashes: it names a file")


def described(system: Settings) -> SystemDescription:
    """Return the description that stands among the settings of a system."""
    return convert(system["description"], SystemDescription)


def check_described(system: Settings) -> None:
    """Raise ValueError unless the settings of a system, which no type describes, have a correct description."""
    try:
        described(system)
    except (KeyError, ValidationError) as error:
        raise ValueError(f"system.description: {error}") from None


def lookup(content: Settings, key: str) -> Any:
    """Return the setting with a dotted key; None if there is none of that name."""
    value: Any = content
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value
