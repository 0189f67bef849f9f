"""Parses numbers on the command line: times, rates, ranges. Each mistake is one line."""

import argparse
import csv
import math
from pathlib import Path

from waylab import bounded
from waylab.errors import LabError
from waylab.spec.quantities import duration_s

VALUES_MAX = 2000
# A range FIRST..LAST is thinned out to about this many values.
_VALUES_USUAL = 40
_PLOT_ENDS = (".svg", ".png", ".html")


def time_s(text: str) -> float:
    """Seconds of a duration with a unit, or of a plain number of seconds."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = duration_s(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a time; give one such as 200us, 1.5ms or 0.003 (seconds)"
            ) from None
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time of at least zero")
    return value


def positive_time_s(text: str) -> float:
    """Seconds of a time above zero."""
    value = time_s(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be above zero")
    return value


def rate_per_s(text: str) -> float:
    """A rate above zero."""
    value = _number(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate per second above zero")
    return value


def at_least_zero(text: str) -> float:
    """A number of at least zero."""
    value = _number(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least zero")
    return value


def share(text: str) -> float:
    """A number between zero and one."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 0 and 1")
    return value


def whole(text: str) -> int:
    """A whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def not_negative(text: str) -> int:
    """A whole number of at least zero."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def demands_s(text: str) -> list[float]:
    """Times separated by commas."""
    return [time_s(part.strip()) for part in text.split(",")]


def plot_file(text: str) -> Path:
    """A file whose suffix is the format of the picture."""
    path = Path(text)
    if path.suffix not in _PLOT_ENDS:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in one of {', '.join(_PLOT_ENDS)}")
    return path


def sweep_values(text: str) -> tuple[str, list[float]]:
    """A parameter and its values: `clients=1:200:10`, `database.servers=1:8` or `clients=1,2,4`."""
    parameter, equals, values = text.rpartition("=")
    if not (parameter and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not a sweep; give one such as clients=1:200:10")
    if ":" in values:
        parts = [_number(part) for part in values.split(":")]
        if len(parts) not in (2, 3):
            raise argparse.ArgumentTypeError(f"{values!r} is not FIRST:LAST or FIRST:LAST:STEP")
        return parameter, spread(*parts)
    return parameter, [_number(part) for part in values.split(",")]


def clients_values(text: str) -> list[float]:
    """Whole numbers: one, or about forty of FIRST..LAST."""
    first, dots, last = text.partition("..")
    if not dots:
        return [float(whole(text))]
    low, high = whole(first), whole(last)
    step = max(1, math.ceil((high - low) / _VALUES_USUAL))
    return spread(float(low), float(high), float(step))


def spread(first: float, last: float, step: float = 1.0) -> list[float]:
    """Values from the first to the last, which is always included."""
    if not (math.isfinite(first) and math.isfinite(last) and math.isfinite(step)):
        raise argparse.ArgumentTypeError("a sweep needs finite numbers")
    if not (step > 0 and last >= first):
        raise argparse.ArgumentTypeError(f"{first:g}:{last:g}:{step:g} does not increase")
    count = math.floor((last - first) / step + 1e-9)
    if count >= VALUES_MAX:
        raise argparse.ArgumentTypeError(f"{first:g}:{last:g}:{step:g} has more than {VALUES_MAX} values")
    # Rounded, so that steps of 0.1 from 0.5 do not give 0.7999999.
    values = [round(first + index * step, 12) for index in range(count + 1)]
    return values if values[-1] >= last - 1e-9 * max(1.0, abs(last)) else [*values, last]


def measured_runs(path: Path) -> list[dict[str, float]]:
    """Read throughput by the number of clients; lines with the same clients and run are averaged.

    Raises:
        LabError: naming the file, the line and what is wrong.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    try:
        lines = bounded.read_text(path, bounded.JSON_BYTES_MAX).splitlines(keepends=True)
        rows = csv.DictReader(lines)
        for name in ("clients", "throughput_per_s"):
            if name not in (rows.fieldnames or []):
                raise LabError(f"{path}: has no column {name!r}; it has {', '.join(rows.fieldnames or [])}")
        for row in rows:
            try:
                pair = (float(row["clients"]), float(row["throughput_per_s"]))
            except (TypeError, ValueError):
                raise LabError(
                    f"{path}: line {rows.line_num}: clients and throughput_per_s must be numbers"
                ) from None
            found.setdefault((row["clients"], row.get("run") or f"line {rows.line_num}"), []).append(pair)
    except FileNotFoundError:
        raise LabError(f"{path}: cannot be read: no such file") from None
    except (bounded.UnreadableError, csv.Error) as error:
        raise LabError(f"{path}: {error}") from None
    if not found:
        raise LabError(f"{path}: has no runs")
    return [
        {"clients": pairs[0][0], "throughput_per_s": math.fsum(rate for _, rate in pairs) / len(pairs)}
        for pairs in found.values()
    ]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
