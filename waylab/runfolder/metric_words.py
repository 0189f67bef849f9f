"""How the lab writes metrics and their values in sentences."""

from waylab.runfolder.words import number_text, time_text

_WORDS = {
    "throughput_per_s": "throughput",
    "response_mean_ns": "mean response time",
    "response_p50_ns": "median response time",
    "response_by_law_ratio": "response time by the interactive law over the measured one",
    "cpu_per_request_ns.total": "CPU time per request",
    "failed_trials": "trials that failed a gate",
    "unsteady_trials": "trials without a steady state",
}


def metric_words(metric: str) -> str:
    """Return a metric in words: `99th percentile of the response time of SET` for set.response_p99_ns."""
    if metric in _WORDS:
        return _WORDS[metric]
    operation, _, rest = metric.partition(".")
    if rest.startswith("response_"):
        return f"{metric_words(rest)} of {operation.upper()}"
    if operation == "cpu_per_request_ns":
        return f"CPU time per request of {rest}"
    if operation == "link_utilisation":
        return f"utilisation of the link {rest}"
    if metric.startswith("response_p"):
        return f"{metric.removeprefix('response_p').removesuffix('_ns')}th percentile of the response time"
    return metric.replace("_", " ")


def value_words(metric: str, value: float) -> str:
    """Return a value of a metric with its unit: `2,931 requests/s`, `1.23 ms`."""
    if metric == "throughput_per_s":
        return f"{value:,.0f} requests/s"
    if "_ns" in metric:
        return time_text(value) if value >= 1000 else f"{value / 1000:.3g} µs"
    return number_text(value)
