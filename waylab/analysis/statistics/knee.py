"""Where a curve bends: Kneedle with a bootstrap interval, and the first load that is too slow.

Knows loads and what was measured at each; whether they are clients, threads or rates is the caller's business.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from waylab.analysis.statistics.correlation import CONFIDENCE
from waylab.errors import LabError

Array = NDArray[np.float64]

_LOADS_MIN = 4
_SAMPLES = 1000
# How far below its highest point the difference curve must fall, in mean steps of the load, before it is a knee.
SENSITIVITY = 1.0
# A response so many times that of the smallest load is too slow.
SLOW_FACTOR = 2.0


@dataclass(frozen=True)
class Knee:
    """A load with its interval, both among the loads that were measured; None where there is no such load.

    `found_share` is how often the resampled curves have such a load at all; `interval` covers those that do.
    `text` says it in words.
    """

    load: float | None
    low: float | None
    high: float | None
    found_share: float | None
    text: str


def knee(
    loads: Sequence[float],
    throughput: Sequence[Sequence[float]],
    sensitivity: float = SENSITIVITY,
    seed: int = 1,
    confidence: float = CONFIDENCE,
) -> Knee:
    """Find the knee of throughput over load by Kneedle; `throughput` has the runs of each load.

    Kneedle (Satopaa, Albrecht, Irwin and Raghavan 2011): both axes scaled to 0 to 1, the knee is the first local
    maximum of y - x after which the curve falls by more than `sensitivity` mean steps. It depends on the range that
    was measured; see `first_slow_load` for one that does not. The interval is that of the knees of curves with
    resampled runs (`resampled_means`).

    Raises:
        LabError: for fewer than four loads or loads that do not rise, or a throughput that is not above zero.
    """
    places, runs = _checked(loads, throughput)
    found = kneedle(places, np.array([[values.mean() for values in runs]]), sensitivity)[0]
    if np.isnan(found):
        return Knee(None, None, None, None, "no knee: the curve does not bend within the measured loads")
    return _with_interval(
        float(found), runs, lambda means: kneedle(places, means, sensitivity), seed, confidence, "knee"
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
        text = f"no load is {factor:g} times as slow as the smallest one"
        return Knee(None, None, None, None, text)
    return _with_interval(
        float(found), runs, first, seed, confidence, f"first load above {factor:g} times unloaded"
    )


def kneedle(loads: Array, curves: Array, sensitivity: float = SENSITIVITY) -> Array:
    """Kneedle for concave rising curves, curves of shape (curves, loads); knees of shape (curves,), nan for none."""
    # It takes a moment to load, and only runs with a curve need it.
    from kneed import KneeLocator  # noqa: PLC0415

    found = np.full(len(curves), np.nan)
    with warnings.catch_warnings():
        # A curve without a knee is an answer, not a reason to warn.
        warnings.simplefilter("ignore")
        for place, curve in enumerate(curves):
            if curve.max() > curve.min():
                located = KneeLocator(
                    loads, curve, S=sensitivity, curve="concave", direction="increasing"
                ).knee
                found[place] = np.nan if located is None else located
    return found


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
        text = f"{name} at {load:g}; a single run of each load gives no interval"
        return Knee(load, None, None, None, text)
    knees = find(resampled_means(runs, _SAMPLES, seed))
    there = knees[~np.isnan(knees)]
    share = there.size / knees.size
    if not there.size:
        return Knee(load, None, None, share, f"{name} at {load:g}, but no resampled curve has one")
    tail = (1 - confidence) / 2
    low, high = np.quantile(there, [tail, 1 - tail], method="inverted_cdf").tolist()
    text = f"{name} at {load:g}, {100 * confidence:g} % interval {low:g} to {high:g}"
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
