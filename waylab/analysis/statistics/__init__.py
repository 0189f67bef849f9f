"""The statistics of the lab as pure functions: arrays in, numbers and reasons out. No trials, files or plots."""

from waylab.analysis.statistics.pairs import paired_ratio
from waylab.analysis.statistics.repetitions import mean_interval

__all__ = ["mean_interval", "paired_ratio"]
