"""`compare.json`: two sides, for example two versions of a program, interleaved in one run or in separate runs."""

from msgspec import Struct

from waylab.runfolder.numbers import Ratio


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One run of a side; interleaved sides share one run."""

    directory: str  # run folder
    created_utc: str  # when the run was started
    arm: str  # the side's level or settings in an interleaved run, else ""
    version: str | None  # version of waystage
    sha256: str | None  # hash of waystage
    commit: str | None  # commit that waystage was built from
    trials_used: int  # number of the side's trials that passed every gate
    trials_total: int  # number of the side's trials of the plan


class ConfigurationRatio(Ratio, frozen=True, kw_only=True):
    """The ratio of one configuration."""

    name: str  # name of the configuration


class MetricComparison(Struct, frozen=True, kw_only=True):
    """One metric of both sides."""

    metric: str  # name of the metric
    overall: Ratio  # over all configurations
    verdict: str  # equivalent, better, worse, no worse, undecided or not replicated
    text: str  # the verdict with its evidence
    configurations: list[ConfigurationRatio]  # each configuration


class RunComparison(Struct, frozen=True, kw_only=True):
    """Two sides with a verdict."""

    format: str  # waylab-compare/2
    waylab: str  # version of the lab
    name: str  # name of the experiment
    question: str  # what the experiment asks
    interleaved: bool  # whether both sides ran alternately in one run
    baseline: list[ComparedRun]  # the old version
    candidate: list[ComparedRun]  # the new version
    margin: float  # largest loss that is still "no worse", as a share
    metrics: list[MetricComparison]  # in the order in which they were asked for
    verdict: str  # worse, no worse, undecided or not replicated
    withheld: str = ""  # reason that forbids "no worse", such as failed trials of the candidate; "" for none
    notes: list[str]  # what weakens the comparison
