"""k6: the JSON of `--summary-export`, and that of `handleSummary` (JSON.stringify(data)).

Times are milliseconds. handleSummary puts the values of a metric under `values` and the length of the run under `state`
(https://grafana.com/docs/k6/latest/results-output/end-of-test/).
"""

import re
from typing import Any

from waylab.adapters.foreign import (
    ForeignFile,
    ForeignTimes,
    ForeignTrial,
    ReadOptions,
    WrongFileError,
    needed,
    number,
    same,
)
from waylab.runfolder.run import LoadSettings

NAME = "k6"
_MS = 1_000_000
_LATENCY = (
    "a response time (http_req_duration) starts when the request is sent, without the time for a connection, so that "
    "waits behind a stall are missing (coordinated omission), with arrival-rate executors as well"
)
_PERCENTILE = re.compile(r"p\((\d+(?:\.\d+)?)\)")


def detect(file: ForeignFile) -> bool:
    """Return whether this is a summary of k6."""
    metrics = file.json.get("metrics") if isinstance(file.json, dict) else None
    return isinstance(metrics, dict) and bool(
        {"http_reqs", "iterations", "vus", "http_req_duration"} & set(metrics)
    )


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a summary."""
    metrics = file.json["metrics"]
    requests, duration = (_values(metrics, name) for name in ("http_reqs", "http_req_duration"))
    if requests is None or duration is None:
        raise WrongFileError("has no http_reqs and http_req_duration: the script made no HTTP requests")
    count, rate = (
        round(needed(requests, "count", where="http_reqs")),
        needed(requests, "rate", where="http_reqs"),
    )
    if not count or not rate:
        raise WrongFileError("has no request; measure again")
    measured_s = count / rate
    length_ms = number(file.json, "state", "testRunDurationMs")
    if length_ms is not None:
        words = f"http_reqs has {count} requests at {rate:g}/s, but the run took {length_ms / 1000:g} s"
        same(measured_s, length_ms / 1000, words)
    failed = _values(metrics, "http_req_failed")
    # It counts a failure as a pass: the rate of "failed" being true.
    errors = number(failed, "passes") if failed else None
    share = None
    if failed is not None:
        share = number(failed, "value") if number(failed, "rate") is None else number(failed, "rate")
    if errors is None and share is not None:
        errors = share * count
    elif failed is not None and errors is not None and share is not None:
        # A script can exclude requests from this metric, so that it counts fewer of them.
        judged = errors + (number(failed, "fails") or 0.0)
        same(errors, share * judged, f"{errors:g} of {judged:g} requests failed, but a share of {share:g}")
    unknown = {"interactive_law": "the summary does not show how long clients wait between requests"}
    unknown |= {"hit_ratio": "HTTP has no hits", "steady_state": "a summary has no seconds"}
    if errors is None:
        unknown["errors"] = "this version of k6 does not report failed requests"
    percentiles = {
        f"{float(match[1]):g}": needed(duration, name, where="http_req_duration") * _MS
        for name in duration
        if (match := _PERCENTILE.fullmatch(name))
    }
    median = number(duration, "med")
    if median is not None:
        percentiles["50"] = median * _MS
    users = _values(metrics, "vus_max") or _values(metrics, "vus") or {}
    mean_ns = needed(duration, "avg", where="http_req_duration") * _MS
    return [
        ForeignTrial(
            tool=NAME,
            latency=_LATENCY,
            corrected=False,
            throughput_per_s=max(0, count - round(errors or 0)) / measured_s,
            operations={"all": ForeignTimes(count, mean_ns, None, percentiles)},
            load=LoadSettings(clients=round(number(users, "max") or number(users, "value") or 0)),
            measured_s=measured_s,
            requests=count,
            errors=round(errors or 0),
            unknown=unknown,
        )
    ]


def _values(metrics: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the numbers of a metric in either layout; None if the metric is missing."""
    found = metrics.get(name)
    if not isinstance(found, dict):
        return None
    values = found.get("values", found)
    return values if isinstance(values, dict) else None
