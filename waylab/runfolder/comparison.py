"""`compare.json`: two runs of one specification, for example with two versions of a program."""

from msgspec import Struct

from waylab.runfolder.numbers import Ratio


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    directory: str  # run folder
    created_utc: str  # when the run was started
    version: str | None  # version of waystage
    sha256: str | None  # hash of waystage
    commit: str | None  # commit that waystage was built from
    trials_used: int  # number of trials that passed every gate
    trials_total: int  # number of trials of the plan


class ConfigurationRatio(Ratio, frozen=True, kw_only=True):
    """The ratio of one configuration."""

    name: str  # name of the configuration


class MetricComparison(Struct, frozen=True, kw_only=True):
    """One metric of both runs."""

    metric: str  # name of the metric
    overall: Ratio  # over all configurations
    verdict: str  # equivalent, better, worse or undecided
    text: str  # the verdict with its evidence
    configurations: list[ConfigurationRatio]  # each configuration


class RunComparison(Struct, frozen=True, kw_only=True):
    """Two runs, paired by configuration and block."""

    format: str  # waylab-compare/1
    waylab: str  # version of the lab
    name: str  # name of the experiment
    question: str  # what the experiment asks
    baseline: ComparedRun  # the old version
    candidate: ComparedRun  # the new version
    margin: float  # margin of the equivalence test, as a share
    confidence: float  # confidence level of each interval
    pairs: int  # number of pairs of trials
    metrics: list[MetricComparison]  # in the order in which they were asked for
    verdict: str  # worse, no worse or undecided
    notes: list[str]  # what weakens the comparison
