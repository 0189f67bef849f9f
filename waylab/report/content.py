"""Everything a report is made of, read from the run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waylab.analysis import read_analysis
from waylab.predict import read_predictions
from waylab.runfolder import paths
from waylab.runfolder.files import read_json, read_run


@dataclass(frozen=True)
class Content:
    """The JSON files of a run."""

    directory: Path
    run: dict[str, Any]
    environment: dict[str, Any]
    analysis: dict[str, Any]
    predictions: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        """The specification, resolved."""
        return dict(self.run["spec"])

    @property
    def axes(self) -> dict[str, Any]:
        """Which factor goes along the figures."""
        return dict(self.analysis["axes"])

    @property
    def middle(self) -> str:
        """What stands between the load and the rest, in a word."""
        return str(self.spec["system"]["description"]["middle"])

    @property
    def operations(self) -> list[str]:
        """The operations that are told apart: get and set, or those of a message service."""
        return list(
            dict.fromkeys(name for one in self.configurations for name in one["operations"] if name != "all")
        )

    @property
    def operations_with_stages(self) -> list[str]:
        """Of all operations that records can name, those whose stages are shown apart."""
        systems = [trial["system"]["description"] for trial in self.run["plan"]]
        return list(dict.fromkeys(name for system in systems for name in system["operations"]))

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """The configurations that have at least one usable trial."""
        return [configuration for configuration in self.analysis["configurations"] if configuration["used"]]

    @property
    def facts(self) -> list[str]:
        """What the measurement and the models say, in sentences."""
        return [*self.analysis["facts"], *self.predictions["facts"]]

    @property
    def series(self) -> list[str]:
        """The names of the lines, in order."""
        return list(
            dict.fromkeys(configuration["series"] for configuration in self.analysis["configurations"])
        )

    def trial_file(self, trial_id: str) -> dict[str, Any] | None:
        """What the run wrote about one trial, if it was run."""
        path = paths.trial_directory(self.directory, trial_id) / paths.TRIAL
        return read_json(path, paths.TRIAL_FORMAT, "") if path.is_file() else None


def read_content(directory: Path) -> Content:
    """Read the JSON files of a run."""
    run = read_run(directory)
    return Content(
        directory,
        run,
        read_json(directory / paths.ENVIRONMENT, paths.ENVIRONMENT_FORMAT, "the run folder is incomplete"),
        read_analysis(directory),
        read_predictions(directory),
    )
