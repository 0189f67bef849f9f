"""Statistics over trials: the trial is the experimental unit, requests within it are only sub-samples."""

import math
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


def mean_interval(values: list[float], confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Mean and two-sided t interval of independent values; no interval for fewer than two."""
    count = len(values)
    if not count:
        return {"count": 0, "mean": None, "low": None, "high": None}
    mean = math.fsum(values) / count
    if count == 1:
        return {"count": 1, "mean": mean, "low": None, "high": None}
    half = stats.t.ppf(0.5 + confidence / 2, count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return {"count": count, "mean": mean, "low": mean - half, "high": mean + half}


def paired_ratio(log_ratios: list[float], margin: float = 0.0) -> dict[str, Any]:
    """Ratio of candidate to baseline from one log ratio per block, with its t interval.

    With a margin also the equivalence test: two one-sided tests at 5 %, that is, the 90 % interval lies
    within 1 / (1 + margin) and 1 + margin (Schuirmann 1987).
    """
    interval = mean_interval(log_ratios)
    result = {
        "blocks": interval["count"],
        "ratio": _exp(interval["mean"]),
        "low": _exp(interval["low"]),
        "high": _exp(interval["high"]),
        "excludes_1": None,
        "equivalent": None,
    }
    if interval["low"] is not None:
        result["excludes_1"] = not bool(interval["low"] <= 0 <= interval["high"])
        if margin > 0:
            inner = mean_interval(log_ratios, 0.90)
            limit = math.log1p(margin)
            result["equivalent"] = bool(-limit < inner["low"] and inner["high"] < limit)
    return result


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
