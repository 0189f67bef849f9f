"""The data of a chart: rows of named values, as Vega-Lite takes them."""

from collections.abc import Iterable, Mapping, Sequence

from waylab.runfolder.numbers import Interval, Ratio

Row = Mapping[str, object]


def distinct(rows: Iterable[Row], column: str) -> list[str]:
    """Return the different values of a column in the order in which they first occur."""
    return list(dict.fromkeys(str(row[column]) for row in rows))


def any_positive(rows: Sequence[Row], column: str) -> bool:
    """Return whether a column has a value other than zero and null."""
    return any(row[column] for row in rows)


def interval_columns(numbers: Interval, unit: str = "") -> Row:
    """Return the columns `mean`, `low` and `high`, each with the unit behind its name."""
    return {f"mean{unit}": numbers.mean, f"low{unit}": numbers.low, f"high{unit}": numbers.high}


def ratio_columns(numbers: Ratio) -> Row:
    """Return the columns `ratio`, `low` and `high`."""
    return {"ratio": numbers.ratio, "low": numbers.low, "high": numbers.high}
