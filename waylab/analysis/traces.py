"""A trial second by second, for the figure that shows how it went over time."""

from typing import Any

# Fewer points make no curve.
SECONDS_MIN = 5


def trace(load: dict[str, Any], within: dict[str, Any]) -> dict[str, Any] | None:
    """Throughput, mean response and misses of every whole second, the warm-up included; None for short trials.

    `measured_from` and `settled_from` are seconds of the run: where measuring began, and where MSER-5 says that it
    should have begun (None where it cannot say). `second` counts from the beginning of the run.
    """
    seconds = load["seconds"]
    measured = [second["second"] for second in seconds if second["measured"]]
    if len(measured) < SECONDS_MIN:
        return None
    warm_up = within.get("warm_up")
    judged = bool(warm_up and warm_up["steady"])
    return {
        "measured_from": measured[0],
        "settled_from": measured[0] + warm_up["cut_s"] if judged and warm_up else None,
        "steady": warm_up["steady"] if warm_up else None,
        "seconds": [_second(second) for second in seconds if second["second"] <= measured[-1]],
    }


def _second(second: dict[str, Any]) -> dict[str, Any]:
    hits, misses = second.get("hits", 0), second.get("misses", 0)
    return {
        "second": second["second"],
        "measured": second["measured"],
        "throughput_per_s": second["requests"],
        "response_mean_ns": second.get("mean_ns") if second["requests"] else None,
        "response_p99_ns": second.get("p99_ns") if second["requests"] else None,
        "miss_ratio": misses / (hits + misses) if hits + misses else None,
    }
