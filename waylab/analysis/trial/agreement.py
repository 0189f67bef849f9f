"""Checks that the files of a trial belong to it and to each other. Each check returns one line for each disagreement.

A manifest shows which files were changed after the trial. The other checks need no manifest: they compare the counts
of different programs, and the plan with the run. Their limits only detect files of another trial; the gates judge
the accuracy of a trial.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from waylab.analysis.trial import histograms
from waylab.analysis.trial.artifacts import Artifacts
from waylab.analysis.trial.merged_agreement import merged_disagreements
from waylab.analysis.trial.message_agreement import message_disagreements
from waylab.analysis.trial.summary_agreement import summary_disagreements
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.files import read
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.manifest import FileHash, Manifest, hash_of, run_hash
from waylab.runfolder.numbers import Law
from waylab.runfolder.run import PlannedTrial
from waylab.runfolder.trial import TrialOutcome

# The least share of the planned time that must have been measured.
MEASURED_MIN = 0.95
# Relative tolerances: for two numbers of a summary that are the same sum, and for means from buckets of three digits.
_SAME, _BUCKETS = 1e-6, 0.01
# A law between two programs indicates another trial if its error exceeds both this share and twice its own limit.
_LAW_MIN, _LAW_LIMITS = 0.2, 2.0
# With fewer requests of each client, those at the edges of the window alone can break a law.
_REQUESTS_MIN = 10
# Requests at the edges of the window that one count includes and another does not, as a share.
_EDGES = 0.05
# The files of a trial that the analysis reads, beside its records.
_READ = (paths.TRIAL, paths.LOAD, paths.PROCESSES, paths.MACHINE, paths.HOSTS)
# The duration of a trial and the difference of its clocks are read one after the other, on a busy machine far apart.
_CLOCK_S = 2.0
# The servers that each value of the specification allows; auto uses memcached if it is installed.
_SERVERS = {
    "auto": ("memcached", "embedded"),
    "memcached": ("memcached",),
    "embedded": ("embedded",),
}
# The step from the seed of one load generator to that of the next.
_SEED_STEP, _SEEDS = 104_729, 1 << 31


def changed_files(artifacts: Artifacts) -> list[str] | None:
    """Compare the files of a trial with its manifest; None for a trial from before there were manifests."""
    path = artifacts.directory / paths.MANIFEST
    if not path.is_file():
        promised = artifacts.outcome is not None and artifacts.outcome.manifest
        return [f"{paths.MANIFEST} is missing"] if promised else None
    try:
        manifest = read(path, Manifest)
    except LabError as error:
        return [str(error)]
    plan, problems = artifacts.plan, []
    if (manifest.trial, manifest.seed) != (plan.id, plan.seed):
        problems.append(f"the files are of trial {manifest.trial} with seed {manifest.seed}")
    if manifest.run_sha256 != run_hash(artifacts.directory):
        problems.append(f"the trial was run under another {paths.RUN}")
    return problems + list(_differences(artifacts, manifest))


def _differences(artifacts: Artifacts, manifest: Manifest) -> Iterator[str]:
    for name, wanted in manifest.files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield f"the manifest names {name[:80]}, which is not in the folder"
        elif wanted != _hash(artifacts, name):
            yield f"{name} is not what the trial left"
    records = (artifacts.directory / paths.RECORDS).glob("*.way")
    read = [*_READ, *(f"{paths.RECORDS}/{record.name}" for record in sorted(records))]
    for name in read:
        if name not in manifest.files and (artifacts.directory / name).exists():
            yield f"{name} was added after the trial"


def _hash(artifacts: Artifacts, name: str) -> FileHash | None:
    try:
        return hash_of((artifacts.directory / name).read_bytes())
    except OSError:
        return None


def shortened(plan: PlannedTrial, load: LoadSummary) -> str | None:
    """Report a measurement that ended early, or a window of the wrong length."""
    measured_s, planned_s = load.measured_s, plan.load.test_time_s
    window_s = (load.window_ns[1] - load.window_ns[0]) * 1e-9
    if load.partial:
        return f"the load ended early, after {measured_s:.2f} s of {planned_s:g} s"
    if measured_s < MEASURED_MIN * planned_s:
        return f"{measured_s:.2f} s of {planned_s:g} s were measured"
    if abs(window_s - measured_s) > _EDGES * measured_s:
        return f"{measured_s:.2f} s were measured in a window of {window_s:.2f} s"
    return None


def disagreements(
    artifacts: Artifacts,
    outcome: TrialOutcome,
    load: LoadSummary,
    decoded: dict[str, HdrHistogram],
    laws: list[Law],
) -> list[str]:
    """Return one line for each contradiction between the files of a trial."""
    return [
        *_identity(artifacts.plan, outcome, load),
        *_settings(artifacts.plan, load),
        *_counts(load),
        *_histograms(load, decoded),
        *_seconds(artifacts.plan, load, outcome.generators_overlap),
        *summary_disagreements(artifacts.plan, load, decoded),
        *message_disagreements(artifacts.plan, load),
        *merged_disagreements(artifacts.directory, load, required=outcome.manifest),
        *_laws(artifacts.plan, load, laws),
    ]


def imported_disagreements(load: LoadSummary, decoded: dict[str, HdrHistogram]) -> list[str]:
    """Return one line for each contradiction within an imported summary, which has no plan to agree with."""
    return [*(_counts(load) if load.measured_s else []), *_histograms(load, decoded)]


def _identity(plan: PlannedTrial, outcome: TrialOutcome, load: LoadSummary) -> Iterator[str]:
    if outcome.id != plan.id:
        yield f"{paths.TRIAL} is of trial {outcome.id}"
    if outcome.order != plan.order:
        yield f"{paths.TRIAL} is of trial number {outcome.order}, planned: {plan.order}"
    yield from _outcome(plan, outcome, load)
    if outcome.before and outcome.after:
        if abs((outcome.after.clock_ns - outcome.before.clock_ns) * 1e-9 - outcome.took_s) > _CLOCK_S:
            yield f"{paths.TRIAL} took {outcome.took_s:g} s, and its clocks say otherwise"
        offset_ns, error_ns = outcome.testbed.load_clock_ns
        begin = outcome.before.clock_ns + offset_ns - error_ns
        end = outcome.after.clock_ns + offset_ns + error_ns
        if not begin <= load.window_ns[0] <= load.window_ns[1] <= end:
            yield f"{paths.LOAD} was not measured during this trial"


def _outcome(plan: PlannedTrial, outcome: TrialOutcome, load: LoadSummary) -> Iterator[str]:
    """Check the outcome against the plan and the rules by which a trial is called measured."""
    # Older versions, which wrote no manifest, also recorded less.
    if not outcome.manifest:
        return
    wanted = plan.system.get("backends", {}).get("server")
    if "backends" in plan.description.programs and wanted in _SERVERS:
        if outcome.server not in _SERVERS[wanted]:
            yield f"the server was {outcome.server}, planned: {wanted}"
    if "database" in plan.description.programs:
        yield from _database(outcome)
    overlap = outcome.generators_overlap
    if overlap is not None and (len(load.parts) < 2 or overlap > 1):
        yield f"{overlap:g} of the windows of {len(load.parts) or 1} load generators are common"
    if overlap is None and len(load.parts) > 1:
        yield f"{paths.TRIAL} does not say how long its {len(load.parts)} load generators measured together"
    if outcome.accounting is None:
        yield f"{paths.TRIAL} has no accounting, which every version with manifests writes"
    for process in outcome.processes:
        # The gates judge the load generators.
        if process.name.startswith("load"):
            continue
        if process.killed or process.exit_code not in (0, -15):
            killed = " and was killed" if process.killed else ""
            yield f"{process.name} ended with {process.exit_code}{killed}"


def _database(outcome: TrialOutcome) -> Iterator[str]:
    """Check that the counters of the database are there before and after, and that none went down."""
    if outcome.server != "postgres":
        yield f"the server was {outcome.server}, planned: postgres"
    before = (outcome.database and outcome.database.before) or {}
    after = (outcome.database and outcome.database.after) or {}
    if not before or before.keys() != after.keys():
        yield "the counters of the database are not there before and after the load"
    for name, count in before.items():
        later = after.get(name)
        if count is not None and later is not None and later < count:
            yield f"the database counted {count} {name} before the load and {later} after it"


def other_machines(found: list[Artifacts]) -> None:
    """Add a problem to each trial whose kernel counts CPU time otherwise than that of the run's first trial."""
    measured = [one for one in found if one.outcome is not None and one.outcome.manifest]
    for one in measured[1:]:
        first, this = measured[0].outcome, one.outcome
        if first and this and (first.accounting, first.testbed.kind) != (this.accounting, this.testbed.kind):
            one.problems.append(
                f"{paths.TRIAL} was written on another machine than that of {measured[0].plan.id}: "
                "its testbed or what its kernel counts as CPU time differs"
            )


def _agree(reported: object, planned: object) -> bool:
    """Compare two values; numbers may differ by what two ways to convert a unit round differently."""
    if isinstance(reported, float) and isinstance(planned, int | float):
        return math.isclose(reported, planned, rel_tol=1e-9)
    return reported == planned


def _settings(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    """Compare the settings that the load generators report with the planned ones."""
    reported = [part.settings for part in load.parts if part.settings] or [load.settings]
    for settings in reported:
        unknown = [name for name in _reported_always(plan) if settings.get(name) is None]
        if unknown:
            yield f"the load does not report its {' and '.join(unknown)}"
    for name, wanted in _planned(plan, load, len(reported)).items():
        found = [settings[name] for settings in reported if settings.get(name) is not None]
        if name in _COMBINED and found:
            found = [_COMBINED[name](found)]
        if name == "seed":
            missing = set(found) - wanted
            if missing:
                yield f"the load ran with seed {min(missing)}, planned: {plan.seed}"
        elif not all(_agree(one, wanted) for one in found):
            yield f"the load ran with {name} {found[0]}, planned: {wanted}"


# Several load generators share the clients and the keys.
_COMBINED: dict[str, Callable[[list[Any]], Any]] = {"clients": sum, "key_minimum": min, "key_maximum": max}


def _reported_always(plan: PlannedTrial) -> tuple[str, ...]:
    """Return the settings that the load generator must report; one without records is not ours and has no seed."""
    return ("clients", "seed") if "load" in plan.description.record_files else ("clients",)


def _planned(plan: PlannedTrial, load: LoadSummary, generators: int) -> dict[str, Any]:
    """Return the planned settings by the load generator's names, as far as they are numbers or words of both."""
    planned = plan.load
    seeds = {(plan.seed + _SEED_STEP * index) % _SEEDS for index in range(generators)}
    wanted: dict[str, Any] = {
        "clients": planned.clients,
        "seed": seeds,
        "loop": "open" if planned.rate else "closed",
        "test_time_s": planned.test_time_s,
        "warm_up_s": planned.warm_up_s,
        "sample": planned.sample,
        "threads": planned.threads,
        "think_mean_s": planned.think_mean_s,
    }
    if not load.operations.messages:
        ratio = planned.ratio.split(":")
        wanted |= {
            "ratio_set": int(ratio[0]),
            "ratio_get": int(ratio[1]),
            "pipeline": planned.pipeline,
            "multi_key_get": planned.multi_key_get,
            "protocol": planned.protocol,
            "key_pattern": planned.key_pattern,
            "key_minimum": planned.key_minimum,
            "key_maximum": planned.key_maximum,
        }
    return wanted


def _counts(load: LoadSummary) -> Iterator[str]:
    everything, parts = load.operations.all, load.operations.by_name()
    total = sum(one.count for name, one in parts.items() if name not in ("all", "d15"))
    if everything.count != load.totals.requests:
        yield f"{everything.count} requests of all operations, {load.totals.requests} in the totals"
    if len(parts) > 1 and total != everything.count:
        yield f"{total} requests of single operations, {everything.count} of all"
    completed = load.totals.requests if load.totals.completed is None else load.totals.completed
    rate = completed / load.measured_s if load.measured_s else 0.0
    if not np.isclose(rate, load.throughput_per_s, rtol=1e-3, atol=1.0):
        yield f"a throughput of {load.throughput_per_s:.1f}/s, but {completed} requests in {load.measured_s:g} s"


def _histograms(load: LoadSummary, decoded: dict[str, HdrHistogram]) -> Iterator[str]:
    for name, histogram in decoded.items():
        operation = load.operations.by_name()[name]
        count, mean_ns = histogram.get_total_count(), operation.response.mean_ns
        errors = max(operation.errors, operation.response.unanswered)
        if not operation.count - errors <= count <= operation.count:
            yield f"the histogram of {name} has {count} of {operation.count} requests"
        elif count and mean_ns is not None:
            found_ns = histograms.mean(histogram)
            if not np.isclose(found_ns, mean_ns, rtol=_BUCKETS):
                yield f"the mean of {name} is {found_ns:.0f} ns in its histogram and {mean_ns:.0f} ns beside it"


def _seconds(plan: PlannedTrial, load: LoadSummary, overlap: float | None) -> Iterator[str]:
    measured = [second for second in load.seconds if second.measured]
    requests = load.totals.requests
    # Of several generators, a second is measured if all of them measured in it.
    common_s = load.measured_s * (1.0 if overlap is None else overlap)
    if len(measured) < int(common_s) - 1:
        yield f"{len(measured)} seconds of a measurement of {load.measured_s:g} s"
    inside = sum(second.requests for second in measured)
    slack = _EDGES * requests + plan.load.clients * plan.load.pipeline
    if inside > requests + slack:
        yield f"{inside} requests in the measured seconds, {requests} in all of the window"
    # The window may begin and end within a second, which then is not counted as measured.
    edge = 0 if len(measured) >= load.measured_s else 1 + math.ceil(load.measured_s - common_s)
    first, last = (measured[0].second - edge, measured[-1].second + edge) if measured else (0, -1)
    around = sum(second.requests for second in load.seconds if first <= second.second <= last)
    if measured and around < requests - slack:
        yield f"{around} requests in the seconds of the window, {requests} in the totals"
    for second in load.seconds:
        if second.sum_ns is not None and second.mean_ns is not None:
            if not np.isclose(second.mean_ns * second.requests, second.sum_ns, rtol=_SAME, atol=1.0):
                yield f"second {second.second}: the mean times {second.requests} requests is not the sum"
                return


def _laws(plan: PlannedTrial, load: LoadSummary, laws: list[Law]) -> Iterator[str]:
    """Name the laws between two programs whose error is so large that the files are from different trials."""
    if load.totals.requests < _REQUESTS_MIN * plan.load.clients:
        return
    for law in laws:
        # The interactive law has a gate of its own.
        if law.residual is None or law.name == "interactive":
            continue
        if abs(law.residual) > max(_LAW_MIN, _LAW_LIMITS * law.limit):
            yield f"{law.name}: {law.text}"
