"""The command `waylab study`: runs what is missing of all experiments of a study, and writes its findings."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.cli.block_rule import TrialJudge
from waylab.cli.commands import conclude, minutes, run_campaign
from waylab.cli.study.calibration import calibrate
from waylab.cli.study.runs import Experiment, StudyRun, missing_run, read_experiment
from waylab.errors import LabError
from waylab.report import ExperimentFindings, show_findings, write_findings, write_list
from waylab.run import create_run, resume_run
from waylab.runfolder import paths
from waylab.spec import CALIBRATION, QUICK, Study, read_study, with_changes, write_specs
from waylab.testbed import Machine, check_requirements

_SPECS = "specs"
_NOT_CALIBRATED = "The calibration is not measured yet: the hosts have the cores of the study's file."
# For each experiment, the file of its specification and the run that is still missing.
_Added = dict[str, tuple[Path, StudyRun] | None]


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing of each study, and write its findings."""
    if arguments.plan and arguments.findings:
        raise LabError("study: give either --plan or --findings")
    studies = [_at_time_scale(read_study(path), arguments.time_scale) for path in arguments.study]
    names = [study.name for study in studies]
    for path, name in zip(arguments.study, names, strict=True):
        if names.count(name) > 1:
            raise LabError(
                f"{path}: name = {name!r}: names a study twice; their results would be in one folder"
            )
    if arguments.document:
        # Found before the trials, which may take hours.
        try:
            arguments.document.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{arguments.document}: cannot be created: {error.strerror}") from None
    return max(_study(arguments, study, path) for study, path in zip(studies, arguments.study, strict=True))


def _study(arguments: argparse.Namespace, study: Study, path: Path) -> int:
    folder = arguments.results / "-".join(
        [study.name, arguments.scale, *([f"x{arguments.time_scale:g}"] if arguments.time_scale else [])]
    )
    # Every specification is read before anything runs.
    _read(write_specs(study, folder / _SPECS), folder, arguments.scale)
    console = Console(highlight=False)
    log = Console(stderr=True, highlight=False)
    code = 0
    calibrated = calibrate(
        study,
        folder / _SPECS,
        arguments.scale,
        None if arguments.plan or arguments.findings else partial(_calibration_run, arguments, folder, log),
    )
    if calibrated.said or calibrated.missing:
        console.print(calibrated.said or _NOT_CALIBRATED, soft_wrap=True)
    study = calibrated.study
    specs = write_specs(study, folder / _SPECS)
    experiments = _read(specs, folder, arguments.scale)
    if not arguments.findings:
        added = {
            name: missing_run(one, arguments.blocks, folder / _SPECS) for name, one in experiments.items()
        }
        _show_plan(study, experiments, added, folder, console)
        if arguments.plan:
            return 0
        for number, (name, one) in enumerate(experiments.items(), 1):
            log.print(f"[bold]{name}[/bold], experiment {number} of {len(experiments)}", soft_wrap=True)
            code = max(code, _run_missing(arguments, one, added[name], folder, log))
        experiments = _read(specs, folder, arguments.scale)
    found = [
        ExperimentFindings(name, one.directories(), one.findings(), name in study.controls)
        for name, one in experiments.items()
    ]
    _write(arguments, study, path, folder, found, console, calibrated.said)
    return code


def _calibration_run(
    arguments: argparse.Namespace, folder: Path, log: Console, experiment: Experiment, blocks: int | None
) -> None:
    """Measure what is missing of a calibration, or more of it until it has this number of blocks."""
    log.print(f"[bold]{CALIBRATION}[/bold]: {escape(experiment.spec.question)}", soft_wrap=True)
    _run_missing(arguments, experiment, missing_run(experiment, blocks, folder / _SPECS), folder, log)


def _read(specs: dict[str, Path], folder: Path, scale: str) -> dict[str, Experiment]:
    return {name: read_experiment(spec, folder, scale) for name, spec in specs.items()}


def _show_plan(
    study: Study, experiments: dict[str, Experiment], added: _Added, folder: Path, console: Console
) -> None:
    """Print what will run and how long it takes; raise LabError if this machine cannot run it."""
    planned = {
        name: [*one.runs, *([more[1]] if (more := added[name]) else [])] for name, one in experiments.items()
    }
    console.print(_table(study, experiments, planned))
    runs = [one for found in planned.values() for one in found]
    left_s, all_s = sum(one.left_s() for one in runs), sum(one.all_s() for one in runs)
    console.print(f"about {minutes(all_s)} in all, {minutes(left_s)} left; results: {folder}", soft_wrap=True)
    machine = Machine()
    for name, found in planned.items():
        for run_ in found:
            check_requirements(experiments[name].spec.testbed, run_.plan.trials, machine)


def _run_missing(
    arguments: argparse.Namespace,
    experiment: Experiment,
    added: tuple[Path, StudyRun] | None,
    folder: Path,
    log: Console,
) -> int:
    """Finish the runs of an experiment, and run the one that is missing; return the exit code."""
    code = 0
    campaigns = [resume_run(one.directory) for one in experiment.runs if one.directory and not one.finished()]
    if added:
        campaigns.append(create_run(added[0], folder, arguments.scale))
    for campaign in campaigns:
        judge = TrialJudge(campaign.directory, campaign.spec.stopping)
        if campaign.waiting(judge.disturbed) or not (campaign.directory / paths.REPORT).is_file():
            run_campaign(campaign, log, arguments.interrupt, repeat=True)
            code = max(code, conclude(campaign.directory, log, summary=False))
    return code


def _write(
    arguments: argparse.Namespace,
    study: Study,
    path: Path,
    folder: Path,
    found: Sequence[ExperimentFindings],
    console: Console,
    calibrated: str,
) -> None:
    scale = " --quick" if arguments.scale == QUICK else ""
    scale += f" --time-scale {arguments.time_scale:g}" if arguments.time_scale else ""
    command = f"waylab study {path}{scale}"
    show_findings(found, console)
    pages = [write_findings(found, folder / "findings.md", study.title, command, calibrated)]
    if arguments.document:
        command = f"{command} --document {arguments.document}"
        page = arguments.document / f"{study.name}.md"
        pages.append(write_findings(found, page, study.title, command, calibrated))
        pages.append(write_list(arguments.document))
    for page in pages:
        console.print(f"{page}", soft_wrap=True)


def _at_time_scale(study: Study, scale: float | None) -> Study:
    if scale is None:
        return study
    changes = {"testbed": {"time_scale": scale}}
    return replace(
        study,
        experiments={
            name: with_changes(content, changes, "time scale") for name, content in study.experiments.items()
        },
    )


def _table(study: Study, experiments: dict[str, Experiment], planned: dict[str, list[StudyRun]]) -> Table:
    table = Table(title=study.title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("experiment", no_wrap=True)
    for heading in ("configurations", "blocks", "trials", "measured", "findings", "duration"):
        table.add_column(heading, justify="right")
    for name, runs in planned.items():
        trials = [trial for one in runs for trial in one.plan.trials]
        table.add_row(
            name,
            str(len({trial.configuration for trial in trials})),
            str(sum(one.blocks() for one in runs)),
            str(len(trials)),
            str(sum(len(one.measured()) for one in runs)),
            str(len(experiments[name].spec.published.findings)),
            minutes(sum(one.all_s() for one in runs)),
        )
    return table
