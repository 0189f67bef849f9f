"""memtier_benchmark: the JSON of `--json-out-file` (format of versions 1.3 to 2).

Times are milliseconds, and histograms count microseconds. The layout is that of `run_stats::print` in the tool's source
(https://github.com/redis/memtier_benchmark, run_stats.cpp).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from waylab.adapters.foreign import (
    ForeignFile,
    ForeignTimes,
    ForeignTrial,
    ReadOptions,
    WrongFileError,
    in_nanoseconds,
    needed,
    number,
    same,
)
from waylab.analysis.trial import histograms
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.run import LoadSettings

NAME = "memtier_benchmark"
_MS, _US = 1_000_000, 1000
_LATENCY = (
    "a closed loop; a response time starts when the request is sent, so that a stall delays one request of each "
    "connection and the requests that it held back are missing (coordinated omission)"
)
# The rate is over the time of the threads, which is shorter than that of the program.
_RATES_APART = 0.1
_RUN = re.compile(r"RUN #\d+ RESULTS")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


def detect(file: ForeignFile) -> bool:
    """Return whether this is the JSON of memtier_benchmark."""
    return isinstance(file.json, dict) and ("ALL STATS" in file.json or "run information" in file.json)


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a file, or one for each run if it has all runs of `--run-count`."""
    content = file.json
    runs = [content["ALL STATS"]] if "ALL STATS" in content else []
    runs = runs or [one for name, one in content.items() if _RUN.fullmatch(name)]
    if not runs:
        raise WrongFileError(
            "has no ALL STATS: it holds only the best, the worst and the mean of several runs; "
            "run memtier_benchmark with --run-count=1 or --print-all-runs"
        )
    configuration = content.get("configuration")
    if not isinstance(configuration, dict):
        raise WrongFileError(
            "has no configuration, so that the number of clients is unknown; export it again"
        )
    many = len(runs) > 1
    return [_trial(one, configuration, index + 1 if many else None) for index, one in enumerate(runs)]


def _trial(stats: Any, configuration: Mapping[str, Any], block: int | None) -> ForeignTrial:
    runtime, totals = stats.get("Runtime"), stats.get("Totals")
    if not isinstance(totals, dict):
        raise WrongFileError(
            "has no ALL STATS.Totals: it is truncated, or memtier_benchmark was killed; measure again"
        )
    whole_s = needed(runtime, "Total duration", where="Runtime") / 1000
    unit = runtime.get("Time unit", "MILLISECONDS")
    if unit != "MILLISECONDS":
        raise WrongFileError(f"Runtime.Time unit is {str(unit)[:40]!r}, and should be 'MILLISECONDS'")
    rate = needed(totals, "Ops/sec", where="Totals")
    parts = {
        name: one for name, one in (("get", stats.get("Gets")), ("set", stats.get("Sets"))) if _counted(one)
    }
    times = {
        "all": _times(totals, "Totals"),
        **{name: _times(one, f"{name.title()}s") for name, one in parts.items()},
    }
    count = times["all"].count
    if not count or not whole_s:
        raise WrongFileError(f"has {count} requests in {whole_s:g} s; measure again")
    words = f"Totals has {rate:g} Ops/sec, but {count} requests in {whole_s:g} s"
    same(rate, count / whole_s, words, _RATES_APART)
    measured_s = count / rate
    of_parts = [one for name, one in times.items() if name != "all"]
    if sum(one.count for one in of_parts) == count:
        mean_ns = sum((one.mean_ns or 0) * one.count for one in of_parts) / count
        whole_ns = times["all"].mean_ns or 0.0
        words = f"the mean of Totals is {whole_ns / _MS:g} ms, that of Gets and Sets {mean_ns / _MS:.4g}"
        same(whole_ns, mean_ns, words)
        if times["all"].histogram is None and all(one.histogram for one in of_parts):
            merged = histograms.merge([one.histogram for one in of_parts])
            times["all"] = replace(times["all"], histogram=merged, std_ns=histograms.moments(merged)[1])
    else:
        # Operations of arbitrary commands have names of their own, and the lab knows reads and writes.
        times = {"all": times["all"]}
    hits, misses = (number(totals, f"{name}/sec") or 0.0 for name in ("Hits", "Misses"))
    errors = number(totals, "Connection Errors")
    unknown = {} if errors is not None else {"errors": f"this version of {NAME} does not report errors"}
    if number(configuration, "rate_limit"):
        unknown["interactive_law"] = "--rate-limiting makes clients wait, and the file does not show how long"
    return ForeignTrial(
        tool=NAME,
        latency=_LATENCY,
        corrected=False,
        loop="closed",
        throughput_per_s=rate,
        operations=times,
        load=_load(configuration),
        measured_s=measured_s,
        requests=count,
        errors=round(errors or 0),
        hits=round(hits * measured_s),
        misses=round(misses * measured_s),
        seconds=list(_seconds(totals, measured_s)),
        started_unix_s=(number(runtime, "Start time") or 0) / 1000 or None,
        partial=_stopped(stats),
        unknown=unknown,
        block=block,
    )


def _stopped(stats: Mapping[str, Any]) -> bool:
    """Return whether a signal stopped the tool, in the words of its versions."""
    completion = stats.get("benchmark_completion") or {}
    return bool(completion.get("interrupted_by_signal")) or (
        str(stats["Runtime"].get("Interrupted", "false")).lower() == "true"
    )


def _counted(part: Any) -> bool:
    return isinstance(part, dict) and bool(number(part, "Count"))


def _times(part: Mapping[str, Any], name: str) -> ForeignTimes:
    count = round(needed(part, "Count", where=name))
    mean = number(part, "Average Latency")
    mean = needed(part, "Latency", where=name) if mean is None else mean
    percentiles = part.get("Percentile Latencies") or {}
    found = {
        f"{float(match[1]):g}": float(value) * _MS
        for key, value in percentiles.items()
        if (match := _PERCENTILE.fullmatch(key)) and number(percentiles, key) is not None
    }
    text = (percentiles.get("Histogram log format") or {}).get("Compressed Histogram")
    histogram = in_nanoseconds(histograms.decode(text, name), _US) if text else None
    if histogram is not None:
        recorded = histogram.get_total_count()
        same(count, recorded, f"{name} has {count} requests, but {recorded} in its histogram")
        # Requests that failed may be in the count only. Then the percentiles are those that the tool printed.
        histogram = histogram if recorded == count else None
    std_ns = histograms.moments(histogram)[1] if histogram else None
    return ForeignTimes(count, mean * _MS, std_ns, found, histogram)


def _load(configuration: Mapping[str, Any]) -> LoadSettings:
    threads = round(needed(configuration, "threads", where="configuration"))
    clients = threads * round(needed(configuration, "clients", where="configuration"))
    ratio, size = str(configuration.get("ratio", "")), number(configuration, "data_size")
    return LoadSettings(
        clients=clients,
        threads=threads,
        ratio=ratio if re.fullmatch(r"\d+:\d+", ratio) and ratio != "0:0" else "0:1",
        data_size=round(size) if size else 0,
        pipeline=max(1, round(number(configuration, "pipeline") or 1)),
        multi_key_get=max(1, round(number(configuration, "multi_key_get") or 1)),
        key_pattern=str(configuration.get("key_pattern", "")),
        key_minimum=round(number(configuration, "key_minimum") or 0),
        key_maximum=round(number(configuration, "key_maximum") or 0),
    )


def _seconds(totals: Mapping[str, Any], measured_s: float) -> Iterator[LoadSecond]:
    series = totals.get("Time-Serie") or {}
    numbers = sorted(int(name) for name in series if name.isascii() and name.isdigit())
    # A forged number would make a list of any length.
    for second in range(min(numbers[-1] + 1, int(measured_s) + 2)) if numbers else ():
        one = series.get(str(second)) or {}
        mean, p99 = number(one, "Average Latency"), number(one, "p99.00") or number(one, "p99.000")
        yield LoadSecond(
            second=second,
            measured=second + 1 <= measured_s * (1 + 1e-9),
            requests=round(number(one, "Count") or 0),
            mean_ns=None if mean is None else mean * _MS,
            p99_ns=None if p99 is None else p99 * _MS,
        )
