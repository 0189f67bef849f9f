"""Before a study: finds the share of a core with which a host has the throughput of the study's host.

A run with one configuration measures the throughput, and the share changes in proportion, until both agree. The runs
stay in the folder of the study, so the same command finds the same share again without new trials.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from waylab.analysis import read_analysis
from waylab.cli.study.runs import Experiment, read_experiment
from waylab.errors import LabError
from waylab.runfolder.files import read_run, write_bytes
from waylab.spec import CALIBRATION, Study, calibration_spec, toml_text

# The mean throughput and the wanted one agree if they differ by at most this share.
WITHIN = 0.03
_ATTEMPTS = 5


@dataclass(frozen=True)
class Calibrated:
    """A study with the share of a core that was found, and a sentence about it; without one, nothing was measured."""

    study: Study
    said: str = ""
    # Whether a run is missing that would show the share.
    missing: bool = False


def calibrate(
    study: Study, folder: Path, scale: str, measure: Callable[[Experiment], None] | None
) -> Calibrated:
    """Return the study with the share of a core of its calibrated host; `measure` runs what is missing of a run.

    Without `measure`, only the runs that exist are used.

    Raises:
        LabError: if the throughput does not come close, or no trial passed its gates.
    """
    if study.calibration is None:
        return Calibrated(study)
    wanted, cores, seen = study.calibration.throughput_per_s, study.calibration.cores, list[str]()
    for _ in range(_ATTEMPTS):
        path = folder / f"{CALIBRATION}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, toml_text(calibration_spec(study, study.calibration, cores)).encode())
        experiment = read_experiment(path, folder.parent, scale)
        if measure:
            measure(experiment)
            experiment = read_experiment(path, folder.parent, scale)
        found = _throughput(experiment)
        if found is None:
            return Calibrated(study.with_cores(cores), missing=True)
        seen.append(f"{found:,.0f}/s with {cores:g} cores")
        if abs(found / wanted - 1) <= WITHIN:
            return Calibrated(
                study.with_cores(cores),
                f"Calibration: {study.calibration.host} has {cores:g} cores, with which it answers {found:,.0f} "
                f"requests/s in the configuration in which the study had {wanted:,.0f}.",
            )
        cores = round(cores * wanted / found, 4)
    raise LabError(
        f"study {study.name}: {study.calibration.host} does not come within {100 * WITHIN:g} % of {wanted:,.0f} "
        f"requests/s ({', '.join(seen)}); measure on an idle machine, or correct throughput_per_s"
    )


def _throughput(experiment: Experiment) -> float | None:
    """Return the mean throughput of the described host over all used trials; None if nothing is measured."""
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
    return sum(rates) / len(rates) if rates else None
