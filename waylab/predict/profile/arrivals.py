"""Times of arrival: Poisson, or bursts of a two-state Markov-modulated Poisson process fitted to recorded ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from waylab.bounded import UnreadableError, read_text
from waylab.errors import LabError
from waylab.predict.profile.phases import Phase

Array = NDArray[np.float64]

_BYTES_MAX = 1 << 26
_ARRIVALS_MIN = 1000
_WINDOWS_MIN = 50
_SCALES = 12
# States that are shorter than this share of the mean time between arrivals are instants.
_INSTANT, _CYCLES_MIN = 0.1, 5


@dataclass(frozen=True)
class Bursts:
    """Two states with rates relative to the mean rate; times in seconds. The first state is the busier one."""

    factors: tuple[float, float]
    lengths_s: tuple[float, float]

    @property
    def dispersion(self) -> float:
        """Variance over mean of counts in a long time, less one, for each arrival per second; 0 is Poisson."""
        up, down = 1 / self.lengths_s[0], 1 / self.lengths_s[1]
        busy = down / (up + down)
        return 2 * busy * (1 - busy) * (self.factors[0] - self.factors[1]) ** 2 / (up + down)


def read_arrivals(path: Path) -> Array:
    """Times of arrival in seconds, one in each line, in any order.

    Raises:
        LabError: for a file that cannot be read, or a line that is no number.
    """
    try:
        text = read_text(path, _BYTES_MAX)
    except FileNotFoundError:
        raise LabError(f"{path}: there is no such file") from None
    except UnreadableError as error:
        raise LabError(f"{path}: {error}") from None
    times = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            time_s = float(line)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise LabError(f"{path}:{number}: {line.strip()[:40]!r} is not a time in seconds")
        times.append(time_s)
    return np.sort(np.array(times))


def fit_bursts(times_s: Sequence[float] | Array) -> Bursts | None:
    """Fit the process to recorded arrivals; `None` where they are no burstier than Poisson.

    The mean rate, the dispersion of counts over windows of many lengths (variance over mean: how much and for how long
    the rate changes) and the skewness of counts (whether busy times are short or long) are matched.

    Raises:
        LabError: for too few arrivals, or bursts that are instants or as long as the recording.
    """
    times = np.asarray(times_s, dtype=float)
    if times.size < _ARRIVALS_MIN:
        raise LabError(
            f"{times.size} recorded arrivals are too few for bursts; record at least {_ARRIVALS_MIN}"
        )
    length = float(times[-1] - times[0])
    if not length > 0:
        raise LabError("all recorded arrivals have the same time")
    rate = (times.size - 1) / length
    windows = np.geomspace(3 / rate, length / _WINDOWS_MIN, _SCALES)
    counts = [_counts(times, window) for window in windows]
    excess = np.array([found.var() / found.mean() - 1 for found in counts])
    errors = np.array([2.5 * math.sqrt(2 / found.size) for found in counts])
    if not (excess > errors).any():
        return None

    def curve(at: Array) -> Array:
        whole, speed = np.exp(at)
        steps = speed * windows
        return np.asarray(whole * (1 + np.expm1(-steps) / steps))

    def gaps(at: Array) -> Array:
        # The dispersion of few windows is uncertain by its own size.
        return np.asarray((curve(at) - excess) / ((1 + np.maximum(excess, 0)) * errors))

    starts = [np.array([math.log(max(excess.max(), 0.01)), -math.log(window)]) for window in windows]
    best = min((least_squares(gaps, start) for start in starts), key=lambda found: float(found.cost))
    whole, speed = (float(value) for value in np.exp(best.x))
    # Variance of the rate relative to its squared mean, and its skewness from the third moment of counts.
    variance = whole * speed / (2 * rate)
    share = _busy_share(counts[int(np.argmin(np.abs(np.log(windows * speed))))], variance)
    spread = math.sqrt(variance)
    # The rate of the idle state cannot be below zero.
    share = min(share, 1 / (1 + variance))
    low = 1 - spread * math.sqrt(share / (1 - share))
    high = 1 + spread * math.sqrt((1 - share) / share)
    found = Bursts((high, max(low, 0.0)), (1 / (speed * (1 - share)), 1 / (speed * share)))
    if min(found.lengths_s) < _INSTANT / rate or _CYCLES_MIN * sum(found.lengths_s) > length:
        raise LabError(
            "the recorded arrivals do not look like bursts: they come at single instants, or in too few bursts; "
            "record them for longer, with a finer clock"
        )
    return found


def _counts(times: Array, window: float) -> Array:
    number = int((times[-1] - times[0]) / window)
    edges = times[0] + window * np.arange(number + 1)
    return np.asarray(np.diff(np.searchsorted(times, edges)), dtype=float)


def _busy_share(counts: Array, variance: float) -> float:
    """Share of the time in the busier state, from the skewness of the rate that counts show."""
    mean = counts.mean()
    second = counts.var()
    third = float(((counts - mean) ** 3).mean())
    # Cumulants of the rate: those of the counts without the Poisson part.
    of_rate = third - 3 * second + 2 * mean
    spread = max(second - mean, 1e-12 * mean) ** 1.5
    skew = float(np.clip(of_rate / spread, -20, 20)) if variance > 0 else 0.0
    # Two values have skewness (1 - 2p) / sqrt(p (1 - p)).
    return 0.5 * (1 - skew / math.sqrt(4 + skew**2))


def arrival_times(
    phases: Sequence[Phase], random: np.random.Generator, bursts: Bursts | None = None
) -> Array:
    """Times of arrival of all phases, sorted."""
    edges = np.concatenate([[0.0], np.cumsum([phase.length_s for phase in phases])])
    if bursts is None:
        pieces = [
            np.sort(random.uniform(low, high, random.poisson(phase.rate_per_s * phase.length_s)))
            for phase, low, high in zip(phases, edges[:-1], edges[1:], strict=True)
        ]
        return np.concatenate(pieces)
    # Cut the time where the state or the phase changes: in each piece the arrivals are Poisson.
    changes, busier = _states(bursts, float(edges[-1]), random)
    cuts = np.union1d(edges, changes)
    middles = (cuts[:-1] + cuts[1:]) / 2
    busy = busier[np.searchsorted(changes, middles, side="right") - 1]
    rates = np.array([phase.rate_per_s for phase in phases])[np.searchsorted(edges, middles) - 1]
    rates = rates * np.where(busy, bursts.factors[0], bursts.factors[1])
    numbers = random.poisson(rates * np.diff(cuts))
    return np.sort(
        np.repeat(cuts[:-1], numbers) + np.repeat(np.diff(cuts), numbers) * random.random(numbers.sum())
    )


def _states(bursts: Bursts, end_s: float, random: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
    """Times at which states begin, the first at 0, and whether each is the busier one."""
    lengths = bursts.lengths_s
    now, busy = 0.0, bool(random.random() < lengths[0] / sum(lengths))
    times, states = [], []
    while now < end_s:
        times.append(now)
        states.append(busy)
        now += random.exponential(lengths[0] if busy else lengths[1])
        busy = not busy
    return np.array(times), np.array(states)
