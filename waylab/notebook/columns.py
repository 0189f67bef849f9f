"""The columns that all data frames share: factors with their levels, and nanoseconds of files as seconds."""

import re
from collections.abc import Mapping

from waylab.runfolder.numbers import Interval
from waylab.runfolder.run import ExperimentSpec, FactorLevels, Value

Row = dict[str, object]

# Columns of frames that a factor must not hide.
_TAKEN = frozenset(
    "trial order block configuration role seed used reasons server operation stage percentile second measured requests "
    "count trials run in_window port sequence outcome connection leg legs loop backend keys hits".split()
)


class FactorColumns:
    """A column for each factor: its level as a number if all levels are numbers, or else its label."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._levels = {factor.name: (column_of(factor.name), _values(factor)) for factor in spec.factors}

    @property
    def names(self) -> list[str]:
        """The names of the columns, in the order of the specification."""
        return [column for column, _ in self._levels.values()]

    def row(self, labels: Mapping[str, str]) -> Row:
        """Return the cells for the labels of a trial or configuration, by factor."""
        found: Row = {}
        for name, label in labels.items():
            column, values = self._levels.get(name, (column_of(name), {}))
            found[column] = values.get(label, label)
        return found


def column_of(factor: str) -> str:
    """Return the name of a factor's column: letters, digits and underscores, so that charts can name it."""
    name = re.sub(r"\W+", "_", factor)
    return f"factor_{name}" if name in _TAKEN else name


def _values(factor: FactorLevels) -> dict[str, Value]:
    """Return the settings of a factor by label, if all are numbers; without them, a label stands for itself."""
    if factor.key is None:
        return {}
    found = {level.label: level.settings.get(factor.key) for level in factor.levels}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found.values())
    return found if numbers else {}


def seconds(time_ns: float | None) -> float | None:
    """Return nanoseconds of a file as seconds."""
    return None if time_ns is None else time_ns * 1e-9


def percentile_column(percent: str) -> str:
    """Return the column of a percentile of the response time: `response_p99_9_s` for 99.9."""
    return f"response_p{percent.replace('.', '_')}_s"


def with_interval(name: str, found: Interval, factor: float = 1.0) -> Row:
    """Return a mean over trials with the ends of its 95 % interval, multiplied by `factor`."""
    ends = (("", found.mean), ("_low", found.low), ("_high", found.high))
    return {f"{name}{end}": None if value is None else value * factor for end, value in ends}
