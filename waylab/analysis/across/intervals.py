"""Results of `statistics` as the types of the run folder: `statistics` itself knows nothing of runs."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from waylab.analysis.statistics.blocks import DEGREES_MIN
from waylab.analysis.statistics.repetitions import (
    MeanInterval,
    geometric_interval,
    mean_interval,
    positive_mean_interval,
)
from waylab.runfolder.numbers import Interval

S = TypeVar("S", bound=Struct)


def struct_of(found: object, kind: type[S]) -> S:
    """Return the fields of a type from a result that has attributes of the same names."""
    return kind(**{name: getattr(found, name) for name in kind.__struct_fields__})


def interval(values: Sequence[float]) -> Interval:
    """Mean of independent values with its 95 % interval; two values have none."""
    return _refused(mean_interval(values))


def positive(values: Sequence[float]) -> Interval:
    """Mean of rates, times or other values that cannot be negative, with a 95 % interval that is never below zero."""
    return _refused(positive_mean_interval(values))


def share(values: Sequence[float]) -> Interval:
    """Mean of shares of a whole, with a 95 % interval within 0 and 1."""
    found = positive(values)
    return found if found.high is None else replace(found, high=max(found.mean or 0.0, min(found.high, 1.0)))


def geometric(values: Sequence[float]) -> Interval:
    """Geometric mean of independent values above zero with its 95 % interval."""
    return _refused(geometric_interval(values))


def _refused(found: MeanInterval) -> Interval:
    """Leave out the interval of two values: with its t factor of 12.7 it decides nothing."""
    content = struct_of(found, Interval)
    return content if found.count > DEGREES_MIN else replace(content, low=None, high=None)
