"""The runs of one experiment of a study: which exist, what is missing, and the findings of all of them together."""

from dataclasses import dataclass, field
from pathlib import Path

from msgspec import convert

from waylab import bounded
from waylab.analysis import findings_of, read_analysis
from waylab.cli.block_rule import disturbances
from waylab.errors import LabError
from waylab.plan import Plan, make_plan
from waylab.predict import check_models
from waylab.runfolder import paths
from waylab.runfolder.analysis import PublishedResults
from waylab.runfolder.files import read_run, read_trial, write_bytes
from waylab.runfolder.run import PublishedStudy
from waylab.runfolder.trial import MEASURED
from waylab.spec import FULL, Spec, read_spec, spec_as_dict, toml_text, with_changes
from waylab.spec.tables import Table

# Starting and stopping the programs of emulated hosts took 2 to 9 s a trial, and 8 to 16 s with a database.
_START_AND_STOP_S = 6.0
_BLOCKS_MIN = 2


@dataclass(frozen=True)
class StudyRun:
    """One run of an experiment: its plan, and its folder once it has one."""

    plan: Plan
    directory: Path | None = None

    def measured(self) -> dict[str, float]:
        """Return the names of the measured trials, and how long each took. Those that run again are left out."""
        if self.directory is None:
            return {}
        outcomes = [read_trial(self.directory, trial.id) for trial in self.plan.trials]
        again = self._again() or set()
        return {
            one.id: one.took_s for one in outcomes if one and one.status == MEASURED and one.id not in again
        }

    def _again(self) -> set[str] | None:
        """Return the trials of an analysed run that other programs disturbed; None before the analysis."""
        if self.directory is None or not (self.directory / paths.ANALYSIS).is_file():
            return None
        return {trial.id for trial in read_analysis(self.directory).trials if disturbances(trial)}

    def finished(self) -> bool:
        """Return whether all trials are measured, analysed and reported."""
        return (
            self.directory is not None
            and (self.directory / paths.REPORT).is_file()
            and len(self.measured()) == len(self.plan.trials)
        )

    def left_s(self) -> float:
        """Return the expected duration of the trials that are not measured, and of those that run again."""
        again, done = self._again(), self.measured()
        # A stopping rule can end a run before all planned blocks.
        left = [
            trial
            for trial in self.plan.trials
            if (trial.id not in done if again is None else trial.id in again)
        ]
        load_s = sum(trial.expected_s for trial in self.plan.trials if trial.id in done)
        # The measured trials show how long programs take to start and to stop on this machine.
        more_s = (sum(done.values()) - load_s) / len(done) if done else _START_AND_STOP_S
        return sum(trial.expected_s + more_s for trial in left)

    def all_s(self) -> float:
        """Return the expected duration of all trials."""
        return self.plan.expected_s + _START_AND_STOP_S * len(self.plan.trials)

    def blocks(self) -> int:
        """Return the number of blocks of the plan."""
        return max(trial.block for trial in self.plan.trials)


@dataclass(frozen=True)
class Experiment:
    """One experiment of a study: its specification, the content of its file, and its runs in the order they began."""

    content: Table
    spec: Spec
    path: Path
    scale: str
    runs: list[StudyRun] = field(default_factory=list)

    def blocks(self) -> int:
        """Return the number of blocks of all runs."""
        return sum(one.blocks() for one in self.runs)

    def directories(self) -> list[Path]:
        """Return the folders of the runs that have an analysis."""
        found = [one.directory for one in self.runs if one.directory]
        return [one for one in found if (one / paths.ANALYSIS).is_file()]

    def findings(self) -> PublishedResults | None:
        """Judge the specification's findings by the used trials of all runs; None without findings."""
        published = convert(spec_as_dict(self.spec)["published"], PublishedStudy)
        return findings_of(published, [read_analysis(directory) for directory in self.directories()])


def read_experiment(path: Path, folder: Path, scale: str) -> Experiment:
    """Read the specification of an experiment, and find its runs in a folder."""
    spec = _read(path, scale)
    content = bounded.read_toml(path)
    found = []
    for run in sorted(folder.glob(f"*/{paths.RUN}")):
        directory = run.parent
        if _measured_part(_content(directory / paths.SPEC)) == _measured_part(content):
            found.append(
                StudyRun(make_plan(_read(directory / paths.SPEC, read_run(directory).scale)), directory)
            )
    return Experiment(content, spec, path, scale, found)


def missing_run(experiment: Experiment, blocks: int | None, folder: Path) -> tuple[Path, StudyRun] | None:
    """Return the run that is missing, with the file of its specification: the first one, or one with more blocks.

    `blocks` is the number of blocks that all runs together should have. Later blocks have another seed, so that
    their trials have other keys and another order.
    """
    have, first = experiment.blocks(), StudyRun(make_plan(experiment.spec))
    if not have and (blocks is None or blocks == first.blocks()):
        return experiment.path, first
    if blocks is None or have >= blocks:
        return None
    path = folder / f"{experiment.spec.name}-from-{have + 1}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run with too few blocks for its own comparisons would be refused.
    more = max(blocks - have, _BLOCKS_MIN)
    changes: Table = {"design": {"blocks": more, "seed": experiment.spec.design.seed + 1000 * have}}
    if experiment.scale != FULL:
        changes["scale"] = {experiment.scale: {"blocks": more}}
    write_bytes(path, toml_text(with_changes(experiment.content, changes, "blocks")).encode())
    return path, StudyRun(make_plan(_read(path, experiment.scale)))


def _read(path: Path, scale: str) -> Spec:
    spec = read_spec(path, scale)
    try:
        check_models(rule.model for rule in spec.refuted_by)
    except LabError as error:
        raise LabError(f"{path}: {error}") from None
    return spec


def _content(path: Path) -> Table:
    try:
        return bounded.read_toml(path)
    except (FileNotFoundError, bounded.UnreadableError) as error:
        problem = error if isinstance(error, bounded.UnreadableError) else "not found"
        raise LabError(f"{path}: {problem}; restore it, or move {path.parent} away") from None


def _measured_part(content: Table) -> Table:
    """Return what determines the trials of a block: everything but the findings, the blocks and the seed."""
    kept = {key: value for key, value in content.items() if key not in ("published", "design", "scale")}
    kept["design"] = _without(content.get("design"), "blocks", "seed")
    scales = content.get("scale")
    if isinstance(scales, dict):
        kept["scale"] = {name: _without(scale, "blocks") for name, scale in scales.items()}
    return kept


def _without(content: object, *keys: str) -> object:
    return (
        {key: value for key, value in content.items() if key not in keys} if isinstance(content, dict) else {}
    )
