"""The command `waylab study`: runs all experiments of a study, resumed where they stopped, and lists their findings."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from waylab.cli.commands import conclude, minutes, run_campaign
from waylab.errors import LabError
from waylab.plan import Plan, make_plan
from waylab.predict import check_models
from waylab.report import show_findings, write_findings
from waylab.run import create_run, resume_run
from waylab.runfolder import paths
from waylab.runfolder.files import read_run, read_trial
from waylab.runfolder.trial import MEASURED
from waylab.spec import Spec, Study, read_spec, read_study, with_changes, write_specs
from waylab.testbed import Machine, check_requirements

_SPECS = "specs"
# Starting and stopping the programs of emulated hosts took 2 to 9 s a trial, and 8 to 16 s with a database.
_START_AND_STOP_S = 6.0


@dataclass(frozen=True)
class _Experiment:
    """One experiment of the study: its specification, its plan, and its run folder once it has one."""

    path: Path
    spec: Spec
    plan: Plan
    directory: Path | None

    def measured(self) -> dict[str, float]:
        """Return the names of the measured trials, and how long each took."""
        if self.directory is None:
            return {}
        outcomes = [read_trial(self.directory, trial.id) for trial in self.plan.trials]
        return {one.id: one.took_s for one in outcomes if one and one.status == MEASURED}

    def left_s(self) -> float:
        """Return the expected duration of the trials that are not measured."""
        if self.directory and (self.directory / paths.ANALYSIS).is_file():
            return 0.0
        done = self.measured()
        left = [trial for trial in self.plan.trials if trial.id not in done]
        load_s = sum(trial.expected_s for trial in self.plan.trials if trial.id in done)
        # The measured trials show how long programs take to start and to stop on this machine.
        more_s = (sum(done.values()) - load_s) / len(done) if done else _START_AND_STOP_S
        return sum(trial.expected_s + more_s for trial in left)

    def all_s(self) -> float:
        """Return the expected duration of all trials."""
        return self.plan.expected_s + _START_AND_STOP_S * len(self.plan.trials)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing of a study, and write its findings."""
    study = _at_time_scale(read_study(arguments.study), arguments.time_scale)
    folder = arguments.results / "-".join(
        [study.name, arguments.scale, *([f"x{arguments.time_scale:g}"] if arguments.time_scale else [])]
    )
    experiments = _experiments(study, folder, arguments.scale)
    console = Console(highlight=False)
    console.print(_table(study, experiments))
    left_s, all_s = sum(one.left_s() for one in experiments), sum(one.all_s() for one in experiments)
    console.print(f"about {minutes(all_s)} in all, {minutes(left_s)} left; results: {folder}", soft_wrap=True)
    machine = Machine()
    for one in experiments:
        check_requirements(one.spec.testbed, one.plan.trials, machine)
    if arguments.plan:
        return 0
    code, directories = 0, []
    log = Console(stderr=True, highlight=False)
    for number, one in enumerate(experiments, 1):
        log.print(f"[bold]{one.spec.name}[/bold], experiment {number} of {len(experiments)}", soft_wrap=True)
        campaign = (
            resume_run(one.directory) if one.directory else create_run(one.path, folder, arguments.scale)
        )
        directories.append(campaign.directory)
        if campaign.waiting() or not (campaign.directory / paths.REPORT).is_file():
            run_campaign(campaign, log, arguments.interrupt)
            code = max(code, conclude(campaign.directory, log, summary=False))
    path = write_findings(directories, folder / "findings.md", study.title)
    show_findings(directories, console)
    console.print(f"{path}", soft_wrap=True)
    return code


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


def _experiments(study: Study, folder: Path, scale: str) -> list[_Experiment]:
    """Read every specification before anything runs, and find the run folders that already exist."""
    found = []
    for path in write_specs(study, folder / _SPECS).values():
        spec = read_spec(path, scale)
        try:
            check_models(rule.model for rule in spec.refuted_by)
        except LabError as error:
            raise LabError(f"{path}: {error}") from None
        found.append(_Experiment(path, spec, make_plan(spec), _run_of(path, folder)))
    return found


def _run_of(path: Path, folder: Path) -> Path | None:
    """Return the latest run folder of exactly this specification."""
    text = path.read_bytes()
    runs = sorted(run.parent for run in folder.glob(f"*/{paths.RUN}"))
    same = [run for run in runs if (run / paths.SPEC).read_bytes() == text and read_run(run)]
    return same[-1] if same else None


def _table(study: Study, experiments: list[_Experiment]) -> Table:
    table = Table(title=study.title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("experiment", no_wrap=True)
    for heading in ("configurations", "blocks", "trials", "measured", "findings", "duration"):
        table.add_column(heading, justify="right")
    for one in experiments:
        trials = one.plan.trials
        table.add_row(
            one.spec.name,
            str(len({trial.configuration for trial in trials})),
            str(max(trial.block for trial in trials)),
            str(len(trials)),
            str(len(one.measured())),
            str(len(one.spec.published.findings)),
            minutes(one.all_s()),
        )
    return table
