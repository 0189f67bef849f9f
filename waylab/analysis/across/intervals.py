"""Results of `statistics` as the types of the run folder: `statistics` itself knows nothing of runs."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from waylab.analysis.statistics import mean_interval, paired_ratio
from waylab.analysis.statistics.repetitions import (
    CONFIDENCE,
    geometric_interval,
    positive_mean_interval,
)
from waylab.runfolder.numbers import Interval, Ratio

S = TypeVar("S", bound=Struct)


def struct_of(found: object, kind: type[S]) -> S:
    """Return the fields of a type from a result that has attributes of the same names."""
    return kind(**{name: getattr(found, name) for name in kind.__struct_fields__})


def interval(values: Sequence[float]) -> Interval:
    """Mean of independent values with its 95 % interval."""
    return struct_of(mean_interval(values), Interval)


def positive(values: Sequence[float]) -> Interval:
    """Mean of rates, times or other values that cannot be negative, with a 95 % interval that is never below zero."""
    return struct_of(positive_mean_interval(values), Interval)


def geometric(values: Sequence[float]) -> Interval:
    """Geometric mean of independent values above zero with its 95 % interval."""
    return struct_of(geometric_interval(values), Interval)


def ratio(log_ratios: Sequence[float], margin: float = 0.0, confidence: float = CONFIDENCE) -> Ratio:
    """Ratio of candidate to baseline from one log ratio for each block."""
    return struct_of(paired_ratio(log_ratios, margin, confidence), Ratio)
