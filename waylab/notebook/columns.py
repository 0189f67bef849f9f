"""The columns that all data frames share: factors with their levels, and nanoseconds of files as seconds."""

import itertools
import re
from collections.abc import Mapping, Sequence

from waylab.runfolder.columns import TAKEN
from waylab.runfolder.numbers import Interval
from waylab.runfolder.run import ExperimentSpec, FactorLevels, Value

Row = dict[str, object]

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


class FactorColumns:
    """A column for each factor: its level as a number if all its labels are numbers, or else its label."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._levels: dict[str, tuple[str, dict[str, Value]]] = {}
        for factor in spec.factors:
            self._levels[factor.name] = (_unused(column_of(factor.name), self.names), _values(factor))

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
    return f"factor_{name}" if not name or TAKEN.fullmatch(name) else name


def _unused(column: str, used: Sequence[str]) -> str:
    """Return a name that no other factor has: `a.b` and `a_b` would share a column."""
    names = itertools.chain([column], (f"{column}_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in used)


def _values(factor: FactorLevels) -> dict[str, Value]:
    """Return the numbers of a factor by label, if all labels are numbers; without them, a label stands for itself."""
    labels = [level.label for level in factor.levels]
    if not all(_NUMBER.fullmatch(label) for label in labels):
        return {}
    found: dict[str, Value] = {}
    for level in factor.levels:
        setting = level.settings.get(factor.key or "")
        # The label of a value has six digits, the setting has all of them.
        same = isinstance(setting, float) and f"{setting:g}" == level.label
        number = float(level.label)
        found[level.label] = (
            setting if same else int(level.label) if level.label.lstrip("-").isdigit() else number
        )
    return found if len({*found.values()}) == len(labels) else {}


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
