"""Function 8 of docs/life-of-an-experiment.md: reads and judges the trials of a run, and writes `analysis.json`."""

from pathlib import Path

from msgspec.structs import replace

from waylab.analysis.across.answer.facts import answer, facts, families
from waylab.analysis.across.answer.headline import headline
from waylab.analysis.across.answer.published import published_results
from waylab.analysis.across.answer.rules import rule_results
from waylab.analysis.across.axes import axes
from waylab.analysis.across.configurations import configuration_results
from waylab.analysis.across.contrasts.changes import changes
from waylab.analysis.across.contrasts.comparisons import comparison_results
from waylab.analysis.across.contrasts.effects import factorial
from waylab.analysis.across.curves import curve_results
from waylab.analysis.trial.agreement import other_machines
from waylab.analysis.trial.artifacts import read_artifacts
from waylab.analysis.trial.links import testbed_summary
from waylab.analysis.trial.numbers import TrialResult, trial_result
from waylab.analysis.trial.within import steady_state
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis
from waylab.runfolder.files import read, read_run, read_stopping, write
from waylab.runfolder.results import check_seal, seal
from waylab.version import __version__


def analyse(directory: Path) -> Analysis:
    """Analyse a run folder and write the result into it."""
    run = read_run(directory)
    spec = run.spec
    found = [read_artifacts(directory, planned) for planned in run.plan]
    other_machines(found)
    trials = [trial_result(artifacts, spec.gates) for artifacts in found]
    contents = [trial.content for trial in trials]
    chosen = axes(spec)
    configurations = configuration_results(run.plan, trials, chosen)
    content = Analysis(
        format=paths.ANALYSIS_FORMAT,
        waylab=__version__,
        name=run.name,
        complete=all(trial.run for trial in contents),
        axes=chosen,
        stopping=read_stopping(directory),
        testbed=testbed_summary([one for one in found if one.outcome]),
        trials=contents,
        trials_used=sum(trial.used for trial in contents),
        trials_total=len(contents),
        configurations=configurations,
        comparisons=comparison_results(spec.compare, contents),
        steady_state=steady_state(contents),
        curves=curve_results(spec, configurations, trials, chosen),
        changes=changes(spec, configurations, contents),
        factorial=factorial(spec, contents),
        published=published_results(spec.published, contents),
        rules=rule_results(spec.refuted_by, contents),
        headline=headline(chosen, configurations, trials),
    )
    content = replace(content, answer=answer(content), families=families(content))
    path = directory / paths.ANALYSIS
    write(path, replace(content, facts=facts(content, spec.gates)))
    seal(directory, stale=(paths.PREDICTIONS,))
    return read(path, Analysis)


def analyse_trial(directory: Path, trial_id: str) -> TrialResult:
    """Analyse a single trial while the run goes on."""
    run = read_run(directory)
    planned = next(planned for planned in run.plan if planned.id == trial_id)
    return trial_result(read_artifacts(directory, planned), run.spec.gates)


def read_analysis(directory: Path) -> Analysis:
    """Read the analysis of a run."""
    read_run(directory)
    content = read(directory / paths.ANALYSIS, Analysis)
    check_seal(directory, paths.ANALYSIS)
    return content
