"""The metrics of a trial by name: those of the tables, and those that specifications may name."""

from collections.abc import Sequence

from waylab.runfolder.trial_numbers import TrialNumbers, TrialOperation

# Metrics of the tables in their order; the unit is the end of the name.
METRICS = {
    "throughput_per_s": "throughput",
    "response_mean_ns": "mean response",
    "response_get_mean_ns": "mean response of GET",
    "response_set_mean_ns": "mean response of SET",
    "cpu_per_request_ns": "CPU time per request",
}
_COSTS = ("_per_request", "_per_message")
_GET_AND_SET = {"response_get_mean_ns": "get", "response_set_mean_ns": "set"}


def value_of(numbers: TrialNumbers, metric: str) -> float | None:
    """Return one of `METRICS` of a trial; None if the trial does not have it, or if it is zero."""
    if metric == "throughput_per_s":
        return numbers.throughput_per_s or None
    if metric == "cpu_per_request_ns":
        return numbers.cpu.cpu_per_request_ns.get("total") or None
    operation = numbers.operations.get(_GET_AND_SET.get(metric, "all"))
    return (operation.response_mean_ns or None) if operation else None


def shared_metrics(many: Sequence[TrialNumbers]) -> list[str]:
    """Name the metrics that every trial has; GET and SET apart only if there are both."""
    names = [name for name in METRICS if many and all(value_of(one, name) for one in many)]
    both = set(_GET_AND_SET) <= set(names)
    return [name for name in names if both or name not in _GET_AND_SET]


def metric_of(numbers: TrialNumbers, metric: str) -> float | None:
    """Return one number of a trial under the name that specifications use; None if the trial does not have it.

    Behind the name of an operation, as in `set.response_mean_ns`, it is the response time of that operation.
    """
    operation, _, rest = metric.partition(".")
    if metric in (*_GET_AND_SET, "cpu_per_request_ns"):
        return value_of(numbers, metric)
    if rest.startswith("response_"):
        return response_of(numbers, operation, rest)
    if metric == "throughput_per_s":
        return numbers.throughput_per_s
    groups = {
        "cpu_per_request_ns": numbers.cpu.cpu_per_request_ns,
        "link_utilisation": numbers.links.utilisation,
    }
    if operation in groups:
        return groups[operation].get(rest)
    if metric.endswith(_COSTS):
        return numbers.database.get(metric)
    return response_of(numbers, "all", metric)


def described_metric_of(numbers: TrialNumbers, metric: str) -> float | None:
    """Return one number of a trial as the described hosts would have it, without the time scale of their emulation."""
    value = metric_of(numbers, metric)
    if value is None:
        return None
    if metric == "throughput_per_s":
        return value * numbers.time_scale
    return value / numbers.time_scale if "response_" in metric and metric.endswith("_ns") else value


def more_is_better(metric: str) -> int:
    """Return +1 if larger values of a metric are better, -1 if smaller ones are, 0 if neither is known."""
    if metric == "throughput_per_s":
        return 1
    return -1 if "response_" in metric or "cpu_per_request" in metric or metric.endswith(_COSTS) else 0


def response_of(numbers: TrialNumbers, operation: str, metric: str) -> float | None:
    """Return a metric of the response time of one operation."""
    found = numbers.operations.get(operation)
    if found is None:
        return None
    if metric == "response_by_law_ratio":
        return _by_law(numbers, found)
    if metric == "response_mean_ns":
        return found.response_mean_ns
    return found.percentiles_ns.get(metric.removeprefix("response_p").removesuffix("_ns"))


def _by_law(numbers: TrialNumbers, operation: TrialOperation) -> float | None:
    """Return the response time by the interactive law, N/X - Z, over the measured one."""
    error, response_s = numbers.interactive_law_error, operation.response_mean_ns * 1e-9
    if error is None or not response_s:
        return None
    think_s = numbers.think_mean_s
    return ((response_s + think_s) / (1 + error) - think_s) / response_s
