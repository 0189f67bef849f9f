"""What a reader sees: figures, tables, one page. Computes nothing; every number is in a JSON of the run folder."""

from waylab.report.campaign import find_runs, write_campaign
from waylab.report.findings import ExperimentFindings, show_findings, write_findings, write_list
from waylab.report.sample import write_sample
from waylab.report.show import show_run
from waylab.report.versions import show_comparison, write_comparison
from waylab.report.write import write_report

__all__ = [
    "ExperimentFindings",
    "find_runs",
    "show_comparison",
    "show_findings",
    "show_run",
    "write_campaign",
    "write_comparison",
    "write_findings",
    "write_list",
    "write_report",
    "write_sample",
]
