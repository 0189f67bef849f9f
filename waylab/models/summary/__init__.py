"""Results in words and as rows for JSON and drawings: the bottleneck, and the effect of changes."""

from waylab.models.summary.explain import explain

__all__ = ["explain"]
