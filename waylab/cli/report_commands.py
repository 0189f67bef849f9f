"""The commands that tell of runs: report, compare, campaign."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from waylab.analysis.versions import MARGIN, METRICS, compare_runs
from waylab.report import (
    find_runs,
    show_comparison,
    write_campaign,
    write_comparison,
    write_report,
    write_sample,
)

# 2 is bad input, as everywhere.
EXIT_NO_WORSE, EXIT_WORSE, EXIT_UNDECIDED = 0, 1, 3
_EXITS = {"no worse": EXIT_NO_WORSE, "worse": EXIT_WORSE, "undecided": EXIT_UNDECIDED}


def add_report_commands(parts: Any) -> None:
    """Add these commands to those of `waylab`."""
    report = parts.add_parser("report", help="write the report of a run folder again, from its JSON files")
    report.add_argument("run", type=Path, metavar="RUN", help="a run folder, for example results/TIME-NAME")
    report.add_argument(
        "--sample",
        type=Path,
        metavar="DIR",
        help="write a small copy instead, Markdown with the main figures: DIR/NAME/README.md",
    )
    report.set_defaults(command=_report)

    compare = parts.add_parser(
        "compare",
        help="two runs of one specification, say of two versions",
        description="Compares two runs of the same specification, paired by configuration and block. "
        "Exit code: 0 no worse, 1 a difference for the worse was found, 2 bad input, 3 undecided.",
    )
    compare.add_argument("baseline", type=Path, metavar="RUN_A", help="the run folder of the old version")
    compare.add_argument("candidate", type=Path, metavar="RUN_B", help="the run folder of the new version")
    compare.add_argument(
        "--margin", type=float, default=MARGIN, metavar="SHARE", help=f"what counts as the same [{MARGIN}]"
    )
    compare.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help=f"what to judge by, may be given several times [{', '.join(METRICS)}]",
    )
    compare.add_argument(
        "--output", type=Path, metavar="DIR", help="where compare.json and compare.html go [RUN_B]"
    )
    compare.set_defaults(command=_compare)

    campaign = parts.add_parser("campaign", help="one page over several experiments")
    campaign.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of them such as results"
    )
    campaign.add_argument(
        "--output", type=Path, default=Path("campaign.html"), metavar="FILE", help="the page [campaign.html]"
    )
    campaign.add_argument("--title", default="Campaign", help="its heading [Campaign]")
    campaign.set_defaults(command=_campaign)


def _report(arguments: argparse.Namespace) -> int:
    path = write_sample(arguments.run, arguments.sample) if arguments.sample else write_report(arguments.run)
    Console(highlight=False).print(f"{path}", soft_wrap=True)
    return 0


def _campaign(arguments: argparse.Namespace) -> int:
    path = write_campaign(find_runs(arguments.runs), arguments.output, arguments.title)
    Console(highlight=False).print(f"{path}", soft_wrap=True)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    metrics = tuple(arguments.metric) if arguments.metric else METRICS
    content = compare_runs(arguments.baseline, arguments.candidate, arguments.margin, metrics)
    path = write_comparison(content, arguments.output or arguments.candidate)
    console = Console(highlight=False)
    show_comparison(content, console)
    console.print(f"{path}", soft_wrap=True)
    return _EXITS[content["verdict"]]
