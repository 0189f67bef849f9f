"""Percentiles of correlated samples with their intervals, from one histogram for each second.

A histogram is a row of counts over common buckets; this file does not know where it came from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from waylab.analysis.statistics.correlation import (
    CONFIDENCE,
    VALUES_MIN,
    ratio_residuals,
    spreads,
    too_correlated,
    too_few,
)
from waylab.errors import LabError

Array = NDArray[np.float64]

# A percentile with fewer effective values above it says more about luck than about the system.
ABOVE_MIN = 10.0


@dataclass(frozen=True)
class PercentileInterval:
    """One percentile in the unit of the buckets; `refused` says in words why it has no interval.

    `effective` is how many independent values would say as much about this percentile, nan where that is not known.
    `shown` is False when fewer than ten effective values lie above it, or fewer than ten at all where the effective
    number is not known: then not even the value may be printed.
    """

    percent: float
    value: float
    low: float | None
    high: float | None
    effective: float
    shown: bool
    refused: str | None


@dataclass(frozen=True)
class _Share:
    """How well the share of values beyond a bucket is known, seen from the seconds."""

    share: float
    total: float
    effective: float
    degrees: float
    batch: int
    lag_1: float
    refused: str | None


def percentile_intervals(
    counts: ArrayLike, values: ArrayLike, percents: Sequence[float], confidence: float = CONFIDENCE
) -> list[PercentileInterval]:
    """Intervals by order statistics with the effective sample size; counts of shape (seconds, buckets).

    `values` of shape (buckets,) rise; each is what its bucket stands for. The interval of the p-quantile reaches
    from the j-th to the k-th of n ordered values, with the limits j / n and k / n of the binomial share p (Le Boudec,
    Performance Evaluation of Computer and Communication Systems, 2010, 2.2). Here n is the effective size: the share
    beyond the quantile is a ratio of sums over seconds, whose variance `spreads` estimates, and n = p (1 - p) /
    variance; it is lowered once more by (z / t)^2 for being estimated (Korn and Graubard 1998, Survey Methodology 24;
    the inversion is Woodruff's, 1952). The binomial limits are Jeffreys' (Brown, Cai and DasGupta 2001).

    Raises:
        LabError: for counts without values, buckets that do not match, or percents outside of 0 to 100.
    """
    seconds, levels = _checked(counts, values, percents)
    merged = np.cumsum(seconds.sum(axis=0))
    places = [_place(merged, percent / 100) for percent in percents]
    found = []
    for percent, place, share in zip(percents, places, _shares_above(seconds, places), strict=True):
        low = high = None
        if share.refused is None:
            size = share.effective
            # Less than the effective size, since its variance is estimated; the normal quantile over Student's.
            size *= (
                float(
                    special.ndtri(0.5 + confidence / 2) / special.stdtrit(share.degrees, 0.5 + confidence / 2)
                )
                ** 2
            )
            below, beyond = size * percent / 100, size * (1 - percent / 100)
            shares = (
                float(special.betaincinv(below + 0.5, beyond + 0.5, 0.5 - confidence / 2)),
                float(special.betaincinv(below + 0.5, beyond + 0.5, 0.5 + confidence / 2)),
            )
            low, high = (float(level) for level in levels[_limits(merged, *shares)])
        found.append(_interval(percent, float(levels[place]), low, high, share))
    return found


def rank(percent: float, count: float) -> int:
    """Return the rank, from 1, of a percentile among `count` values: the smallest one with that share up to it.

    This is the nearest rank (Hyndman and Fan 1996, type 1), as the load generator takes it. The small amount is for
    products such as 99.9 % of 1000, which floating point makes a little larger than they are.
    """
    return max(1, math.ceil(percent * count / 100 - 1e-6))


def values_needed(percent: float, effective_share: float = 1.0) -> int:
    """Number of values for ten effective ones above a percentile, when each is worth this share of one.

    Raises:
        LabError: for a percent outside of 0 to 100 or a share outside of 0 to 1.
    """
    if not 0 < percent < 100 or not 0 < effective_share <= 1:
        raise LabError(
            f"percentile {percent:g}: must lie between 0 and 100, the share {effective_share:g} within 0 to 1"
        )
    return math.ceil(round(ABOVE_MIN / (1 - percent / 100) / effective_share, 6))


def _interval(
    percent: float, value: float, low: float | None, high: float | None, share: _Share
) -> PercentileInterval:
    # Where the effective size is not known, it is at most the number of values.
    size, kind = (
        (share.total, "values") if math.isnan(share.effective) else (share.effective, "effective values")
    )
    above = size * (1 - percent / 100)
    if above < ABOVE_MIN * (1 - 1e-9):
        refused = f"only {above:.1f} {kind} lie above it, and it takes {ABOVE_MIN:g}"
        return PercentileInterval(percent, value, None, None, share.effective, False, refused)
    return PercentileInterval(percent, value, low, high, share.effective, True, share.refused)


def _checked(counts: ArrayLike, values: ArrayLike, percents: Sequence[float]) -> tuple[Array, Array]:
    seconds, levels = np.asarray(counts, dtype=float), np.asarray(values, dtype=float)
    if seconds.ndim != 2 or levels.shape != seconds.shape[1:] or not seconds.sum() > 0 or (seconds < 0).any():
        raise LabError(
            f"percentiles: need counts of shape (seconds, buckets) that are not all zero and one value for each "
            f"bucket, not {seconds.shape} and {levels.shape}"
        )
    wrong = [percent for percent in percents if not 0 < percent < 100]
    if wrong:
        raise LabError(f"percentiles: {wrong[0]:g} does not lie between 0 and 100")
    return seconds, levels


def _place(cumulative: Array, share: float) -> int:
    """Bucket of the quantile."""
    return int(np.searchsorted(cumulative, rank(100 * share, float(cumulative[-1]))))


def _limits(cumulative: Array, low: float, high: float) -> list[int]:
    """Buckets of the limits of an interval, rounded outwards: between two values, the interval reaches both."""
    total = cumulative[-1]
    ranks = np.clip([np.floor(low * total), np.floor(high * total) + 1], 1, total)
    return [int(np.searchsorted(cumulative, one)) for one in ranks]


def _shares_above(seconds: Array, places: list[int]) -> list[_Share]:
    everything = seconds.sum(axis=1)
    beyond = [seconds[:, place + 1 :].sum(axis=1) for place in places]
    ratios = [ratio_residuals(some, everything) for some in beyond]
    total = float(everything.sum())
    if len(seconds) < VALUES_MIN:
        short = too_few(len(seconds)).replace("values", "seconds", 1)
        return [_Share(share, total, math.nan, math.nan, 1, math.nan, short) for share, _ in ratios]
    found, shares = spreads(np.stack([residuals for _, residuals in ratios])), []
    for index, (share, _) in enumerate(ratios):
        variance = float(found.variance[index])
        effective = min(share * (1 - share) / variance, total) if variance > 0 else total
        refused = None
        if not found.enough[index]:
            refused = too_correlated(found, len(seconds), index).replace("values", "seconds")
        # The seconds that hold the values beyond the quantile: when these are few, the variance rests on few.
        holding = float(beyond[index].sum() ** 2 / max((beyond[index] ** 2).sum(), 1e-300))
        degrees = min(float(found.degrees[index]), max(holding, 1.0))
        batch, lag_1 = int(found.batch[index]), float(found.lag_1[index])
        shares.append(_Share(share, total, effective, degrees, batch, lag_1, refused))
    return shares
