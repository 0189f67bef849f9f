"""Judges the findings of a study by the trials of several runs of the same specification."""

from collections.abc import Sequence

from msgspec.structs import replace

from waylab.analysis.across.answer.published import published_results
from waylab.runfolder.analysis import Analysis, PublishedResults
from waylab.runfolder.run import PublishedStudy


def findings_of(published: PublishedStudy, analyses: Sequence[Analysis]) -> PublishedResults | None:
    """Compare every finding with the used trials of all runs; None without findings.

    The blocks of a run remain blocks: those of the second run follow those of the first one.
    """
    trials = []
    before = 0
    for analysis in analyses:
        trials += [replace(trial, block=before + trial.block) for trial in analysis.trials]
        before += max((trial.block for trial in analysis.trials), default=0)
    return published_results(published, trials)
