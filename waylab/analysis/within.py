"""Inside one run: how long it took to settle, how much its seconds say, and how sure its percentiles are.

From the seconds of the load's summary. What the campaign concludes rests on runs, not on this.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waylab.analysis import histograms
from waylab.analysis.statistics.correlation import BatchMeans, batch_means, ratio_interval
from waylab.analysis.statistics.percentiles import PercentileInterval, percentile_intervals
from waylab.analysis.statistics.warm_up import WarmUp, later_of

Array = NDArray[np.float64]

_PERCENTS = (*histograms.PERCENTILES, histograms.RARE_PERCENTILE)


def within_run(load: dict[str, Any], where: str) -> dict[str, Any]:
    """Judge the whole seconds of the measured window; `where` is for the words of an error.

    Returns `seconds`, `warm_up` (seconds that should have been cut off), and of what is left the intervals of
    `throughput_per_s`, `response_mean_ns` and, where the seconds have histograms, `percentiles_ns`. Where there is no
    interval, `text` says why not.

    Raises:
        LabError: for histograms that cannot be decoded.
    """
    seconds = [second for second in load["seconds"] if second["measured"]]
    requests = np.array([second["requests"] for second in seconds], dtype=float)
    spent_ns = np.array([_spent_ns(second) for second in seconds])
    if not requests.sum() > 0:
        return {"seconds": len(seconds), "warm_up": None, "percentiles_ns": {}}
    mean_ns = np.where(requests > 0, spent_ns / np.maximum(requests, 1), spent_ns.sum() / requests.sum())
    settled, by = later_of({"throughput": requests, "mean response": mean_ns})
    rest = slice(settled.cut, None)
    return {
        "seconds": len(seconds),
        "warm_up": _warm_up(settled, by),
        "throughput_per_s": _interval(batch_means(requests[rest])),
        "response_mean_ns": _interval(ratio_interval(spent_ns[rest], requests[rest])),
        "percentiles_ns": _percentiles(seconds[rest], where),
    }


def effective_counts(within: dict[str, Any]) -> dict[str, float]:
    """Effective sample size of every percentile of a run, as far as it is known."""
    found = within.get("percentiles_ns", {})
    return {percent: one["effective"] for percent, one in found.items() if one["effective"] is not None}


def steady_state(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up over trials whether they had settled when measuring began, with a sentence."""
    found = [trial["within"]["warm_up"] for trial in trials if (trial.get("within") or {}).get("warm_up")]
    judged = [one for one in found if one["steady"] is not None]
    unsteady = sum(not one["steady"] for one in judged)
    late = sum(one["steady"] and one["cut_s"] > 0 for one in judged)
    if not judged:
        text = "The warm-up has a fixed length, and no trial was long enough to see whether it had settled by then."
    else:
        text = (
            f"The warm-up has a fixed length. Of {len(judged)} trials that were long enough to be judged, "
            f"{late} settled only later, and {unsteady} had no steady state."
        )
    return {"judged": len(judged), "late": late, "unsteady": unsteady, "text": text}


def _spent_ns(second: dict[str, Any]) -> float:
    """Response times of one second added up; earlier versions had only their mean."""
    total = second.get("sum_ns")
    return float(total) if total is not None else float((second.get("mean_ns") or 0) * second["requests"])


def _warm_up(found: WarmUp, by: str) -> dict[str, Any]:
    if found.refused is not None:
        text = found.refused.replace("values", "seconds")
    elif not found.steady:
        text = f"no steady state: the {by} goes on changing until half of the run is over"
    elif found.cut:
        text = f"the {by} settles {found.cut} s after measuring began"
    else:
        text = "settled when measuring began"
    return {"cut_s": found.cut, "steady": found.steady, "by": by, "text": text}


def _interval(found: BatchMeans) -> dict[str, Any]:
    return {
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "effective": None if np.isnan(found.effective) else found.effective,
        "text": None if found.refused is None else found.refused.replace("values", "seconds"),
    }


def _percentiles(seconds: list[dict[str, Any]], where: str) -> dict[str, dict[str, Any]]:
    texts = [_histogram_texts(second) for second in seconds]
    if not any(texts):
        return {}
    rows = [
        [histograms.decode(text, f"{where}, a second") for text in texts_of_one] for texts_of_one in texts
    ]
    counts, values_ns = histograms.matrix(rows, where)
    if not counts.size:
        return {}
    found = percentile_intervals(counts, values_ns, _PERCENTS)
    return {f"{one.percent:g}": _percentile(one) for one in found}


def _histogram_texts(second: dict[str, Any]) -> list[str]:
    parts = second.get("histograms") or {"all": second.get("histogram") or ""}
    return [text for text in parts.values() if text]


def _percentile(found: PercentileInterval) -> dict[str, Any]:
    return {
        "value": found.value if found.shown else None,
        "low": found.low,
        "high": found.high,
        "effective": None if np.isnan(found.effective) else found.effective,
        "text": found.refused,
    }
