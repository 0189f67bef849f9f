"""Arguments of the commands that fit models to runs: fit, predict."""

from pathlib import Path
from typing import Any

from waylab.cli.later import later

_COMMANDS = "waylab.cli.fit.commands"


def add_fit_commands(parts: Any) -> None:
    """Add these commands to those of `waylab`."""
    fit = parts.add_parser(
        "fit",
        help="fit models to the trials of runs, and show the parameters and which of them the trials do not identify",
        description="Fits every model to all usable trials of one or several runs of one system.",
    )
    _add_runs(fit)
    fit.set_defaults(command=later(_COMMANDS, "fit"))

    predict = parts.add_parser(
        "predict",
        help="predict a configuration that was not measured, with 90 %% intervals",
        description="Fits models to all usable trials of runs and predicts throughput, response times, utilisation "
        "and the bottleneck of other settings. Settings that are not given have their middle measured value.",
    )
    _add_runs(predict)
    _add_set(predict)
    predict.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write a page with a slider for every setting that was measured at several levels; it needs no network",
    )
    predict.add_argument(
        "--profile",
        metavar="PHASES",
        help="response, queue and losses over time, for example "
        "'60s at 20k, 30s outage of one server, 60s at 20k', and the time until they are normal again",
    )
    predict.add_argument(
        "--arrivals",
        type=Path,
        metavar="FILE",
        help="with --profile: recorded times of arrival in seconds, one per line; shows bursts like these beside "
        "Poisson arrivals",
    )
    predict.set_defaults(command=later("waylab.cli.fit.profile", "predict"))

    explain = parts.add_parser(
        "explain",
        help="show where the time goes, what saturates first, and what one more of each part would bring",
        description="Fits models to all usable trials of runs and explains one configuration: by default that with the "
        "highest measured throughput.",
    )
    _add_runs(explain)
    _add_set(explain)
    explain.set_defaults(command=later("waylab.cli.fit.explain", "explain"))

    capacity = parts.add_parser(
        "capacity",
        help="find the cheapest configurations that meet a goal, with the probability that they do",
        description="Fits models to all usable trials of runs, and searches all counts of the parts that have a cost. "
        "Proposes the cheapest that meet the goal with a probability of at least 90 %, what limits each, and the run "
        "to make next. Exit code: 0 found, 1 no configuration meets the goal.",
    )
    _add_runs(capacity)
    load = capacity.add_mutually_exclusive_group(required=True)
    load.add_argument("--rate", metavar="RATE", help="arrivals per second of an open loop, for example 20k")
    load.add_argument("--clients", metavar="N", help="clients of a closed loop")
    load.add_argument(
        "--measured",
        type=Path,
        action="append",
        metavar="RUN",
        help="judge: for each load of this run that was measured with several counts, compare the proposal with the "
        "measurement; repeat it",
    )
    capacity.add_argument(
        "--until",
        required=True,
        metavar="GOAL",
        help="the goal: mean, p50, p95 or p99 below a time, for example p99<2ms; with --measured also several, "
        "separated by commas",
    )
    capacity.add_argument(
        "--cost",
        required=True,
        metavar="COSTS",
        help="what one of each part costs, for example 'server=1 proxy=2'; only these are varied",
    )
    _add_set(capacity)
    capacity.set_defaults(command=later("waylab.cli.fit.capacity", "capacity"))


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
