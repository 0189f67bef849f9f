"""Arguments of `waylab validate`."""

import argparse
from pathlib import Path
from typing import Any

from waylab.cli.later import later

_SPLITS = {
    "pools": "each pool size (workers per middleware) is held out in turn; between the others it is an interpolation, "
    "beyond them an extrapolation",
    "clients": "the lower half of the numbers of clients calibrates; up to twice and up to four times as many are "
    "predicted",
    "servers": "cells with fewer servers calibrate, alone (blind) and with 1, 2 or 4 anchor cells of the held-out "
    "number of servers",
    "levels": "each level of the share of writes, of the middlewares, of the value size and of the keys of a multi-get "
    "is held out in turn",
}


def add_validate_command(parts: Any) -> None:
    """Add this command to those of `waylab`."""
    part = parts.add_parser(
        "validate",
        help="hold out configurations of a table of trials or of a run, predict them with every model, and compare",
        description="Fits every model to some configurations and predicts the others, which the fit never saw. A "
        "table has one row for each trial, with the columns in docs/prediction-tables.md. A run holds out the "
        "configurations that [predict] of its specification names, or with --split some by their settings. The "
        "model 'chosen' is selected by errors inside the "
        "calibration configurations only.",
        epilog="splits of a table: "
        + "; ".join(f"{name}: {text}" for name, text in _SPLITS.items())
        + ". Splits of runs: clients: all above the lower half of the numbers of clients; servers: each number of "
        "servers, proxies and services in turn; levels: each share of writes, number of replicas, value size, number "
        "of keys, pipeline and think time in turn; pools: each number of workers, readers and lanes in turn.",
        formatter_class=argparse.HelpFormatter,
    )
    part.add_argument(
        "table",
        type=Path,
        nargs="+",
        metavar="TABLE.csv|RUN",
        help="a CSV table with one row for each trial, or run folders",
    )
    part.add_argument("--split", choices=tuple(_SPLITS), help="what is held out (see below)")
    part.add_argument(
        "--json",
        action="store_true",
        help="print a JSON array with one object for each held-out cell and model",
    )
    part.set_defaults(command=later("waylab.cli.validate.command", "validate"))
