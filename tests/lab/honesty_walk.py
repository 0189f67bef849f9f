"""Measures the coverage of the simulator's intervals for M/M/1 near saturation, without simulating every request.

A campaign at a load of 0.999 has almost two billion requests. Between two points in time, the number of requests
present depends on a free random walk and on its lowest point only, and both can be drawn. So one draw replaces a block
of events. The lengths of replications are those that the simulator chooses, and the intervals are computed as in
`crates/simulate/src/report`: Student's interval with Willink's correction for skew, and Woodruff's for quantiles.

`python tests/lab/honesty_walk.py 0.999 1000` prints the counts of a thousand campaigns, after every fifty.
"""

import math
import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, t

REPLICATIONS, WARM_UP, MEASURED = 20, 3.0, 20.0
SHARES = (0.5, 0.9, 0.95, 0.99)
BOTH_SIDES = "mean, with half_width on both sides"
# Relaxation times that the interval of a quantile needs, times the share of the requests beyond it.
_BEYOND_LEAST = 36.0
# Blocks in a relaxation time. The levels within a block differ by a few percent of the mean.
_BLOCKS = 900
_BUCKETS, _COARSE = 256, 64  # to an octave
_TOGETHER = 50


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass
class Count:
    given: int = 0
    covered: int = 0

    def add(self, found: Interval | None, truth: float) -> None:
        if found is not None:
            self.given += 1
            self.covered += found.low <= truth <= found.high

    def limits(self) -> tuple[float, float]:
        """Return the exact 95 % interval of the coverage (Clopper and Pearson 1934)."""
        missed = self.given - self.covered
        low = beta.ppf(0.025, self.covered, missed + 1) if self.covered else 0.0
        return float(low), float(beta.ppf(0.975, self.covered + 1, missed) if missed else 1.0)


class Walk:
    """M/M/1 with mean service 1, in many replications at the same time.

    Events are arrivals with probability load / (1 + load), otherwise departures, which change nothing if there is no
    request. After a block with the free sum S and the lowest partial sum M, there are max(Q + S, S - M) requests.
    Given S, M is at most -m with probability exp(-2 m (m + S) / events), by the reflection principle. The error is of
    the order of one over the number of events. All arrivals of a block count with the mean level of its ends.
    """

    def __init__(self, load: float, walks: int, random: np.random.Generator):
        self.arrival = load / (1 + load)
        relaxation = load / (1 - math.sqrt(load)) ** 2 / self.arrival
        self.events = 1 << max(6, round(math.log2(relaxation / _BLOCKS)))
        self.blocks = relaxation / self.events
        self.mean = 1 / (1 - load)
        self.level = np.zeros(walks)
        self.random = random

    def block(self) -> tuple[np.ndarray, np.ndarray]:
        """Continue by one block; return the arrivals and their mean response time in each replication."""
        arrivals = self.random.binomial(self.events, self.arrival, self.level.size)
        free = 2.0 * arrivals - self.events
        chance = np.log(self.random.random(self.level.size))
        lowest = np.floor((-free + np.sqrt(free**2 - 2 * self.events * chance)) / 2)
        lowest = np.maximum(lowest, np.maximum(0, -free))
        before, self.level = self.level, np.maximum(self.level + free, free + lowest)
        return arrivals, (before + self.level) / 2 + 1

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of each replication and its counts by bucket, of shape (replications, buckets)."""
        for _ in range(math.ceil(WARM_UP * self.blocks)):
            self.block()
        buckets = int(math.log2(60 * self.mean) * _BUCKETS)
        counts, rows = np.zeros((self.level.size, buckets)), np.arange(self.level.size)
        sums = np.zeros(self.level.size)
        for _ in range(math.ceil(MEASURED * self.blocks)):
            arrivals, response = self.block()
            places = np.minimum((np.log2(response) * _BUCKETS).astype(int), buckets - 1)
            counts[rows, places] += arrivals
            sums += arrivals * response
        return sums / counts.sum(axis=1), counts


def mean_interval(values: np.ndarray) -> Interval:
    """Student's interval, corrected for the skew of the values (Willink 2005)."""
    count = values.size
    distances = values - values.mean()
    squares, cubes = float((distances**2).sum()), float((distances**3).sum())
    error = math.sqrt(squares / (count - 1) / count)
    if squares <= 0:
        return Interval(float(values.mean()), float(values.mean()))
    plain = cubes / count / (squares / count) ** 1.5
    skew = plain * math.sqrt(count * (count - 1)) / (count - 2) / (6 * math.sqrt(count))

    def corrected(at: float) -> float:
        if abs(skew) < 1e-9:
            return at
        return (math.cbrt(1 + 6 * skew * (at - skew)) - 1) / (2 * skew)

    quantile = float(t.ppf(0.975, count - 1))
    mean = float(values.mean())
    return Interval(mean - corrected(quantile) * error, mean - corrected(-quantile) * error)


def quantile(counts: np.ndarray, share: float) -> float:
    """The quantile of counts by bucket."""
    below = np.cumsum(counts)
    rank = share * below[-1]
    place = min(int(np.searchsorted(below, rank, side="right")), counts.size - 1)
    within = (rank - below[place] + counts[place]) / max(counts[place], 1e-300)
    low, high = 2 ** (place / _BUCKETS), 2 ** ((place + 1) / _BUCKETS)
    return float(low + (high - low) * min(max(within, 0.0), 1.0))


def quantile_interval(counts: np.ndarray, share: float) -> Interval | None:
    """The interval of a quantile, from that of the share of the requests below it (Woodruff 1952)."""
    if min(share, 1 - share) < _BEYOND_LEAST / (counts.shape[0] * MEASURED):
        return None
    together = counts.sum(axis=0)
    edge = (int(math.log2(quantile(together, share)) * _COARSE) + 1) * (_BUCKETS // _COARSE)
    below = counts[:, :edge].sum(axis=1) / counts.sum(axis=1)
    found = mean_interval(below)
    low, high = share + found.low - below.mean(), share + found.high - below.mean()
    if not 0 < low <= high < 1:
        return None
    return Interval(quantile(together, low), quantile(together, high))


def measure(
    load: float, campaigns: int, random: np.random.Generator, counts: dict[str, Count]
) -> list[float]:
    """Add campaigns to the counts; return the mean of each."""
    walk = Walk(load, campaigns * REPLICATIONS, random)
    means, by_bucket = walk.run()
    means = means.reshape(campaigns, REPLICATIONS)
    for campaign, values in enumerate(means):
        found, mean = mean_interval(values), float(values.mean())
        half_width = max(mean - found.low, found.high - mean)
        counts["mean"].add(found, walk.mean)
        counts[BOTH_SIDES].add(Interval(mean - half_width, mean + half_width), walk.mean)
        rows = by_bucket[campaign * REPLICATIONS : (campaign + 1) * REPLICATIONS]
        for share in SHARES:
            counts[f"p{100 * share:g}"].add(quantile_interval(rows, share), -walk.mean * math.log(1 - share))
    return [float(mean) for mean in means.mean(axis=1)]


def no_counts() -> dict[str, Count]:
    return {name: Count() for name in ("mean", BOTH_SIDES, *(f"p{100 * share:g}" for share in SHARES))}


def main(load: float, campaigns: int) -> None:
    random, counts, means = np.random.default_rng(1), no_counts(), []
    while len(means) < campaigns:
        means += measure(load, min(_TOGETHER, campaigns - len(means)), random, counts)
        error = np.std(means) / math.sqrt(len(means))
        print(
            f"load {load:g}, {len(means)} campaigns, mean of their means {np.mean(means):.2f} +- {error:.2f}"
        )
        for name, count in counts.items():
            if count.given:
                low, high = count.limits()
                share = f"{count.covered / count.given:.1%} [{low:.1%}, {high:.1%}]"
                print(f"  {name}: {count.given} given, {count.covered} covered, {share}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
