"""Two versions: interleaved as arms of one run (`waylab ab`), or several runs of each (`waylab compare`).

Separate runs differ by more than the trials within a run. They are therefore compared by the means of whole runs,
and a single run on each side has no verdict.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from waylab.analysis.across.contrasts.model import as_family, metric_model
from waylab.analysis.across.contrasts.survivors import why_not_no_worse
from waylab.analysis.across.contrasts.verdicts import NO_WORSE, UNDECIDED, WORSE, verdict, verdict_sentence
from waylab.analysis.across.metrics import metric_of, more_is_better
from waylab.analysis.run import read_analysis
from waylab.analysis.statistics.blocks import DEGREES_MIN, Contrast
from waylab.analysis.statistics.pairs import ratio_of
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis
from waylab.runfolder.comparison import ComparedRun, ConfigurationRatio, MetricComparison, RunComparison
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import read, read_run
from waylab.runfolder.manifest import hash_of
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.run import Run
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.version import __version__

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
NOT_REPLICATED = "not replicated"
_RUNS_MIN = 2
# Facts of the environment that make two runs comparable.
_SAME = ("processor", "kernel", "cores_usable", "governor")


@dataclass(frozen=True)
class _Side:
    """The files of one run."""

    directory: Path
    run: Run
    analysis: Analysis
    environment: Environment

    @property
    def sha256(self) -> str | None:
        program = self.environment.programs.get("waystage")
        return program.sha256 if program else None


Sides = list[_Side]
# Means of logarithms by configuration, of one run.
_Means = dict[str, float]


def compare_runs(
    baseline: Sequence[Path],
    candidate: Sequence[Path],
    margin: float = MARGIN,
    metrics: tuple[str, ...] = METRICS,
) -> RunComparison:
    """Compare runs of the candidate with runs of the baseline; ratios are candidate / baseline.

    The run is the unit: the mean logarithm of every run, and a t test of both sides with one variance. With fewer than
    two runs on a side there is no verdict. Verdicts are adjusted for the number of metrics (Holm).

    Raises:
        LabError: for runs of different specifications or scales, without a configuration in common, the same run
            twice, an unknown metric, or a margin of 0.
    """
    _check_request(margin, metrics)
    if not baseline and not candidate:
        raise LabError("compare: no runs are given; give runs of both sides, as --a RUN RUN --b RUN RUN")
    if not baseline or not candidate:
        raise LabError("compare: only one side has runs; give runs of both, as --a RUN RUN --b RUN RUN")
    runs = [(directory, read_run(directory)) for directory in (*baseline, *candidate)]
    _check_same(runs)
    _check_copies(runs)
    if metrics == METRICS and runs[0][1].spec.gates.imported:
        # Other tools do not report the CPU time of the system.
        metrics = METRICS[:2]
    sides = [_side(directory, run) for directory, run in runs]
    old, new = sides[: len(baseline)], sides[len(baseline) :]
    shared = _shared(sides)
    if not shared:
        raise LabError("compare: no configuration was used in every run; look at their reports")
    ratios = as_family([_of_runs(metric, old, new, shared, margin) for metric in metrics])
    parts = [
        _metric(
            metric,
            ratio,
            *_of_separate(metric, ratio, margin),
            [(name, _of_runs(metric, old, new, [name], margin)) for name in shared],
        )
        for metric, ratio in zip(metrics, ratios, strict=True)
    ]
    withheld = why_not_no_worse(
        *([trial for side in group for trial in side.analysis.trials] for group in (old, new))
    )
    return RunComparison(
        format=paths.COMPARE_FORMAT,
        waylab=__version__,
        name=old[0].run.name,
        question=old[0].run.spec.question,
        interleaved=False,
        baseline=[_compared(side) for side in old],
        candidate=[_compared(side) for side in new],
        margin=margin,
        metrics=parts,
        verdict=_overall([part.verdict for part in parts], withheld),
        withheld=withheld,
        notes=_notes(old, new),
    )


def compare_arms(directory: Path, factor: str, given: tuple[str, str]) -> RunComparison:
    """Compare the two levels of a factor in one run, by its announced comparisons; `given` names both sides."""
    run = read_run(directory)
    side = _side(directory, run)
    announced = [one for one in side.analysis.comparisons if one.factor == factor]
    models = {one.metric: metric_model(side.analysis.trials, one.metric) for one in announced}
    parts = []
    for one in announced:
        of, to = {factor: [one.candidate]}, {factor: [one.baseline]}
        strata = [
            (
                ", ".join(f"{name}={label}" for name, label in others.items()),
                {k: [v] for k, v in others.items()},
            )
            for others in models[one.metric].pairs(of, to)
            if others
        ]
        ratios = [(name, models[one.metric].ratio(of | at, to | at, one.margin)) for name, at in strata]
        text = verdict_sentence(one.overall, one.metric, one.margin, f"{one.metric}, b / a")
        parts.append(_metric(one.metric, one.overall, verdict(one.overall, one.metric), text, ratios))
    levels = (announced[0].baseline, announced[0].candidate)
    withheld = why_not_no_worse(*(_arm_trials(side.analysis.trials, factor, level) for level in levels))
    return RunComparison(
        format=paths.COMPARE_FORMAT,
        waylab=__version__,
        name=run.name,
        question=run.spec.question,
        interleaved=True,
        baseline=[_compared(side, factor, levels[0], given[0])],
        candidate=[_compared(side, factor, levels[1], given[1])],
        margin=announced[0].margin,
        metrics=parts,
        verdict=_overall([part.verdict for part in parts], withheld),
        withheld=withheld,
        notes=[],
    )


def _arm_trials(trials: list[AnalysedTrial], factor: str, level: str) -> list[AnalysedTrial]:
    """Return the trials of one arm, with their configurations named by the levels of all other factors."""
    return [
        replace(
            trial,
            configuration=", ".join(
                f"{name}={label}" for name, label in trial.levels.items() if name != factor
            ),
        )
        for trial in trials
        if trial.levels[factor] == level
    ]


def _check_request(margin: float, metrics: tuple[str, ...]) -> None:
    if not 0 < margin < math.inf:
        raise LabError(f"compare: the margin must be above 0 and finite, not {margin:g}")
    if not metrics:
        raise LabError(f"compare: no metrics are given; known: {_KNOWN_WORDS}")
    for metric in metrics:
        if not _KNOWN.fullmatch(metric):
            raise LabError(f"compare: metric {metric[:80]!r} is unknown; known: {_KNOWN_WORDS}")


def _side(directory: Path, run: Run) -> _Side:
    environment = read(directory / paths.ENVIRONMENT, Environment)
    return _Side(directory, run, read_analysis(directory), environment)


def _check_same(runs: list[tuple[Path, Run]]) -> None:
    """Check that all runs are different runs of one specification at one scale."""
    first_path, first = runs[0]
    seen = {first_path.resolve()}
    for path, run in runs[1:]:
        if path.resolve() in seen:
            raise LabError(f"compare: {path} is given twice; a run cannot be compared with itself")
        seen.add(path.resolve())
        for key, before, after in (("quick", first.quick, run.quick), ("scale", first.scale, run.scale)):
            if before != after:
                raise LabError(f"compare: {key} is {before} in {first_path}, {after} in {path}")
        different = _first_difference(to_builtins(first.spec), to_builtins(run.spec))
        if different:
            raise LabError(f"compare: {first_path} and {path} have different specifications, in {different}")


def _check_copies(runs: list[tuple[Path, Run]]) -> None:
    """Check that no two runs have the same measurement: a copied run would count as another replicate.

    The summary of a load has the clock of its window in nanoseconds, so two measurements never have the same one.
    """
    seen: dict[str, Path] = {}
    for path, run in runs:
        for trial in run.plan:
            load = paths.trial_directory(path, trial.id) / paths.LOAD
            if not load.is_file():
                continue
            digest = hash_of(load.read_bytes()).sha256
            other = seen.setdefault(digest, path)
            if other != path:
                raise LabError(
                    f"compare: {path} and {other} have the same measurement, in trial {trial.id}; one is a copy, "
                    "so give another run"
                )


def _first_difference(one: object, other: object, where: str = "") -> str:
    """Name the first key whose values differ; empty when there is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            found = _first_difference(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
            if found:
                return found
        return ""
    return "" if one == other else where


def _shared(sides: Sides) -> list[str]:
    """Return the configurations of which every run has a trial that was used, in order."""
    used = [{trial.configuration for trial in side.analysis.trials if trial.used} for side in sides]
    order = [configuration.name for configuration in sides[0].analysis.configurations]
    return [name for name in order if all(name in names for names in used)]


def _of_runs(metric: str, old: Sides, new: Sides, names: list[str], margin: float) -> Ratio:
    """Return the ratio of the means of whole runs, over the named configurations."""
    means = [[_mean_of_run(side, metric, names) for side in sides] for sides in (old, new)]
    if any(value is None for values in means for value in values):
        reason = "a run has no value of it"
        return Ratio(
            blocks=0, ratio=None, low=None, high=None, excludes_1=None, equivalent=None, reason=reason
        )
    before, after = ([value for value in values if value is not None] for values in means)
    found = two_samples(before, after)
    ratio = Ratio(
        **vars(ratio_of(found, min(len(before), len(after)), margin, better=more_is_better(metric)))
    )
    return ratio


def two_samples(before: Sequence[float], after: Sequence[float]) -> Contrast:
    """Return the difference of the means of two groups of runs, each with its own variance (Welch 1947).

    With one variance for both, two noisy runs against five quiet ones were called different in 29 % of the cases.
    No error with fewer than two runs in a group, because nothing shows how much its runs differ.
    """
    means = [math.fsum(values) / len(values) for values in (before, after)]
    difference = means[1] - means[0]
    if min(len(before), len(after)) < _RUNS_MIN:
        return Contrast(difference, None, 0)
    parts = []
    for values, mean in zip((before, after), means, strict=True):
        freedom = len(values) - 1
        parts.append((math.fsum((value - mean) ** 2 for value in values) / freedom / len(values), freedom))
    variance = math.fsum(part for part, _ in parts)
    shares = math.fsum(part**2 / freedom for part, freedom in parts)
    # Satterthwaite's degrees are between 1 and 2 with two runs on both sides, and an interval needs two.
    degrees = max(DEGREES_MIN, variance**2 / shares) if shares else len(before) + len(after) - 2
    return Contrast(difference, math.sqrt(variance), degrees)


def _mean_of_run(side: _Side, metric: str, names: list[str]) -> float | None:
    """Return the mean logarithm of a metric over configurations, each the mean over its trials."""
    found: dict[str, list[float]] = {}
    for trial in side.analysis.trials:
        value = metric_of(trial.numbers, metric) if trial.used and trial.numbers else None
        if trial.configuration in names and value and value > 0:
            found.setdefault(trial.configuration, []).append(math.log(value))
    if len(found) < len(names):
        return None
    return math.fsum(math.fsum(values) / len(values) for values in found.values()) / len(names)


def _metric(
    metric: str, overall: Ratio, found: str, text: str, parts: list[tuple[str, Ratio]]
) -> MetricComparison:
    return MetricComparison(
        metric=metric,
        overall=overall,
        verdict=found,
        text=text,
        configurations=[ConfigurationRatio(name=name, **asdict(ratio)) for name, ratio in parts],
    )


def _of_separate(metric: str, overall: Ratio, margin: float) -> tuple[str, str]:
    """Return the verdict on separate runs and its sentence."""
    if overall.low is not None or overall.ratio is None:
        return verdict(overall, metric), verdict_sentence(overall, metric, margin, unit="runs on each side")
    text = (
        f"{metric}: ratio {overall.ratio:.4f}, not replicated: a side with one run does not show how much runs "
        f"differ; give {_RUNS_MIN} runs of each side, or interleave both with waylab ab."
    )
    return NOT_REPLICATED, text


def _overall(verdicts: list[str], withheld: str) -> str:
    """Return `worse` if any metric is, `no worse` if all metrics are and `withheld` is empty, else `undecided`."""
    for word in (WORSE, NOT_REPLICATED, UNDECIDED):
        if word in verdicts:
            return word
    return UNDECIDED if withheld else NO_WORSE


def _compared(side: _Side, factor: str = "", level: str = "", given: str = "") -> ComparedRun:
    path = next(
        (
            str(one.settings.get("system.program", ""))
            for f in side.run.spec.factors
            if f.name == factor
            for one in f.levels
            if one.label == level
        ),
        "",
    )
    name = f"waystage {path}" if path else "waystage"
    program, source = side.environment.programs.get(name), side.environment.source
    trials = [trial for trial in side.analysis.trials if not factor or trial.levels[factor] == level]
    return ComparedRun(
        directory=str(side.directory),
        created_utc=side.run.created_utc,
        arm=given,
        version=program.version if program else None,
        sha256=program.sha256 if program else None,
        commit=source.commit if source and name == "waystage" else None,
        trials_used=sum(trial.used for trial in trials),
        trials_total=len(trials),
    )


def _notes(old: Sides, new: Sides) -> list[str]:
    """Say what weakens the comparison."""
    notes = [
        "Separate runs: if all runs of one side were made before those of the other, the ratios include any change of "
        "the machine in between. waylab ab interleaves both sides."
    ]
    first = old[0].environment
    for key in _SAME:
        others = {str(getattr(side.environment, key)) for side in (*old[1:], *new)} - {
            str(getattr(first, key))
        }
        if others:
            notes.append(
                f"Not the same machine or state: {key} is {getattr(first, key)}, "
                f"in other runs {', '.join(sorted(others))}."
            )
    if len({side.sha256 for side in old}) > 1 or len({side.sha256 for side in new}) > 1:
        notes.append("The runs of one side have different programs.")
    if {side.sha256 for side in old} == {side.sha256 for side in new}:
        notes.append("Both sides have the same program, so this is a null comparison that shows the noise.")
    return notes
