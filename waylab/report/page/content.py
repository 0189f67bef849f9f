"""Everything a report is made of, read from the run folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from waylab.analysis import read_analysis
from waylab.predict import read_predictions
from waylab.runfolder import paths
from waylab.runfolder.analysis import Analysis, Axes, Configuration
from waylab.runfolder.environment import Environment
from waylab.runfolder.files import read, read_run, read_trial
from waylab.runfolder.prediction import Predictions
from waylab.runfolder.run import ExperimentSpec, Run
from waylab.runfolder.trial import TrialOutcome
from waylab.runfolder.words import levels_text


@dataclass(frozen=True)
class Content:
    """The JSON files of a run."""

    directory: Path
    run: Run
    environment: Environment
    analysis: Analysis
    predictions: Predictions

    @property
    def spec(self) -> ExperimentSpec:
        """The specification, resolved."""
        return self.run.spec

    @property
    def axes(self) -> Axes:
        """Which factor goes along the figures."""
        return self.analysis.axes

    @property
    def middle(self) -> str:
        """What stands between the load and the rest, in a word."""
        return self.spec.description.middle

    @property
    def of_messages(self) -> bool:
        """Whether the load speaks to message services."""
        return self.spec.description.protocol == "messages"

    @property
    def open_loop(self) -> bool:
        """Whether requests are due at a rate, whether replies arrive or not, in some trial."""
        return any(trial.load.rate for trial in self.run.plan)

    @property
    def operations(self) -> list[str]:
        """The operations that are shown apart: get and set, or those of a message service."""
        names = _distinct(name for one in self.configurations for name in one.operations)
        return [name for name in names if name != "all"]

    @property
    def operations_with_stages(self) -> list[str]:
        """Of all operations that records can name, those whose stages are shown apart."""
        return _distinct(name for trial in self.run.plan for name in trial.description.operations)

    @property
    def configurations(self) -> list[Configuration]:
        """The configurations that have at least one usable trial."""
        return [configuration for configuration in self.analysis.configurations if configuration.used]

    def label(self, name: str) -> str:
        """Return the levels of a configuration in words, without the factors that have one level only."""
        return self._labels.get(name, name)

    @cached_property
    def _labels(self) -> dict[str, str]:
        varied = {factor.name for factor in self.spec.factors if len(factor.levels) > 1}
        return {
            c.name: levels_text({factor: label for factor, label in c.levels.items() if factor in varied})
            or c.name
            for c in self.analysis.configurations
        }

    @property
    def servers(self) -> list[str]:
        """The servers that ran, in alphabetical order."""
        found = {trial.numbers.server for trial in self.analysis.trials if trial.numbers}
        return sorted(server for server in found if server)

    @property
    def facts(self) -> list[str]:
        """What the measurement and the models say, in sentences."""
        return [*self.analysis.facts, *self.predictions.facts]

    @property
    def series(self) -> list[str]:
        """The names of the lines, in order."""
        return _distinct(configuration.series for configuration in self.analysis.configurations)

    def trial_outcome(self, trial_id: str) -> TrialOutcome | None:
        """Return the outcome of one trial, if it was run."""
        return read_trial(self.directory, trial_id)


def read_content(directory: Path) -> Content:
    """Read the JSON files of a run."""
    return Content(
        directory,
        read_run(directory),
        read(directory / paths.ENVIRONMENT, Environment),
        read_analysis(directory),
        read_predictions(directory),
    )


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
