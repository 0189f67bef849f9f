"""Arguments of the commands on finished runs: report, stages, compare, campaign, export."""

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
        help="write one short Markdown page about the runs instead, with their deciding figures in a folder FILE",
    )
    report.set_defaults(command=later(_COMMANDS, "report"))

    stages = parts.add_parser("stages", help="print the times of stages from record files")
    stages.add_argument(
        "records",
        type=Path,
        metavar="PATH",
        help="the folder of a trial, a folder of record files, or one file",
    )
    stages.add_argument(
        "--skip", type=float, default=0.0, metavar="SECONDS", help="leave out the first seconds [0]"
    )
    stages.add_argument(
        "--cut", type=float, default=0.0, metavar="SECONDS", help="leave out the last seconds [0]"
    )
    stages.add_argument("--partial", action="store_true", help="also read files of killed processes")
    stages.add_argument("--json", action="store_true", help="print all numbers as JSON")
    stages.set_defaults(command=later(_COMMANDS, "stages"))

    compare = parts.add_parser(
        "compare",
        help="compare runs of one specification, for example of two versions; waylab ab needs less time",
        description="Compares runs of the same specification by the means of whole runs. A verdict "
        "needs two runs of each side; one run on a side is not replicated. waylab ab interleaves both sides in one "
        "run, which needs less time. Exit code: 0 not worse, 1 worse, 2 bad input, 3 undecided, 4 not replicated.",
    )
    compare.add_argument(
        "runs", type=Path, nargs="*", metavar="RUN", help="two run folders: the old version, the new one"
    )
    compare.add_argument("--a", type=Path, nargs="+", metavar="RUN", help="run folders of the old version")
    compare.add_argument("--b", type=Path, nargs="+", metavar="RUN", help="run folders of the new version")
    compare.add_argument(
        "--margin", type=float, metavar="SHARE", help="largest loss that is no worse, as a share [0.05]"
    )
    compare.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="metric to compare; repeat it for several [throughput_per_s, response_mean_ns, "
        "cpu_per_request_ns.total]",
    )
    compare.add_argument(
        "--output", type=Path, metavar="DIR", help="folder for compare.json and compare.html [last run of b]"
    )
    compare.set_defaults(command=later(_COMMANDS, "compare"))

    campaign = parts.add_parser("campaign", help="write one page about several experiments")
    campaign.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folders, or parents of run folders such as results",
    )
    campaign.add_argument(
        "--output",
        type=Path,
        default=Path("campaign.html"),
        metavar="FILE",
        help="file of the page [campaign.html]",
    )
    campaign.add_argument("--title", default="Campaign", help="heading of the page [Campaign]")
    campaign.set_defaults(command=later(_COMMANDS, "campaign"))

    export = parts.add_parser(
        "export",
        help="write the numbers of a run as CSV or Parquet files",
        description="Writes a file for each data frame of docs/notebooks.md: trials, configurations, stages, "
        "percentiles, seconds. Files of an earlier export are replaced.",
    )
    export.add_argument("run", type=Path, metavar="RUN", help="a run folder, for example results/TIME-NAME")
    export.add_argument(
        "--to", choices=("csv", "parquet"), required=True, help="format; Parquet needs the package pyarrow"
    )
    export.add_argument("--output", type=Path, metavar="DIR", help="folder of the files [RUN/export]")
    export.add_argument(
        "--records", action="store_true", help="also write the records of single requests, which can be large"
    )
    export.set_defaults(command=later("waylab.cli.export", "export"))
