"""`analysis.json`: everything that was computed from the trials of a run."""

from msgspec import Struct, field

from waylab.runfolder.effects import Factorial
from waylab.runfolder.headline import Headline
from waylab.runfolder.numbers import Interval, NullArm, Percentiles, PositiveControl, Ratio, WorstLaw
from waylab.runfolder.rules import RuleResult
from waylab.runfolder.run import (
    AnnouncedComparison,
    LoadSettings,
    Settings,
    SystemDescription,
    check_described,
    described,
)
from waylab.runfolder.stopping import Stopping
from waylab.runfolder.trial import TestbedFacts
from waylab.runfolder.trial_numbers import (
    STAGES,
    TOTAL,
    AnalysedTrial,
    OperationStages,
    ProxyView,
    QueueLength,
    ServerView,
)


class Place(Struct, frozen=True, kw_only=True):
    """Where a configuration stands in a figure."""

    x: float | str  # value of the factor along the figure
    series: str  # name of the line


class View(Struct, frozen=True, kw_only=True):
    """One factor along a figure, the others being its lines."""

    x: str | None  # name of the factor; null without factors
    numeric: bool  # whether its levels are numbers
    logarithmic: bool  # whether the axis is logarithmic
    levels: list[float | str]  # the levels in order
    series: list[str]  # names of the other factors


class Axes(View, frozen=True, kw_only=True):
    """The factor along the figures, and every other factor with several levels as a view of its own."""

    views: list[View]  # one for each further factor


class Operation(Struct, frozen=True, kw_only=True):
    """The response time of one operation over the trials of a configuration."""

    count: int  # requests of all trials
    response_mean_ns: Interval  # mean over trials in nanoseconds
    percentiles_ns: Percentiles  # of all requests of all trials, in nanoseconds
    percentile_intervals_ns: dict[str, Interval]  # geometric means over trials, in nanoseconds


class DistributionPoint(Struct, frozen=True, kw_only=True):
    """One point of a cumulative distribution."""

    share: float  # share of the requests
    response_ns: int  # response time that this share does not exceed, in nanoseconds


class ShapeBar(Struct, frozen=True, kw_only=True):
    """One bar of a histogram of response times."""

    from_ns: float  # left edge in nanoseconds
    to_ns: float  # right edge in nanoseconds
    density_per_ms: float  # share of all requests per millisecond
    gamma_per_ms: float | None  # density of the gamma fit over the same bar


class GammaFit(Struct, frozen=True, kw_only=True):
    """A gamma distribution fitted to response times."""

    shape: float  # shape parameter
    scale_ns: float  # scale parameter in nanoseconds
    distance: float  # largest distance of the distribution functions


class Shape(Struct, frozen=True, kw_only=True):
    """The histogram of response times up to their 99th percentile."""

    bars: list[ShapeBar]  # bars of equal width
    gamma: GammaFit | None  # null if no gamma distribution can be fitted
    text: str  # the fit in words, or why there is none


class Configuration(Struct, frozen=True, kw_only=True):
    """One configuration over its trials."""

    name: str  # levels of all factors
    levels: dict[str, str]  # label of the level, by factor
    x: float | str  # value of the factor along the figures
    series: str  # name of the line
    places: dict[str, Place]  # position in each further view, by factor
    system: Settings  # settings of the system
    load: LoadSettings  # settings of the load
    server: str | None  # memcached, embedded or another server
    trials: int  # number of trials
    used: int  # number of trials that were used
    think_mean_s: float | None  # mean think time in seconds; null if no trial was used
    throughput_per_s: Interval  # requests per second
    largest_second_per_s: float | None  # most requests in a whole second of any trial
    interactive_law_error: Interval  # X (R + Z) / N - 1
    hit_ratio: Interval  # keys found, as a share of the keys read
    miss_ratio: Interval  # keys not found, as a share of the keys read
    queue_length: QueueLength[Interval] | None  # null without records of a proxy or service
    generator_cpu_share: Interval  # CPU time of the load generator, as a share of its threads' time
    busy_share: Interval  # time that was not idle, as a share of the machine
    laws: list[WorstLaw]  # operational laws, each in the trial that is furthest off
    operations: dict[str, Operation]  # by operation, `all` first
    distribution: list[DistributionPoint]  # of all requests of all trials
    shapes: dict[str, Shape | None]  # by operation; null for few requests
    cpu_per_request_ns: dict[str, Interval]  # nanoseconds by role, `total`, `interrupts`
    link_utilisation: dict[str, Interval]  # share by host and direction, for limited links
    database: dict[str, Interval]  # commits, WAL bytes and so on per request and per message
    stages: dict[str, OperationStages[Interval]]  # by operation, `all` first
    proxy_view: ProxyView[Interval] | None  # null without records of both sides
    server_view: ServerView[Interval] | None  # null without records of both sides

    def __post_init__(self) -> None:
        """Check the description, and the names of the stages."""
        check_described(self.system)
        for operation, found in self.stages.items():
            if set(found.stages) != {*STAGES, TOTAL}:
                raise ValueError(f"stages.{operation} must have exactly {' '.join((*STAGES, TOTAL))}")

    @property
    def description(self) -> SystemDescription:
        """The system in words that do not depend on which system it is."""
        return described(self.system)


class Stratum(Ratio, frozen=True, kw_only=True):
    """A comparison at one combination of the other factors' levels."""

    levels: str  # the levels in words


class Comparison(AnnouncedComparison, frozen=True, kw_only=True):
    """An announced comparison, carried out."""

    verdict: str  # equivalent, better, worse or undecided
    verdict_text: str  # the verdict with its evidence
    baseline_value: Interval  # the metric at the baseline
    candidate_value: Interval  # the metric at the candidate
    pairs: int  # number of pairs of trials
    overall: Ratio  # over all levels of the other factors
    strata: list[Stratum]  # at each combination of the other factors' levels
    over: str = ""  # levels of the other factors over which the ratio is averaged; empty without any
    null: NullArm | None = None  # the check of a null arm
    control: PositiveControl | None = None  # the check of a positive control


class SteadyState(Struct, frozen=True, kw_only=True):
    """Whether trials had reached a steady state when measuring started."""

    judged: int  # trials that were long enough to decide
    late: int  # trials that reached it only later
    unsteady: int  # trials that did not reach it
    text: str  # the result in words


class Bend(Struct, frozen=True, kw_only=True):
    """A load at which a curve bends."""

    load: float | None  # the load; null if there is no bend
    low: float | None  # lower end of the 95 % interval
    high: float | None  # upper end of the 95 % interval
    found_share: float | None  # share of the resampled curves that have a bend
    text: str  # the result in words


class Curve(Struct, frozen=True, kw_only=True):
    """Where the curve of one line bends."""

    series: str  # name of the line
    x: str  # factor along the figures
    loads: list[float]  # the measured loads
    knee: Bend | None  # smallest load with 90 % of the best throughput
    crossing: Bend | None = None  # (R_min + Z) X_max of a closed loop, where the asymptotes cross
    first_slow: Bend | None  # first load whose 95th percentile is twice that of the smallest load


class Change(Struct, frozen=True, kw_only=True):
    """One metric of a configuration relative to the base case."""

    name: str  # name of the configuration
    x: float | str  # value of the factor along the figures
    series: str  # name of the line
    metric: str  # name of the metric
    blocks: int  # number of blocks with a pair
    ratio: float  # geometric mean of the blocks' ratios
    low: float | None  # lower end of the 95 % interval
    high: float | None  # upper end of the 95 % interval
    p_family: float | None = None  # p-value of ratio 1, adjusted for the whole table (Holm)
    excludes_1: bool | None  # whether it differs from 1, at 5 % for the whole table


class Changes(Struct, frozen=True, kw_only=True):
    """Every configuration relative to the base case, which has the first level of every factor."""

    base: str | None  # name of the base case
    metrics: dict[str, str]  # titles of the metrics by name
    entries: list[Change]  # by configuration and metric
    family: int = 0  # number of ratios with an interval, for which p_family is adjusted
    text: str  # why there are no entries


class Family(Struct, frozen=True, kw_only=True):
    """Tests that are judged together: the chance of one false alarm among all of them is at most 5 % (Holm)."""

    name: str  # what the tests are about
    size: int  # number of tests


# Half-width of the 95 % interval that a ratio or value of a study should have, as a share.
PRECISION_AIM = 0.05


class FindingResult(Struct, frozen=True, kw_only=True):
    """One finding of a published study beside ours."""

    text: str  # the finding in the study's words
    kind: str  # ratio, value, plateau, stage, link or effect
    metric: str  # name of the metric
    of: dict[str, list[str]]  # left side: labels by factor
    to: dict[str, list[str]]  # right side of a ratio: labels by factor
    theirs: float | None  # the study's number; null if only a direction is known
    ours: float | None = None  # our number; null if it was not measured
    low: float | None = None  # lower end of the 95 % interval; smallest over blocks for a plateau
    high: float | None = None  # upper end of the 95 % interval; largest over blocks for a plateau
    blocks: int = 0  # number of blocks
    said: str = ""  # what else was found, in words
    p: float | None = None  # p-value of the decision, adjusted for all findings of the study (Holm)
    rule: str  # the rule that decides
    reproduced: str  # yes, no, undecided or not run
    reason: str = ""  # why ours differs, in one sentence
    blocks_needed: int | None = None  # blocks that decide an undecided finding; null if unknown
    blocks_for_aim: int | None = None  # blocks for a 95 % interval of ±5 %; null if unknown


class PublishedResults(Struct, frozen=True, kw_only=True):
    """The findings of a published study beside ours."""

    source: str  # name of the study
    findings: list[FindingResult]  # in the order of the specification
    counts: dict[str, int]  # number of findings by result
    family: int = 0  # number of findings with an interval, for which their decisions are adjusted (Holm)


class TestbedSummary(TestbedFacts, frozen=True, kw_only=True):
    """Where a run took place."""

    cores_described: float | None = None  # cores of all hosts of the largest trial
    oversubscribed: bool = False  # whether the hosts have more cores than the machine


class Analysis(Struct, frozen=True, kw_only=True):
    """All numbers of a run."""

    format: str  # waylab-analysis/1
    waylab: str  # version of the lab
    name: str  # name of the experiment
    complete: bool  # whether every trial of the plan was run
    axes: Axes  # the factors along the figures
    stopping: Stopping | None  # decisions of the stopping rule
    testbed: TestbedSummary  # where the run took place
    trials: list[AnalysedTrial]  # in the order of the plan
    trials_used: int  # number of trials that passed every gate
    trials_total: int  # number of trials of the plan
    configurations: list[Configuration]  # in the order of the figures
    comparisons: list[Comparison]  # announced comparisons
    steady_state: SteadyState  # whether trials had reached a steady state
    curves: list[Curve]  # where curves bend
    changes: Changes  # every configuration relative to the base case
    factorial: Factorial  # effects of the factors
    published: PublishedResults | None  # findings of a published study beside ours
    headline: Headline = field(default_factory=Headline)  # the answer in sentences, and the limiting resource
    rules: list[RuleResult] = field(default_factory=list)  # evaluated; rules about models: predictions.json
    answer: list[str] = field(default_factory=list)  # the announced comparisons in words that name the levels
    families: list[Family] = field(default_factory=list)  # tests that are judged together
    facts: list[str] = field(default_factory=list)  # what was measured, in sentences

    def __post_init__(self) -> None:
        """Check that each announced comparison of two levels has its sentence, once they are written."""
        effects = sum(one.role == "effect" for one in self.comparisons)
        if self.answer and len(self.answer) != effects:
            raise ValueError(f"answer has {len(self.answer)} sentences for {effects} announced comparisons")
