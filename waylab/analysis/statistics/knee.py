"""Finds the load at which throughput stops rising, with bootstrap intervals, and the first load that is too slow.

A load can be a number of clients, of threads or a rate: the functions do not distinguish them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.analysis.statistics.correlation import CONFIDENCE
from waylab.errors import LabError

Array = NDArray[np.float64]

_LOADS_MIN = 4
_SAMPLES = 1000
# The knee is the smallest load with this share of the best throughput.
BEST_SHARE = 0.9
# Beyond the knee, the throughput may grow with at most this power of the load: twice the load then gives at most 1 /
# BEST_SHARE of the throughput. If it grows faster, loads beyond the measured ones would move the knee.
_RISE_MAX = float(np.log2(1 / BEST_SHARE))
# Loads that lie close together cannot show how throughput grows. Half way between a level curve and a straight line.
_RISE_UNDECIDED = 0.5
# A response so many times that of the smallest load is too slow.
SLOW_FACTOR = 2.0


@dataclass(frozen=True)
class Knee:
    """A load with its interval; None if there is no such load. Knees and slow loads are always measured loads.

    `found_share` is the share of resampled curves that have such a load; the interval covers only those curves.
    `text` is the result in words.
    """

    load: float | None
    low: float | None
    high: float | None
    found_share: float | None
    text: str


def knee(
    loads: Sequence[float],
    throughput: Sequence[Sequence[float]],
    best_share: float = BEST_SHARE,
    seed: int = 1,
    confidence: float = CONFIDENCE,
) -> Knee:
    """Find the smallest load with `best_share` of the best throughput; `throughput` has the runs of each load.

    There is no knee in the data if that is the smallest or the largest load: the throughput does not rise, or still
    rises there. There is none either if the throughput still grows beyond that load, as it does on a straight line
    whose last loads lie close together. The knee is also refused if more than 5 % of the curves with resampled runs
    (`resampled_means`) have none, or might grow beyond it as a straight line does.
    The interval is that of the knees of these curves. The load at which the throughput really reaches that share lies
    between the knee and the load before it.

    Raises:
        LabError: for fewer than four loads or loads that do not rise, or a throughput that is not above zero.
    """
    places, runs = _checked(loads, throughput)
    means = np.array([[values.mean() for values in runs]])
    found = float(_reaching(places, means, best_share)[0])
    share = f"{100 * best_share:g} % of the best throughput"
    if found == places[0]:
        return _none(f"no knee: the smallest load, {found:g}, already has {share}")
    if found == places[-1]:
        rise = 100 * (means[0, -1] / means[0, -2] - 1)
        return _none(
            f"no knee: throughput still rises by {rise:.0f} % from {places[-2]:g} to {found:g}; measure larger loads"
        )

    near_the_end = found > places[-1] / 2
    rise = float(_rises(places, means, found)[0]) if near_the_end else 0.0
    if rise >= _RISE_MAX:
        gain = 100 * (2**rise - 1)
        return _none(
            f"no knee: beyond {found:g}, throughput still grows at a rate of {gain:.0f} % for twice the load; measure "
            "larger loads"
        )

    def inside(curves: Array) -> Array:
        reached = _reaching(places, curves, best_share)
        return np.where((reached > places[0]) & (reached < places[-1]), reached, np.nan)

    name = f"knee ({share})"
    result = _with_interval(found, runs, inside, seed, confidence, name)
    if result.found_share is not None and result.found_share < confidence:
        lacking = 100 * (1 - result.found_share)
        return _none(
            f"no knee: it may be at {found:g}, but {lacking:.0f} % of the resampled curves still rise at the largest "
            "load, or do not rise; measure more runs or larger loads"
        )
    if near_the_end and result.low is not None:
        rises = _rises(places, resampled_means(runs, _SAMPLES, seed), found)
        if (rises >= _RISE_UNDECIDED).mean() > 1 - confidence:
            return _none(
                f"no knee: it may be at {found:g}, but {found:g} to {places[-1]:g} is too narrow a range to show "
                "whether throughput still rises; measure more runs or larger loads"
            )
    return result


def asymptotes_crossing(
    loads: Sequence[float],
    throughput: Sequence[Sequence[float]],
    seed: int = 1,
    confidence: float = CONFIDENCE,
) -> Knee:
    """Find the load N* = (R_min + Z) X_max of a closed loop, where its two asymptotes cross (Denning and Buzen 1978).

    X_max is the best throughput. R_min + Z is N / X at the smallest load, by the interactive law. It is too long if
    requests queue there, and X_max too small if the throughput still rises. N* need not be a measured load.

    Raises:
        LabError: as `knee`.
    """
    places, runs = _checked(loads, throughput)

    def cross(curves: Array) -> Array:
        return np.asarray(places[0] * curves.max(axis=1) / curves[:, 0])

    found = float(cross(np.array([[values.mean() for values in runs]]))[0])
    return _with_interval(
        found, runs, cross, seed, confidence, "crossing of the asymptotes, (R_min + Z) X_max,"
    )


def first_slow_load(
    loads: Sequence[float],
    response: Sequence[Sequence[float]],
    factor: float = SLOW_FACTOR,
    seed: int = 1,
    confidence: float = CONFIDENCE,
) -> Knee:
    """Find the first load whose response exceeds `factor` times that of the smallest load.

    `response` has for each load the runs' percentile or mean, say the 95th percentile. Interval as for `knee`.

    Raises:
        LabError: as `knee`, and for a factor that is not above 1.
    """
    if not factor > 1:
        raise LabError(f"first slow load: the factor must be above 1, not {factor}")
    places, runs = _checked(loads, response)

    def first(means: Array) -> Array:
        slow = means > factor * means[:, :1]
        return np.where(slow.any(axis=1), places[slow.argmax(axis=1)], np.nan)

    found = first(np.array([[values.mean() for values in runs]]))[0]
    if np.isnan(found):
        return _none(f"no load is {factor:g} times as slow as the smallest one")
    return _with_interval(
        float(found),
        runs,
        first,
        seed,
        confidence,
        f"it first exceeds {factor:g} times its value at the smallest load",
    )


def _reaching(loads: Array, curves: Array, best_share: float) -> Array:
    """Smallest load with a share of the best throughput; curves of shape (curves, loads)."""
    reached = curves >= best_share * curves.max(axis=1, keepdims=True)
    return np.asarray(loads[reached.argmax(axis=1)])


def _rises(loads: Array, curves: Array, knee_load: float) -> Array:
    """Power of the load with which each curve grows beyond the knee: 0 if level, 1 if proportional to the load.

    The slope of the least-squares line through the logarithms; curves of shape (curves, loads).
    """
    beyond = loads >= knee_load
    x = np.log(loads[beyond])
    x -= x.mean()
    return np.asarray(np.log(curves[:, beyond]) @ x / (x @ x))


def _none(text: str) -> Knee:
    return Knee(None, None, None, None, text)


def resampled_means(runs: Sequence[Array], samples: int, seed: int) -> Array:
    """Means of resampled runs, of shape (samples, loads).

    Residuals relative to their load's mean are pooled, made as wide as the error they estimate by sqrt(n / (n - g))
    for n runs of g loads, and drawn anew for every run (Davison and Hinkley, Bootstrap Methods and their Application,
    1997, 6.2): to draw among the three runs of one load would give intervals that are a fifth too narrow.
    """
    means = np.array([values.mean() for values in runs])
    count, groups = sum(values.size for values in runs), len(runs)
    relative = np.concatenate([values / values.mean() - 1 for values in runs]) * np.sqrt(
        count / (count - groups)
    )
    generator = np.random.default_rng(seed)
    drawn = generator.choice(relative, (samples, count))
    edges = np.cumsum([0, *(values.size for values in runs)])[:-1]
    noise = np.add.reduceat(drawn, edges, axis=1) / np.array([values.size for values in runs])
    return np.asarray(means * (1 + noise))


def _with_interval(
    load: float, runs: list[Array], find: Callable[[Array], Array], seed: int, confidence: float, name: str
) -> Knee:
    if sum(values.size for values in runs) == len(runs):
        text = f"{name} at {load:.4g}; a single run of each load gives no interval"
        return Knee(load, None, None, None, text)
    knees = find(resampled_means(runs, _SAMPLES, seed))
    there = knees[~np.isnan(knees)]
    share = there.size / knees.size
    if not there.size:
        return Knee(load, None, None, share, f"{name} at {load:.4g}, but no resampled curve has one")
    tail = (1 - confidence) / 2
    low, high = np.quantile(there, [tail, 1 - tail], method="inverted_cdf").tolist()
    text = f"{name} at {load:.4g}, {100 * confidence:g} % interval {low:.4g} to {high:.4g}"
    if share < confidence:
        text += f"; only {100 * share:.0f} % of the resampled curves have one"
    return Knee(load, float(low), float(high), share, text)


def _checked(loads: ArrayLike, measured: Sequence[Sequence[float]]) -> tuple[Array, list[Array]]:
    places = np.asarray(loads, dtype=float)
    runs = [np.asarray(values, dtype=float) for values in measured]
    if places.ndim != 1 or places.size < _LOADS_MIN or not (np.diff(places) > 0).all():
        raise LabError(f"knee: needs {_LOADS_MIN} loads at least, each larger than the one before")
    if len(runs) != places.size or any(values.ndim != 1 or not values.size for values in runs):
        raise LabError(f"knee: needs the runs of each of {places.size} loads")
    if any(not np.isfinite(values).all() or not (values > 0).all() for values in runs):
        raise LabError("knee: every measured value must be finite and above zero")
    return places, runs
