"""Before a study: finds the share of a core with which a host has the throughput of the study's host.

A run with one configuration measures the throughput, and the share changes in proportion, until the wanted throughput
lies in the interval of the measured one. Five trials that scatter by 8 % leave an error of 10 %, so if their interval
is wide, more trials with this share follow, and the share is corrected once more by the mean of all. If the speed of
the machine changes from minute to minute, runs differ by more than their trials show; then the mean of all decides.
The runs stay in the folder of the study, so the same command finds the same share again without new trials.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from waylab.analysis import read_analysis
from waylab.analysis.statistics.repetitions import geometric_interval
from waylab.cli.study.runs import Experiment, read_experiment
from waylab.errors import LabError
from waylab.runfolder.files import read_run, write_bytes
from waylab.spec import CALIBRATION, Study, calibration_spec, toml_text

# The wanted throughput agrees with the measured mean if it lies in its 95 % interval and differs by at most the second
# share, or if it differs by at most the first one: a mean of few trials is not known better than its interval.
WITHIN, WITHIN_INTERVAL = 0.03, 0.1
_ATTEMPTS = 5
# If no run agrees: the throughput of a core, over all of them, must be known this well.
_RUNS_WITHIN = 0.2
# More trials run while the half-width of the interval is larger than this, up to this number of trials.
_PRECISION, _TRIALS = 0.03, 20


@dataclass(frozen=True)
class Calibrated:
    """A study with the share of a core that was found, and a sentence about it; without one, nothing was measured."""

    study: Study
    said: str = ""
    # Whether a run is missing that would show the share.
    missing: bool = False


def calibrate(
    study: Study, folder: Path, scale: str, measure: Callable[[Experiment, int | None], None] | None
) -> Calibrated:
    """Return the study with the share of a core of its calibrated host.

    `measure` runs what is missing of an experiment, or more of it until it has a number of blocks. Without `measure`,
    only the runs that exist are used.

    Raises:
        LabError: if the throughput does not come close, or no trial passed its gates.
    """
    if study.calibration is None:
        return Calibrated(study)
    wanted, cores = study.calibration.throughput_per_s, study.calibration.cores
    seen, per_core = list[str](), list[float]()
    # A study may report its throughput for another configuration, so the sentence names the one that was measured.
    where = ", ".join(f"{factor} = {level}" for factor, level in study.calibration.of.items())
    for _ in range(_ATTEMPTS):
        path = folder / f"{CALIBRATION}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = study.with_cores(cores).experiments[study.calibration.experiment]
        write_bytes(path, toml_text(calibration_spec(content, study.calibration)).encode())

        def throughput(
            blocks: int | None = None, path: Path = path
        ) -> tuple[float, float, float, int] | None:
            experiment = read_experiment(path, folder.parent, scale)
            if measure:
                measure(experiment, blocks)
                experiment = read_experiment(path, folder.parent, scale)
            found = _throughput(experiment) if experiment.blocks() >= (blocks or 1) else None
            return (*found, experiment.blocks()) if found else None

        found = throughput()
        if found is None:
            return Calibrated(study.with_cores(cores), missing=True)
        mean, low, high, blocks = found
        seen.append(f"{low:,.0f} to {high:,.0f}/s with {cores:g} cores")
        per_core.append(mean / cores)
        agrees = abs(mean / wanted - 1) <= (WITHIN_INTERVAL if low <= wanted <= high else WITHIN)
        # An earlier search that ended with this share has left more trials.
        if agrees or blocks >= _TRIALS:
            corrected = cores
            if blocks >= _TRIALS or high - low > 2 * _PRECISION * mean:
                found = throughput(_TRIALS)
                if found is None:
                    return Calibrated(study.with_cores(cores), missing=True)
                mean, low, high, _ = found
                corrected = round(cores * wanted / mean, 4)
            return Calibrated(
                study.with_cores(corrected),
                f"Calibration: {study.calibration.host} has {corrected:g} cores. With {where} and {cores:g} cores it "
                f"answers {mean:,.0f} requests/s (95 % interval {low:,.0f} to {high:,.0f}); "
                f"{wanted:,.0f} were required.",
            )
        cores = round(cores * wanted / mean, 4)
    runs = geometric_interval(per_core)
    if runs.mean and runs.low and runs.high and runs.high / runs.mean - 1 <= _RUNS_WITHIN:
        cores = round(wanted / runs.mean, 4)
        low, high = (wanted * rate / runs.mean for rate in (runs.low, runs.high))
        return Calibrated(
            study.with_cores(cores),
            f"Calibration: {study.calibration.host} has {cores:g} cores. With {where} it answers {wanted:,.0f} "
            f"requests/s on average over {len(seen)} runs (95 % interval {low:,.0f} to {high:,.0f}). The runs differ "
            f"more than their trials: {', '.join(seen)}.",
        )
    raise LabError(
        f"study {study.name}: {study.calibration.host} does not come near {wanted:,.0f} requests/s "
        f"({', '.join(seen)}); measure on an idle machine, or correct throughput_per_s"
    )


def _throughput(experiment: Experiment) -> tuple[float, float, float] | None:
    """Return mean and 95 % interval of the described host's throughput over all used trials; None without any."""
    rates = []
    for directory in experiment.directories():
        scales = {trial.id: trial.time_scale for trial in read_run(directory).plan}
        analysis = read_analysis(directory)
        if not analysis.trials_used:
            raise LabError(
                f"{directory}: no trial of the calibration passed its gates; `waylab show {directory}` says why"
            )
        rates += [
            trial.numbers.throughput_per_s * scales[trial.id]
            for trial in analysis.trials
            if trial.used and trial.numbers
        ]
    if not rates:
        return None
    found = geometric_interval(rates)
    mean = found.mean or 0.0
    # One trial has no interval.
    return mean, found.low or mean, found.high or mean
