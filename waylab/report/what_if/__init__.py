"""The page `what-if.html`: predictions with sliders, in one file that needs no network."""

from waylab.report.what_if.write import write_what_if

__all__ = ["write_what_if"]
