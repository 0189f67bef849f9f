"""Station 8 of docs/life-of-an-experiment.md: reads and judges the trials of a run, and writes `analysis.json`."""

from pathlib import Path
from typing import Any

from waylab import __version__
from waylab.analysis.artifacts import read_artifacts
from waylab.analysis.axes import axes
from waylab.analysis.changes import changes
from waylab.analysis.comparisons import comparison_results
from waylab.analysis.configurations import configuration_results
from waylab.analysis.curves import curve_results
from waylab.analysis.effects import factorial
from waylab.analysis.facts import facts
from waylab.analysis.links import testbed_summary
from waylab.analysis.published import published_facts, published_results
from waylab.analysis.trial import TrialResult, trial_result
from waylab.analysis.within import steady_state
from waylab.runfolder import paths
from waylab.runfolder.files import read_json, read_run, read_stopping, write_json


def analyse(directory: Path) -> dict[str, Any]:
    """Analyse a run folder and write the result into it."""
    run = read_run(directory)
    spec = run["spec"]
    trials, places = [], []
    for planned in run["plan"]:
        found = read_artifacts(directory, planned)
        trials.append(trial_result(found, spec["gates"]))
        if found.result:
            places.append((found.plan, found.testbed))
    chosen = axes(spec)
    content: dict[str, Any] = {
        "format": paths.ANALYSIS_FORMAT,
        "waylab": __version__,
        "name": run["name"],
        "complete": all(trial.content["run"] for trial in trials),
        "axes": chosen,
        "stopping": read_stopping(directory),
        "testbed": testbed_summary(places),
        "trials": [trial.content for trial in trials],
        "trials_used": sum(trial.used for trial in trials),
        "trials_total": len(trials),
        "configurations": configuration_results(run["plan"], trials, chosen),
        "comparisons": comparison_results(spec, trials),
    }
    content["steady_state"] = steady_state(content["trials"])
    content["curves"] = curve_results(spec, content["configurations"], trials, chosen)
    content["changes"] = changes(spec, content["configurations"], trials)
    content["factorial"] = factorial(spec, trials)
    content["published"] = published_results(spec, trials)
    content["facts"] = facts(content) + published_facts(content["published"])
    write_json(directory / paths.ANALYSIS, content)
    return read_json(directory / paths.ANALYSIS, paths.ANALYSIS_FORMAT, "")


def analyse_trial(directory: Path, trial_id: str) -> TrialResult:
    """Analyse a single trial, for those who watch a run."""
    run = read_run(directory)
    planned = next(planned for planned in run["plan"] if planned["id"] == trial_id)
    return trial_result(read_artifacts(directory, planned), run["spec"]["gates"])


def read_analysis(directory: Path) -> dict[str, Any]:
    """Read the analysis of a run."""
    read_run(directory)
    return read_json(
        directory / paths.ANALYSIS, paths.ANALYSIS_FORMAT, f"make it with: waylab analyse {directory}"
    )
