"""Results in words, and as plain numbers for JSON and drawings: what is the bottleneck, and what would move it."""

from waylab.models.summary.explain import explain

__all__ = ["explain"]
