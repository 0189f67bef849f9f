"""Ratios with their intervals, all from one model: comparisons, changes, effects, two versions, verdicts."""
