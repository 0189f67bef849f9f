"""Arguments of the commands that fit models to runs: fit, predict."""

from pathlib import Path
from typing import Any

from waylab.cli.later import later

_COMMANDS = "waylab.cli.fit_commands"


def add_fit_commands(parts: Any) -> None:
    """Add these commands to those of `waylab`."""
    fit = parts.add_parser(
        "fit",
        help="fit models to the trials of runs, and show the parameters and what they leave open",
        description="Fits every model to all usable trials of one or several runs of one system.",
    )
    _add_runs(fit)
    fit.set_defaults(command=later(_COMMANDS, "fit"))

    predict = parts.add_parser(
        "predict",
        help="predict a configuration that nobody measured, with 90 %% intervals",
        description="Fits models to all usable trials of runs and predicts throughput, response times, utilisation "
        "and the bottleneck of other settings. Settings that are not given have their middle measured value.",
    )
    _add_runs(predict)
    _add_set(predict)
    predict.set_defaults(command=later(_COMMANDS, "predict"))


def _add_runs(part: Any) -> None:
    part.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folders of one system, for example results/TIME-NAME",
    )
    part.add_argument("--json", action="store_true", help="print JSON")


def _add_set(part: Any) -> None:
    part.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, for example clients=500, servers=7, replicas=full, writes=1:4, value=4k; repeat it",
    )
