"""Two runs of one specification, say of two versions of a program: paired by configuration and block, with a verdict.

Reads the analyses of both; knows nothing of their trials' files.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import asdict

from waylab import __version__
from waylab.analysis.across.metrics import metric_of
from waylab.analysis.across.verdicts import BETTER, EQUIVALENT, WORSE, verdict, verdict_sentence
from waylab.analysis.run import read_analysis
from waylab.analysis.statistics.pairs import paired_ratio
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis
from waylab.runfolder.comparison import ComparedRun, ConfigurationRatio, MetricComparison, RunComparison
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import read, read_run
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.run import Run
from waylab.runfolder.trial_numbers import TrialNumbers

METRICS = ("throughput_per_s", "response_mean_ns", "cpu_per_request_ns.total")
MARGIN = 0.05
_LEVEL = 0.05
_KNOWN = re.compile(
    r"throughput_per_s|response_mean_ns|response_p(50|90|95|99)_ns"
    r"|cpu_per_request_ns\.(total|load|proxy|backends|messages|database|interrupts)"
    r"|(commits|wal_bytes|wal_syncs)_per_(request|message)"
)
_KNOWN_WORDS = (
    "throughput_per_s, response_mean_ns, response_p50_ns (_p90_, _p95_, _p99_), "
    "cpu_per_request_ns.total (.load, .proxy, .backends, .messages, .database, .interrupts), "
    "commits_per_request, wal_bytes_, wal_syncs_ (_per_message)"
)
# Facts of the environment that make two runs comparable.
_SAME = ("processor", "kernel", "cores_usable", "governor")


@dataclass(frozen=True)
class _Side:
    """The files of one of the two runs."""

    directory: Path
    run: Run
    analysis: Analysis
    environment: Environment

    @property
    def sha256(self) -> str | None:
        program = self.environment.programs.get("waystage")
        return program.sha256 if program else None


# The trials of both runs, by configuration and block.
_Pairs = dict[tuple[str, int], tuple[TrialNumbers, TrialNumbers]]


def compare_runs(
    baseline: Path, candidate: Path, margin: float = MARGIN, metrics: tuple[str, ...] = METRICS
) -> RunComparison:
    """Compare the candidate with the baseline; ratios are candidate / baseline.

    Intervals are at 1 - 5 % / metrics (Bonferroni), so that a false alarm over all metrics comes at most once in
    twenty. Equivalence needs no such correction, since all metrics must show it (Berger 1982). `verdict` is `worse`
    if any metric is, `no worse` if all are equivalent or better, else `undecided`.

    Raises:
        LabError: for runs of different specifications or scales, without a trial in common, or a margin of 0.
    """
    if not margin > 0:
        raise LabError(f"compare: the margin must be above 0, not {margin:g}")
    for metric in metrics:
        if not _KNOWN.fullmatch(metric):
            raise LabError(f"compare: metric {metric!r} is unknown; known: {_KNOWN_WORDS}")
    runs = read_run(baseline), read_run(candidate)
    _check_same(baseline, candidate, *runs)
    old, new = _side(baseline, runs[0]), _side(candidate, runs[1])
    pairs = _pairs(old.analysis, new.analysis)
    if not pairs:
        raise LabError(f"{candidate}: has no used trial that {baseline} has, too; look at both reports")
    found = [_metric(metric, pairs, margin, 1 - _LEVEL / len(metrics)) for metric in metrics]
    verdicts = [one.verdict for one in found]
    overall = "no worse" if all(one in (EQUIVALENT, BETTER) for one in verdicts) else "undecided"
    return RunComparison(
        format=paths.COMPARE_FORMAT,
        waylab=__version__,
        name=old.run.name,
        question=old.run.spec.question,
        baseline=_compared(old),
        candidate=_compared(new),
        margin=margin,
        confidence=1 - _LEVEL / len(metrics),
        pairs=len(pairs),
        metrics=found,
        verdict=WORSE if WORSE in verdicts else overall,
        notes=_notes(old, new),
    )


def _side(directory: Path, run: Run) -> _Side:
    environment = read(directory / paths.ENVIRONMENT, Environment)
    return _Side(directory, run, read_analysis(directory), environment)


def _check_same(baseline: Path, candidate: Path, old: Run, new: Run) -> None:
    if baseline.resolve() == candidate.resolve():
        raise LabError(f"compare: {baseline} cannot be compared with itself")
    for key, before, after in (("quick", old.quick, new.quick), ("scale", old.scale, new.scale)):
        if before != after:
            raise LabError(f"compare: {key} is {before} in {baseline}, {after} in {candidate}")
    different = _first_difference(to_builtins(old.spec), to_builtins(new.spec))
    if different:
        raise LabError(f"compare: {baseline} and {candidate} have different specifications, in {different}")


def _first_difference(one: object, other: object, where: str = "") -> str:
    """Name the first key whose values differ; empty when there is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            found = _first_difference(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
            if found:
                return found
        return ""
    return "" if one == other else where


def _pairs(old: Analysis, new: Analysis) -> _Pairs:
    """Return the trials that were used in both, by configuration and block."""
    sides = [
        {(trial.configuration, trial.block): trial.measured() for trial in analysis.trials if trial.used}
        for analysis in (old, new)
    ]
    order = [configuration.name for configuration in old.configurations]
    both = sorted((key for key in sides[0] if key in sides[1]), key=lambda key: (order.index(key[0]), key[1]))
    return {key: (sides[0][key], sides[1][key]) for key in both}


def _metric(metric: str, pairs: _Pairs, margin: float, confidence: float) -> MetricComparison:
    ratios: dict[str, dict[int, float]] = {}
    for (configuration, block), (old, new) in pairs.items():
        before, after = metric_of(old, metric), metric_of(new, metric)
        if before and after:
            ratios.setdefault(configuration, {})[block] = math.log(after / before)
    # Only blocks that every configuration has mean the same; if there is none, all that there are.
    blocks = set.intersection(*(set(found) for found in ratios.values())) if ratios else set()
    everywhere = sorted(blocks or {block for found in ratios.values() for block in found})
    means = []
    for block in everywhere:
        members = [found[block] for found in ratios.values() if block in found]
        means.append(math.fsum(members) / len(members))
    overall = _paired(means, margin)
    return MetricComparison(
        metric=metric,
        overall=overall,
        verdict=verdict(overall, metric),
        text=verdict_sentence(overall, metric, margin),
        configurations=[
            ConfigurationRatio(name=name, **asdict(_paired(list(found.values()), margin)))
            for name, found in ratios.items()
        ],
    )


def _paired(logs: list[float], margin: float) -> Ratio:
    return Ratio(**vars(paired_ratio(logs, margin)))


def _compared(side: _Side) -> ComparedRun:
    program, source = side.environment.programs.get("waystage"), side.environment.source
    return ComparedRun(
        directory=str(side.directory),
        created_utc=side.run.created_utc,
        version=program.version if program else None,
        sha256=side.sha256,
        commit=source.commit if source else None,
        trials_used=side.analysis.trials_used,
        trials_total=side.analysis.trials_total,
    )


def _notes(old: _Side, new: _Side) -> list[str]:
    """Say what weakens the comparison."""
    first, second = (
        (
            side.environment.processor,
            side.environment.kernel,
            side.environment.cores_usable,
            side.environment.governor,
        )
        for side in (old, new)
    )
    notes = [
        "The runs were made one after the other: what changed on the machine between them is in the ratios, too. "
        "Versions that run interleaved, as levels of one factor, are compared more sharply."
    ]
    notes += [
        f"Not the same machine or state: {key} is {before} in the baseline, {after} in the candidate."
        for key, before, after in zip(_SAME, first, second, strict=True)
        if before != after
    ]
    if old.sha256 == new.sha256:
        notes.append("Both runs have the very same program: this is a null comparison, and shows the noise.")
    return notes
