"""Inside one trial: whether it was in a steady state and from when on, and how precise its mean and percentiles are.

Computed from the seconds of the load's summary. Conclusions rest on several trials, not on this.
"""

import numpy as np
from numpy.typing import NDArray

from waylab.analysis.statistics.correlation import BatchMeans, batch_means, ratio_interval
from waylab.analysis.statistics.level import LevelChange
from waylab.analysis.statistics.percentiles import PercentileInterval, percentile_intervals
from waylab.analysis.statistics.steady_state import CHANGE_MIN, Steadiness, latest
from waylab.analysis.trial import histograms
from waylab.runfolder.analysis import SteadyState
from waylab.runfolder.load import LoadSecond
from waylab.runfolder.trial_numbers import (
    AnalysedTrial,
    WarmUpFound,
    WithinInterval,
    WithinPercentile,
    WithinTrial,
)

Array = NDArray[np.float64]

_PERCENTS = (*histograms.PERCENTILES, histograms.RARE_PERCENTILE)


def within_trial(seconds: list[LoadSecond], where: str) -> WithinTrial:
    """Judge the whole seconds of the measured window; `where` is for the words of an error.

    The intervals are those of what follows the warm-up. Where there is no interval, `text` says why not.

    Raises:
        LabError: for histograms that cannot be decoded.
    """
    measured = [second for second in seconds if second.measured]
    requests = np.array([second.requests for second in measured], dtype=float)
    spent_ns = np.array([_spent_ns(second) for second in measured])
    if not requests.sum() > 0:
        return WithinTrial(seconds=len(measured))
    mean_ns = np.where(requests > 0, spent_ns / np.maximum(requests, 1), spent_ns.sum() / requests.sum())
    state, by = latest({"throughput": requests, "mean response": mean_ns})
    rest = slice(state.cut, None)
    return WithinTrial(
        seconds=len(measured),
        warm_up=_warm_up(state, by),
        throughput_per_s=_interval(batch_means(requests[rest])),
        response_mean_ns=_interval(ratio_interval(spent_ns[rest], requests[rest])),
        percentiles_ns=_percentiles(measured[rest], where),
    )


def effective_counts(within: WithinTrial) -> dict[str, float]:
    """Effective sample size of every percentile of a trial, as far as it is known."""
    return {
        percent: one.effective for percent, one in within.percentiles_ns.items() if one.effective is not None
    }


def steady_state(trials: list[AnalysedTrial]) -> SteadyState:
    """Sum up over trials whether they had reached a steady state when measuring started, with a sentence."""
    found = [trial.numbers.within.warm_up for trial in trials if trial.numbers]
    judged = [one for one in found if one is not None and one.steady is not None]
    unsteady = sum(not one.steady for one in judged)
    late = sum(bool(one.steady) and one.cut_s > 0 for one in judged)
    if not judged:
        text = "The warm-up has a fixed length. No trial was long enough to show whether it reached a steady state."
    else:
        text = (
            f"The warm-up has a fixed length. Of {len(judged)} trials that were long enough to be judged, "
            f"{late} became steady only later, and {unsteady} had no steady state."
        )
    return SteadyState(judged=len(judged), late=late, unsteady=unsteady, text=text)


def _spent_ns(second: LoadSecond) -> float:
    """Return the sum of the response times of one second."""
    return float(second.sum_ns if second.sum_ns is not None else (second.mean_ns or 0.0) * second.requests)


def _warm_up(found: Steadiness, by: str) -> WarmUpFound:
    if found.change is not None:
        text = f"no steady state: the {by} {_change_words(found.change, found.values)}"
    elif found.refused is not None:
        text = found.refused.replace("values", "seconds")
    elif found.cut:
        text = f"the {by} is steady from {found.cut} s after the measurement began"
    else:
        text = "steady when the measurement began"
    return WarmUpFound(cut_s=found.cut, steady=found.steady, by=by, text=text)


def _change_words(change: LevelChange, seconds: int) -> str:
    """Say by how much the level changes, and when."""
    size = f"{'rises' if change.size > 0 else 'falls'} by {abs(change.size):.0%} of its mean"
    limit = f"limit {CHANGE_MIN:.0%}"
    if change.shape == "step":
        return f"{size} {seconds - change.values + change.at} s after the measurement began, {limit}"
    return f"{size} within {change.values} s, {limit}"


def _interval(found: BatchMeans) -> WithinInterval:
    return WithinInterval(
        mean=found.mean,
        low=found.low,
        high=found.high,
        effective=None if np.isnan(found.effective) else found.effective,
        text=None if found.refused is None else found.refused.replace("values", "seconds"),
    )


def _percentiles(seconds: list[LoadSecond], where: str) -> dict[str, WithinPercentile]:
    texts = [[text for text in second.histograms.values() if text] for second in seconds]
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


def _percentile(found: PercentileInterval) -> WithinPercentile:
    return WithinPercentile(
        value=found.value if found.shown else None,
        low=found.low,
        high=found.high,
        effective=None if np.isnan(found.effective) else found.effective,
        text=found.refused,
    )
