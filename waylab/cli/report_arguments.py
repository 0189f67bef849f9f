"""Arguments of the commands that tell of runs: report, stages, compare, campaign."""

from pathlib import Path
from typing import Any

from waylab.cli.later import later

_COMMANDS = "waylab.cli.report_commands"


def add_report_commands(parts: Any) -> None:
    """Add these commands to those of `waylab`."""
    report = parts.add_parser("report", help="write the report of a run folder again, from its JSON files")
    report.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="a run folder, for example results/TIME-NAME"
    )
    report.add_argument(
        "--sample",
        type=Path,
        metavar="FILE.md",
        help="write one small Markdown page over the runs instead, with their deciding figures in a folder FILE",
    )
    report.set_defaults(command=later(_COMMANDS, "report"))

    stages = parts.add_parser("stages", help="where the time went, from record files alone")
    stages.add_argument("records", type=Path, metavar="PATH", help="a folder of record files, or one of them")
    stages.add_argument(
        "--skip", type=float, default=0.0, metavar="SECONDS", help="leave out the first seconds [0]"
    )
    stages.add_argument(
        "--cut", type=float, default=0.0, metavar="SECONDS", help="leave out the last seconds [0]"
    )
    stages.add_argument("--partial", action="store_true", help="read files whose process was killed, too")
    stages.add_argument("--json", action="store_true", help="everything, as JSON")
    stages.set_defaults(command=later(_COMMANDS, "stages"))

    compare = parts.add_parser(
        "compare",
        help="two runs of one specification, say of two versions",
        description="Compares two runs of the same specification, paired by configuration and block. "
        "Exit code: 0 no worse, 1 a difference for the worse was found, 2 bad input, 3 undecided.",
    )
    compare.add_argument("baseline", type=Path, metavar="RUN_A", help="the run folder of the old version")
    compare.add_argument("candidate", type=Path, metavar="RUN_B", help="the run folder of the new version")
    compare.add_argument("--margin", type=float, metavar="SHARE", help="what counts as the same [0.05]")
    compare.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="what to judge by, may be given several times [throughput_per_s, response_mean_ns, "
        "cpu_per_request_ns.total]",
    )
    compare.add_argument(
        "--output", type=Path, metavar="DIR", help="where compare.json and compare.html go [RUN_B]"
    )
    compare.set_defaults(command=later(_COMMANDS, "compare"))

    campaign = parts.add_parser("campaign", help="one page over several experiments")
    campaign.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of them such as results"
    )
    campaign.add_argument(
        "--output", type=Path, default=Path("campaign.html"), metavar="FILE", help="the page [campaign.html]"
    )
    campaign.add_argument("--title", default="Campaign", help="its heading [Campaign]")
    campaign.set_defaults(command=later(_COMMANDS, "campaign"))
