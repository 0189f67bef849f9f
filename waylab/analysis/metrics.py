"""Which numbers of a trial are set side by side: their names, what they are called, and where they stand."""

from typing import Any

# In the order in which they are told; the unit is the end of the name.
METRICS = {
    "throughput_per_s": "throughput",
    "response_mean_ns": "mean response",
    "response_get_mean_ns": "mean response of GET",
    "response_set_mean_ns": "mean response of SET",
    "cpu_per_request_ns": "processor time for a request",
}


def value_of(content: dict[str, Any], metric: str) -> float | None:
    """Return one of `METRICS` of a trial; None where it has none, or where a ratio would mean nothing."""
    if metric == "throughput_per_s":
        found = content.get("throughput_per_s")
    elif metric == "cpu_per_request_ns":
        found = content["processor"]["cpu_per_request_ns"].get("total")
    else:
        operation = {"response_get_mean_ns": "get", "response_set_mean_ns": "set"}.get(metric, "all")
        found = content["operations"].get(operation, {}).get("response_mean_ns")
    return float(found) if found else None


def told_apart(contents: list[dict[str, Any]]) -> list[str]:
    """Name the metrics that every trial has; GET and SET apart only where there are both."""
    names = [name for name in METRICS if contents and all(value_of(one, name) for one in contents)]
    both = {"response_get_mean_ns", "response_set_mean_ns"} <= set(names)
    return [name for name in names if both or name not in ("response_get_mean_ns", "response_set_mean_ns")]
