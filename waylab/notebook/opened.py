"""One finished run: what a notebook user finds by pressing Tab."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from waylab.analysis import read_analysis
from waylab.analysis.across.contrasts.versions import MARGIN, METRICS, compare_runs
from waylab.errors import LabError
from waylab.notebook import frames
from waylab.notebook.columns import FactorColumns
from waylab.notebook.comparison import ComparedRuns
from waylab.notebook.fitted import FittedRuns, Given
from waylab.notebook.record_frames import recorded_programs, records_frame
from waylab.runfolder.analysis import Analysis
from waylab.runfolder.files import read_run
from waylab.runfolder.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

    from waylab.report.figures.figure import AnyChart, Figure

    # A run, or the path of a run folder.
    RunLike: TypeAlias = "OpenedRun | str | PathLike[str]"

# Rows of a summary, and names in an error.
_SHOWN_ROWS, _NAMED_MAX = 12, 6


class OpenedRun:
    """A finished run: its numbers as pandas data frames, its figures, and models fitted to it.

    Times are seconds (`_s`), rates are per second (`_per_s`), shares are between 0 and 1. What a run does not have
    raises `waylab.LabError` with one line.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.directory = Path(path)
        self.run: Run = read_run(self.directory)

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.run.name

    @property
    def question(self) -> str:
        """What the experiment asks."""
        return self.run.spec.question

    @cached_property
    def analysis(self) -> Analysis:
        """Everything that `analysis.json` has; times are nanoseconds there."""
        return read_analysis(self.directory)

    @property
    def answer(self) -> list[str]:
        """What was found, in sentences."""
        return [*self.analysis.headline.sentences, *self.analysis.headline.warnings]

    @cached_property
    def trials(self) -> DataFrame:
        """One row for each trial of the plan: levels, whether it was used and why not, and its numbers."""
        return frames.trials_frame(self.run, self.analysis)

    @cached_property
    def configurations(self) -> DataFrame:
        """One row for each configuration: means over its used trials with 95 % intervals."""
        return frames.configurations_frame(self.run, self.analysis)

    @cached_property
    def stages(self) -> DataFrame:
        """One row for each configuration, operation and stage: mean with interval, and percentiles."""
        return frames.stages_frame(self.run, self.analysis)

    @cached_property
    def percentiles(self) -> DataFrame:
        """One row for each configuration, operation and percentile of the response time."""
        return frames.percentiles_frame(self.run, self.analysis)

    @cached_property
    def seconds(self) -> DataFrame:
        """One row for each second of each trial, warm-up included."""
        return frames.seconds_frame(self.directory, self.run, self.analysis)

    @property
    def programs(self) -> list[str]:
        """The programs that left records, for `records`."""
        return recorded_programs(self.directory, self.run)

    def records(self, program: str, trial: str | None = None, *, legs: bool = False) -> DataFrame:
        """One row for each request that a program recorded: fields, intervals in seconds, stamps in nanoseconds.

        A row takes about 200 bytes of memory, so choose a `trial` of a long run. `legs` adds the rows of single legs.
        Of a whole run, a trial with a damaged record file is left out with a warning that names it.

        Raises:
            LabError: for an unknown trial, a damaged record file of `trial`, or without records of this program.
        """
        wanted = [one for one in self.run.plan if trial is None or one.id == trial]
        if not wanted:
            known = [one.id for one in self.run.plan]
            raise LabError(f"{self.directory}: no trial {trial!r}; {_nearest(str(trial), known)}")
        return records_frame(self.directory, self.run, program, wanted, legs)

    @cached_property
    def figures(self) -> dict[str, str]:
        """The figures of the report: titles by name."""
        return {name: figure.title for name, figure in self._figures.items()}

    def figure(self, name: str) -> AnyChart:
        """Return a figure of the report as an Altair chart.

        Raises:
            LabError: if the run has no figure of this name.
        """
        from waylab.report.figures import style  # noqa: PLC0415

        found = self._figures.get(name)
        if found is None:
            raise LabError(f"{self.directory}: no figure {name!r}; {_nearest(name, list(self._figures))}")
        chart = found.titled
        chart.config = style.chart_config()
        return chart

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        # Charts take a second to import, so that frames do not wait for them.
        from waylab.report.page.content import read_content  # noqa: PLC0415
        from waylab.report.write import draw  # noqa: PLC0415

        return {figure.name: figure for figure in draw(read_content(self.directory))}

    def compare(
        self,
        candidate: RunLike | Sequence[RunLike],
        baseline: RunLike | Sequence[RunLike] = (),
        *,
        margin: float = MARGIN,
        metrics: Sequence[str] = METRICS,
    ) -> ComparedRuns:
        """Compare this run (the old version) with one or several runs of the same specification (the new one).

        `baseline` are further runs of the old version: a verdict takes two runs of each side. `margin` is the largest
        loss that is no worse, as a share.

        Raises:
            LabError: for runs of different specifications, the same run twice, or an unknown metric.
        """
        wanted = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        if not isinstance(margin, int | float):
            raise LabError(f"compare: margin {margin!r} should be a number such as {MARGIN}")
        old = [self.directory, *_directories(baseline)]
        return ComparedRuns(compare_runs(old, _directories(candidate), margin, wanted))

    def fit(self, *others: RunLike) -> FittedRuns:
        """Fit all models to the used trials of this run and of others of the same system; takes seconds to minutes.

        Raises:
            LabError: for fewer than three configurations, or if no model can be fitted.
        """
        fitted = FittedRuns([self.directory, *map(_directory, others)])
        # Models are fitted now, so that a run that allows none fails here.
        assert fitted.weights
        return fitted

    def predict(self, *, all_models: bool = False, **settings: Given) -> DataFrame:
        """Predict other settings, such as `clients=500` or `clients=[100, 200]`, with 90 % intervals.

        The same as `run.fit().predict(...)`, which describes it.
        """
        return self._predictor.predict(all_models=all_models, **settings)

    @cached_property
    def _predictor(self) -> FittedRuns:
        return FittedRuns([self.directory])

    def __repr__(self) -> str:
        """Return name, question, answer, the throughput of each configuration, and the names of the figures."""
        shown = self._summary().to_string(index=False)
        return "\n".join(
            [self._title, self.question, *self.answer, "", shown, *self._left_out, "", self._drawn()]
        )

    def _repr_html_(self) -> str:
        """Return the same as HTML."""
        answer = "".join(f"<li>{escape(text)}</li>" for text in self.answer)
        shown = self._summary().to_html(index=False, na_rep="")
        left_out = "".join(f"<p>{escape(text)}</p>" for text in self._left_out)
        return (
            f"<p><b>{escape(self._title)}</b><br>{escape(self.question)}</p><ul>{answer}</ul>{shown}{left_out}"
            f"<p>{escape(self._drawn())}</p>"
        )

    @property
    def _left_out(self) -> list[str]:
        """How many configurations the summary of a long run leaves out."""
        more = len(self.configurations) - _SHOWN_ROWS
        plural = "s" if more > 1 else ""
        return [f"{more} more configuration{plural} in run.configurations"] if more > 0 else []

    def _drawn(self) -> str:
        """Return the names of the figures; a run that cannot be drawn still has its numbers."""
        try:
            return f"Figures: {', '.join(self.figures) or 'none'}"
        except LabError as error:
            return f"Figures: none ({error})"

    @property
    def _title(self) -> str:
        used, total = self.analysis.trials_used, self.analysis.trials_total
        return f"{self.name} ({self.directory.name}): {used} of {total} trials used"

    def _summary(self) -> DataFrame:
        """The throughput and the mean response time of each configuration, the first rows of a long run."""
        found = self.configurations
        columns = [name for name in found.columns if name in _SUMMARY] or [*found.columns]
        factors = FactorColumns(self.run.spec).names or ["configuration"]
        return found[[*factors, *columns]].head(_SHOWN_ROWS)


_SUMMARY = ("used", "throughput_per_s", "throughput_per_s_low", "throughput_per_s_high", "response_mean_s")


def _directory(run: RunLike) -> Path:
    return run.directory if isinstance(run, OpenedRun) else Path(run)


def _directories(runs: RunLike | Sequence[RunLike]) -> list[Path]:
    if isinstance(runs, OpenedRun | str | PathLike):
        return [_directory(runs)]
    return [_directory(run) for run in runs]


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    return f"known: {', '.join(known[:_NAMED_MAX])}{more}" if known else "it has none"
