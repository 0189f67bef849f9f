"""A finished run for notebooks: its numbers as data frames, its figures, comparisons, models, and their export.

Computes nothing of its own: every number is one of the analysis, of the records or of a fitted model.
"""

from waylab.notebook.comparison import ComparedRuns
from waylab.notebook.export import FORMATS, export_run
from waylab.notebook.fitted import FittedRuns
from waylab.notebook.opened import OpenedRun

__all__ = ["FORMATS", "ComparedRuns", "FittedRuns", "OpenedRun", "export_run"]
