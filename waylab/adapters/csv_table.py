"""CSV with named columns: one row for each trial; a column that the lab does not know is a factor."""

import re
from collections.abc import Mapping

from waylab.adapters.factors import check_factor, is_setting
from waylab.adapters.foreign import ForeignFile, ForeignTimes, ForeignTrial, ReadOptions, WrongFileError, same
from waylab.bounded import UnreadableError, read_csv
from waylab.runfolder.run import LoadSettings

NAME = "CSV"
_LATENCY = "a table does not show whether response times start when a request is sent or when it is due"
_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_RESPONSE = re.compile(r"response_(mean|std|p[0-9]+(?:_[0-9]+)?)_(s|ms|us|ns)")
_MEASURED = ("throughput_per_s", "measured_s", "requests", "errors", "hit_ratio", "block")
_EMPTY = ("", "nan", "na", "null", "none")


def detect(file: ForeignFile) -> bool:
    """Return whether the heading has the column that every table needs."""
    return "throughput_per_s" in _heading(file)


def _heading(file: ForeignFile) -> list[str]:
    first = file.text.lstrip("\ufeff").split("\n", 1)[0]
    return [name.strip().strip('"') for name in first.split(",")]


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return a trial for each row."""
    try:
        rows = read_csv(file.path)
    except UnreadableError as error:
        raise WrongFileError(str(error)) from None
    if not rows:
        raise WrongFileError("has no rows; give a table with one row for each trial")
    names = [name.removeprefix("\ufeff").strip() for name in rows[0]]
    if len(set(names)) < len(_heading(file)):
        raise WrongFileError("has two columns of one name; rename one")
    means = [name for name in names if (match := _RESPONSE.fullmatch(name)) and match[1] == "mean"]
    if len(means) != 1:
        raise WrongFileError(
            "needs exactly one column of mean response times, such as response_mean_s or response_mean_ms"
        )
    numbers = [match[1] for name in names if (match := _RESPONSE.fullmatch(name))]
    twice = next((name for name in numbers if numbers.count(name) > 1), None)
    if twice:
        raise WrongFileError(f"has two columns of response_{twice}; remove one")
    for name in names:
        if name not in _MEASURED and not _RESPONSE.fullmatch(name) and not is_setting(name):
            check_factor(name, "column ")
    cells = [
        {name.removeprefix("\ufeff").strip(): text.strip() for name, text in row.items()} for row in rows
    ]
    return [_trial(row, line) for line, row in enumerate(cells, start=2)]


def _trial(row: Mapping[str, str], line: int) -> ForeignTrial:
    values = {
        name: _number(row, name, line) for name in row if name in _MEASURED or _RESPONSE.fullmatch(name)
    }
    throughput = values.get("throughput_per_s")
    times = {
        match[1]: value * _NS[match[2]]
        for name, value in values.items()
        if value is not None and (match := _RESPONSE.fullmatch(name))
    }
    if not throughput or "mean" not in times:
        raise WrongFileError(
            f"line {line}: has no throughput_per_s or no mean response time; remove the line"
        )
    measured_s, errors = values.get("measured_s") or 0.0, values.get("errors")
    requests = values.get("requests") or throughput * measured_s
    if values.get("requests") and measured_s:
        # Some tools count failed requests in their throughput, others do not.
        counts = (requests, requests - (errors or 0.0))
        closest = min((count / measured_s for count in counts), key=lambda rate: abs(rate - throughput))
        words = f"throughput_per_s is {throughput:g}, but {requests:g} requests in {measured_s:g} s"
        same(throughput, closest, f"line {line}: {words}")
    hit_ratio = values.get("hit_ratio")
    percentiles = {name[1:].replace("_", "."): value for name, value in times.items() if name.startswith("p")}
    unknown = {"steady_state": "a table has no seconds"}
    unknown |= {"errors": "the table has no column errors"} if errors is None else {}
    unknown |= {"duration": "the table has no column measured_s"} if not measured_s else {}
    factors = {
        name: text for name, text in row.items() if name not in _MEASURED and not _RESPONSE.fullmatch(name)
    }
    if any(not text for text in factors.values()):
        empty = next(name for name, text in factors.items() if not text)
        raise WrongFileError(f"line {line}: {empty} is empty; give the level of each factor")
    block = values.get("block")
    return ForeignTrial(
        tool=NAME,
        latency=_LATENCY,
        corrected=None,
        throughput_per_s=throughput,
        operations={"all": ForeignTimes(round(requests), times["mean"], times.get("std"), percentiles)},
        load=LoadSettings(clients=0),
        measured_s=measured_s,
        requests=round(requests),
        errors=round(errors or 0),
        hits=round(requests * hit_ratio) if hit_ratio is not None else 0,
        misses=round(requests * (1 - hit_ratio)) if hit_ratio is not None else 0,
        unknown=unknown,
        levels=factors,
        block=round(block) if block else None,
        line=line,
    )


def _number(row: Mapping[str, str], name: str, line: int) -> float | None:
    text = row[name]
    if text.lower() in _EMPTY:
        return None
    try:
        # Python's numbers may have underscores and digits of other scripts.
        value = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e15 or (name == "hit_ratio" and value > 1):
        raise WrongFileError(
            f"line {line}: {name} is {text[:40]!r}; give a number that is not negative, or leave it empty"
        )
    return value
