"""Arguments of `waylab import`."""

from pathlib import Path
from typing import Any

from waylab.cli.later import later

UNITS_NS = {"ns": 1, "us": 1000, "ms": 1_000_000}


def add_import_command(parts: Any) -> None:
    """Add this command to those of `waylab`."""
    part = parts.add_parser(
        "import",
        help="make a run folder of results that another tool measured",
        description="Reads results of memtier_benchmark, wrk2, wrk, k6, vegeta and oha, HdrHistogram logs, CSV tables "
        "with named columns and tables of trials, and makes a run folder that report, compare, fit, predict, validate, "
        "export and waylab.open read. Files with the same levels are blocks of one configuration. docs/import.md has "
        "the formats. Exit code: 0 success, 1 no usable trial, 2 bad input.",
    )
    part.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="a file that a tool wrote, or a table"
    )
    part.add_argument("--out", type=Path, metavar="DIR", help="the run folder to make [results/TIME-NAME]")
    part.add_argument(
        "--name", default="imported", metavar="NAME", help="name of the experiment in reports [imported]"
    )
    part.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of all files, such as clients=64 or rate=2000, or the level of a factor such as version=7.2",
    )
    part.add_argument(
        "--names",
        default="",
        metavar="PATTERN",
        help="where the names of files have levels, such as {version}-{clients}-{block}.json [NAME=VALUE in a name]",
    )
    part.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="read only the rows of a table that have this value",
    )
    part.add_argument(
        "--unit", choices=tuple(UNITS_NS), help="unit of an HdrHistogram log [as the log shows it]"
    )
    part.add_argument("--tag", default="", metavar="TAG", help="read one tag of an HdrHistogram log [all]")
    part.add_argument(
        "--errors-max",
        type=int,
        default=0,
        metavar="N",
        help="use trials with up to N failed requests; the report says so [0]",
    )
    part.set_defaults(command=later("waylab.cli.importing.command", "import_files"))
