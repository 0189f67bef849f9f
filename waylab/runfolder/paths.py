"""The names of the files in a run folder, and the versions of their formats."""

from pathlib import Path

RUN_FORMAT = "waylab-run/2"
TRIAL_FORMAT = "waylab-trial/1"
ANALYSIS_FORMAT = "waylab-analysis/1"
PREDICTIONS_FORMAT = "waylab-predictions/1"
ENVIRONMENT_FORMAT = "waylab-environment/1"
STOPPING_FORMAT = "waylab-stopping/1"
LOAD_FORMAT = "waystage-load/1"
COMPARE_FORMAT = "waylab-compare/2"

RUN = "run.json"
SPEC = "spec.toml"
ENVIRONMENT = "environment.json"
TRIALS = "trials"
TRIAL = "trial.json"
REFUSED = "refused.json"
MANIFEST = "manifest.json"
LOAD = "load.json"
PROCESSES = "processes.csv"
MACHINE = "machine.csv"
HOSTS = "hosts.csv"
DATABASE = "database.csv"
METRICS = "metrics.csv"
LINKS = "links"
RECORDS = "records"
LOGS = "logs"
SOURCES = "sources"
STOPPING = "stopping.json"
ANALYSIS = "analysis.json"
PREDICTIONS = "predictions.json"
REPORT = "report.html"
COMPARE = "compare.json"
FIGURES = "figures"


def part_of_load(index: int) -> str:
    """Return the name of the summary of one load generator of several."""
    return f"load-{index}.json"


def seconds_of(summary: str) -> str:
    """Return the name of the file in which a load generator writes each second, from the name of its summary."""
    return summary.replace("load", "seconds").replace(".json", ".jsonl")


def trial_directory(directory: Path, trial_id: str) -> Path:
    """Where a trial keeps its files."""
    return directory / TRIALS / trial_id


def run_directory(trial_directory: Path) -> Path:
    """Where the run of a trial keeps its files."""
    return trial_directory.parent.parent
