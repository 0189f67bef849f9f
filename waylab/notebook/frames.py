"""The numbers of a run as data frames: trials, configurations, stages, percentiles, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waylab.analysis.trial.traces import trace_second
from waylab.errors import LabError
from waylab.notebook.columns import FactorColumns, Row, percentile_column, seconds, with_interval
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis, Configuration
from waylab.runfolder.files import read
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.run import Run
from waylab.runfolder.trial_numbers import AnalysedTrial, TrialNumbers

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns of `trials` and `configurations` before the numbers, so that a run without trials has them as well.
_TRIAL = ("trial", "order", "block", "configuration", "role")
_ALL = "all"


def frame(rows: Sequence[Row], columns: Sequence[str]) -> DataFrame:
    """Return rows as a data frame, which has these columns even without a row."""
    # Pandas takes a second to load: only who wants a frame waits for it.
    from pandas import DataFrame  # noqa: PLC0415

    found = DataFrame(list(rows), columns=None if rows else list(columns))
    # A number that no row has would be a column of objects.
    unknown = [name for name in found.columns if rows and found[name].isna().all()]
    return found.astype(dict.fromkeys(unknown, float))


def trials_frame(run: Run, analysis: Analysis) -> DataFrame:
    """One row for each trial of the plan: levels, whether it was used and why not, and its numbers."""
    factors, roles = FactorColumns(run.spec), {one.id: one.role for one in run.plan}
    rows = []
    for trial in analysis.trials:
        row: Row = {**_trial(trial), "role": roles.get(trial.id, ""), **factors.row(trial.levels)}
        row |= {"used": trial.used, "reasons": "; ".join(trial.reasons), "seed": trial.seed}
        rows.append(row | (_numbers(trial.numbers) if trial.numbers else {}))
    return frame(rows, [*_TRIAL, *factors.names, "used", "reasons", "seed"])


def _trial(trial: AnalysedTrial) -> Row:
    return {
        "trial": trial.id,
        "order": trial.order,
        "block": trial.block,
        "configuration": trial.configuration,
    }


def _numbers(found: TrialNumbers) -> Row:
    row: Row = {
        "server": found.server,
        "measured_s": found.measured_s,
        "requests": found.requests,
        "throughput_per_s": found.throughput_per_s,
    }
    for name, operation in found.operations.items():
        start = "response" if name == _ALL else f"response_{_word(name)}"
        row |= {
            f"{start}_mean_s": seconds(operation.response_mean_ns),
            f"{start}_std_s": seconds(operation.response_std_ns),
        }
        row |= {
            percentile_column(percent).replace("response", start, 1): seconds(value)
            for percent, value in operation.percentiles_ns.items()
        }
    row |= {
        "hit_ratio": found.hit_ratio,
        "think_mean_s": found.think_mean_s,
        "interactive_law_error": found.interactive_law_error,
        "generator_cpu_share": found.generator_cpu_share,
        "machine_busy_share": found.cpu.busy_share,
        "foreign_cpu_share": found.cpu.foreign_share,
        "steal_share": found.cpu.steal_share,
    }
    row |= {
        f"cpu_{role}_per_request_s": seconds(value) for role, value in found.cpu.cpu_per_request_ns.items()
    }
    row |= {f"link_{_word(name)}_share": value for name, value in found.links.utilisation.items()}
    row |= {f"database_{name}": value for name, value in found.database.items()}
    if found.queue_length is not None:
        row["queue_length_mean"] = found.queue_length.mean
    if _ALL in found.stages:
        row |= {
            f"stage_{stage}_mean_s": seconds(times.mean_ns)
            for stage, times in found.stages[_ALL].stages.items()
        }
    if found.source is not None:
        row |= {"source_tool": found.source.tool, "source_file": found.source.file}
    steady = found.within.warm_up.steady if found.within.warm_up else None
    return row | {"steady": steady, "time_scale": found.time_scale}


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def configurations_frame(run: Run, analysis: Analysis) -> DataFrame:
    """One row for each configuration: means over its used trials with the ends of their 95 % intervals."""
    factors = FactorColumns(run.spec)
    rows = []
    for one in analysis.configurations:
        row: Row = {
            "configuration": one.name,
            **factors.row(one.levels),
            "trials": one.trials,
            "used": one.used,
        }
        row |= with_interval("throughput_per_s", one.throughput_per_s)
        for name, operation in one.operations.items():
            start = "response" if name == _ALL else f"response_{_word(name)}"
            row |= with_interval(f"{start}_mean_s", operation.response_mean_ns, 1e-9)
        row |= with_interval("hit_ratio", one.hit_ratio)
        row |= with_interval("generator_cpu_share", one.generator_cpu_share)
        row |= with_interval("machine_busy_share", one.busy_share)
        for role, found in one.cpu_per_request_ns.items():
            row |= with_interval(f"cpu_{role}_per_request_s", found, 1e-9)
        for name, found in one.link_utilisation.items():
            row |= with_interval(f"link_{_word(name)}_share", found)
        for name, found in one.database.items():
            row |= with_interval(f"database_{name}", found)
        if one.queue_length is not None:
            row |= with_interval("queue_length_mean", one.queue_length.mean)
        rows.append(row)
    return frame(rows, ["configuration", *factors.names, "trials", "used"])


def stages_frame(run: Run, analysis: Analysis) -> DataFrame:
    """One row for each configuration, operation and stage; `total` is the whole time in the program.

    The means are over trials with their 95 % intervals, the percentiles of all recorded requests together.
    """
    factors = FactorColumns(run.spec)
    rows = []
    for one in analysis.configurations:
        for operation, found in one.stages.items():
            for stage, times in found.stages.items():
                row = {**_of(one, factors), "operation": operation, "stage": stage, "count": found.count}
                row |= with_interval("mean_s", times.mean_ns, 1e-9)
                row |= {
                    f"p{percent}_s": seconds(getattr(times, f"p{percent}_ns"))
                    for percent in (5, 25, 50, 75, 95, 99)
                }
                rows.append(row)
    return frame(rows, ["configuration", *factors.names, "operation", "stage", "count", "mean_s"])


def _of(one: Configuration, factors: FactorColumns) -> Row:
    return {"configuration": one.name, **factors.row(one.levels)}


def percentiles_frame(run: Run, analysis: Analysis) -> DataFrame:
    """One row for each configuration, operation and percentile of the response time.

    `response_s` is that of all requests of all used trials together. `between_trials_s` is the geometric mean of the
    trials' own percentiles, with its 95 % interval: how much a percentile differs from trial to trial.
    """
    factors = FactorColumns(run.spec)
    rows = []
    for one in analysis.configurations:
        for operation, found in one.operations.items():
            for percent in sorted({*found.percentiles_ns, *found.percentile_intervals_ns}, key=float):
                row = {**_of(one, factors), "operation": operation, "percentile": float(percent)}
                row["response_s"] = seconds(found.percentiles_ns.get(percent))
                if percent in found.percentile_intervals_ns:
                    row |= with_interval("between_trials_s", found.percentile_intervals_ns[percent], 1e-9)
                rows.append(row)
    return frame(rows, ["configuration", *factors.names, "operation", "percentile", "response_s"])


def seconds_frame(directory: Path, run: Run, analysis: Analysis) -> DataFrame:
    """One row for each second of each trial, warm-up included, as the load generator reports it.

    A trial without a readable summary has no rows; `trials` has the reason.
    """
    factors = FactorColumns(run.spec)
    rows: list[Row] = []
    for trial in analysis.trials:
        try:
            load = read(paths.trial_directory(directory, trial.id) / paths.LOAD, LoadSummary)
        except LabError:
            continue
        about = {"trial": trial.id, "block": trial.block, "configuration": trial.configuration}
        for one in map(trace_second, load.seconds):
            rows.append(
                {
                    **about,
                    **factors.row(trial.levels),
                    "used": trial.used,
                    "second": one.second,
                    "measured": one.measured,
                    "throughput_per_s": float(one.throughput_per_s),
                    "response_mean_s": seconds(one.response_mean_ns),
                    "response_p99_s": seconds(one.response_p99_ns),
                    "miss_ratio": one.miss_ratio,
                }
            )
    return frame(rows, ["trial", "block", "configuration", *factors.names, "used", "second", "measured"])
