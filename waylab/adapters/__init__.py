"""Reads the results of other tools and writes them as a run folder: `waylab import`.

Each tool has a file with two functions: `detect` recognises its output, and `read` returns its trials.
"""

from waylab.adapters.collect import ImportRequest, import_results
from waylab.adapters.foreign import ReadOptions

__all__ = ["ImportRequest", "ReadOptions", "import_results"]
