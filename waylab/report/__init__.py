"""What a reader sees: figures, tables, one page. Computes nothing; every number is in a JSON of the run folder."""

from waylab.report.show import show_run
from waylab.report.versions import show_comparison, write_comparison
from waylab.report.write import write_report

__all__ = ["show_comparison", "show_run", "write_comparison", "write_report"]
