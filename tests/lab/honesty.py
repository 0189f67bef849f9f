"""Measures the coverage of the lab's intervals over synthetic campaigns whose true values are known.

`python tests/lab/honesty.py` prints the tables of docs/statistics-coverage.md, and `--write` writes them into the page.
WAYSTAGE_HONESTY sets the number of campaigns, WAYSTAGE_LOADS the loads at which the simulator itself is measured.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from honesty_contrasts import CONTRASTS
from honesty_covariate import COVARIATES
from honesty_steady import STEADY, autoregressive
from scenario import FLAGGED, Outcome, Scenario
from scipy.special import ndtri

from waylab.analysis.statistics.correlation import spreads
from waylab.analysis.statistics.factorial import two_level_effects
from waylab.analysis.statistics.knee import BEST_SHARE
from waylab.analysis.statistics.knee import knee as find_knee
from waylab.analysis.statistics.pairs import null_arm, paired_ratio, positive_control
from waylab.analysis.statistics.percentiles import percentile_intervals
from waylab.analysis.statistics.repetitions import mean_interval
from waylab.analysis.statistics.stopping import StoppingRule, decide
from waylab.analysis.statistics.warm_up import mser
from waylab.models import Usl, fit_usl

_CHUNK = 200


def waiting_times(random: np.random.Generator, series: int, values: int, load: float) -> np.ndarray:
    """Waiting times of an M/M/1 queue with mean service 1, in its steady state (Lindley); mean load / (1 - load)."""
    first = np.where(random.random(series) < load, random.exponential(1 / (1 - load), series), 0.0)
    steps = random.exponential(1, (series, values)) - random.exponential(1 / load, (series, values))
    walk = np.cumsum(np.concatenate([first[:, None], steps], axis=1), axis=1)
    return (walk - np.minimum(np.minimum.accumulate(walk, axis=1), 0))[:, 1:]


def naive_mean(phi: float, values: int) -> Callable[[int, np.random.Generator], Outcome]:
    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        series = autoregressive(random, campaigns, values, phi)
        covered = sum(found.low <= 0 <= found.high for found in map(mean_interval, series.tolist()))
        return Outcome(campaigns, campaigns, covered)

    return run


def series_mean(make: Callable, truth: float, *shape: float) -> Callable[[int, np.random.Generator], Outcome]:
    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        given = covered = 0
        for start in range(0, campaigns, _CHUNK):
            series = make(random, min(_CHUNK, campaigns - start), *shape)
            found = spreads(series)
            below, above = found.distances()
            off = truth - series.mean(axis=1)
            given += int(found.enough.sum())
            covered += int((found.enough & (-below <= off) & (off <= above)).sum())
        return Outcome(campaigns, given, covered)

    return run


PERCENTS = (50, 95, 99)
_LEVEL, _NOISE = 0.3, 0.5


@cache
def wandering(campaigns: int, seconds: int, phi: float) -> dict[int, Outcome]:
    """Percentiles of log-normal response times whose level drifts from second to second, 40 requests in each."""
    random = np.random.default_rng([seconds, round(100 * phi), False])
    truths = {one: math.exp(math.hypot(_LEVEL, _NOISE) * ndtri(one / 100)) for one in PERCENTS}
    fine = [np.geomspace(truth / 1.4, truth * 1.4, 150) for truth in truths.values()]
    edges = np.unique(np.concatenate([np.geomspace(0.05, 20, 60), *fine]))
    values = np.append(edges, 1e3)
    given, covered = dict.fromkeys(PERCENTS, 0), dict.fromkeys(PERCENTS, 0)
    for _ in range(campaigns):
        wander = autoregressive(random, 1, seconds, phi)[0] * _LEVEL * math.sqrt(1 - phi**2)
        response = np.exp(wander[:, None] + _NOISE * random.normal(size=(seconds, 40)))
        place = np.searchsorted(edges, response) + np.arange(seconds)[:, None] * values.size
        counts = np.bincount(place.ravel(), minlength=seconds * values.size).reshape(seconds, values.size)
        for one in percentile_intervals(counts, values, PERCENTS):
            if one.low is not None:
                given[one.percent] += 1
                # A bucket's value is its upper edge: allow half a bucket in both directions.
                covered[one.percent] += one.low / 1.0023 <= truths[one.percent] <= one.high * 1.0023
    return {one: Outcome(campaigns, given[one], covered[one]) for one in PERCENTS}


def percentile(percent: int, seconds: int, phi: float) -> Callable[[int, np.random.Generator], Outcome]:
    return lambda campaigns, random: wandering(campaigns, seconds, phi)[percent]


def runs_mean(campaigns: int, random: np.random.Generator) -> Outcome:
    """Five runs of a minute with an effect of their own; seconds within them are correlated."""
    covered = 0
    for series in autoregressive(random, campaigns * 5, 60, 0.8).mean(axis=1).reshape(campaigns, 5):
        found = mean_interval((1000 + 20 * (series + random.normal(size=5))).tolist())
        covered += found.low <= 1000 <= found.high
    return Outcome(campaigns, campaigns, covered)


def _arms(random: np.random.Generator, blocks: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Two arms in blocks that drift: runs of correlated seconds, log-normal run effects."""
    block = np.cumsum(random.normal(0, 0.1, blocks))
    seconds = autoregressive(random, 2 * blocks, 40, 0.7).mean(axis=1).reshape(2, blocks)
    runs = np.exp(block + 0.02 * random.normal(size=(2, blocks)) + 0.02 * seconds)
    return 1e4 * runs[0], 1e4 * ratio * runs[1]


def null_arms(campaigns: int, random: np.random.Generator) -> Outcome:
    flagged = 0
    for _ in range(campaigns):
        one, other = _arms(random, 6, 1.0)
        flagged += null_arm(paired_ratio(np.log(other / one).tolist())).flagged
    return Outcome(campaigns, campaigns, flagged)


def ratio_interval(campaigns: int, random: np.random.Generator) -> Outcome:
    covered = 0
    for _ in range(campaigns):
        one, other = _arms(random, 6, 1.07)
        found = mean_interval(np.log(other / one).tolist())
        covered += found.low <= math.log(1.07) <= found.high
    return Outcome(campaigns, campaigns, covered)


def false_equivalence(campaigns: int, random: np.random.Generator) -> Outcome:
    """The true ratio lies just at the margin: equivalence would be wrong."""
    claimed = 0
    for _ in range(campaigns):
        one, other = _arms(random, 8, 1.05)
        claimed += paired_ratio(np.log(other / one).tolist(), 0.05).equivalent
    return Outcome(campaigns, campaigns, claimed)


def control(campaigns: int, random: np.random.Generator) -> Outcome:
    """50 us were added to a response of 200 us; the interval must cover them."""
    exact = 0
    for _ in range(campaigns):
        block = random.normal(0, 20, 5)
        base, slow = 200 + block + random.normal(0, 8, 5), 250 + block + random.normal(0, 8, 5)
        found = positive_control(base.tolist(), slow.tolist(), 50.0)
        exact += found.low <= 50 <= found.high
    return Outcome(campaigns, campaigns, exact)


def stopped_mean(variation: float) -> Callable[[int, np.random.Generator], Outcome]:
    """Blocks until the mean is known to 5 %: the interval at the moment of stopping."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        rule, covered = StoppingRule(precision=0.05), 0
        for _ in range(campaigns):
            values = random.normal(1, variation, rule.blocks_min).tolist()
            while not decide({"x": values}, rule).stop:
                values.append(float(random.normal(1, variation)))
            found = mean_interval(values)
            covered += found.low <= 1 <= found.high
        return Outcome(campaigns, campaigns, covered)

    return run


def effects(campaigns: int, random: np.random.Generator) -> Outcome:
    """One interaction of a 2^3 design with three repetitions in blocks."""
    signs = np.array([[a, b, c] for _ in range(3) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    blocks = np.repeat(np.arange(3), 8)
    covered = 0
    for _ in range(campaigns):
        truth = 100 + 20 * signs[:, 0] + 3 * signs[:, 0] * signs[:, 1]
        values = truth + random.normal(0, 10, 3)[blocks] + random.normal(0, 4, 24)
        found = two_level_effects(signs, values, ["a", "b", "c"], blocks.tolist()).effect("a x b")
        covered += found.low <= 3 <= found.high
    return Outcome(campaigns, campaigns, covered)


def planted_warm_up(campaigns: int, random: np.random.Generator) -> Outcome:
    """A warm-up that decays with 10 s in 300 s: the rest of it at the cut is less than a sixth of the noise."""
    series = autoregressive(random, campaigns, 300, 0.5) + 15 * np.exp(-np.arange(300) / 10)
    cuts = [mser(values) for values in series]
    return Outcome(campaigns, campaigns, sum(bool(found.steady) and 20 <= found.cut <= 100 for found in cuts))


LOADS = np.array([1, 36, 72, 108, 144, 180, 216, 252, 288, 324, 360, 396, 432], dtype=float)


def knees(campaigns: int, random: np.random.Generator) -> Outcome:
    curve = 2e4 * (1 - np.exp(-LOADS / 72))
    truth = LOADS[np.argmax(curve >= BEST_SHARE * curve.max())]
    given = covered = 0
    for number in range(campaigns):
        runs = curve[:, None] * random.normal(1, 0.04, (LOADS.size, 3))
        found = find_knee(LOADS, runs, seed=number)
        given += found.load is not None
        covered += found.load is not None and found.low <= truth <= found.high
    return Outcome(campaigns, given, covered)


def knees_of_rising_curves(campaigns: int, random: np.random.Generator) -> Outcome:
    """A straight line whose last load but one is 95 % of the last one."""
    loads = np.append(LOADS, 1.05 * LOADS[-1])
    runs = loads[:, None] * random.normal(1, 0.04, (campaigns, loads.size, 3))
    called = [find_knee(loads, one, seed=number).load is not None for number, one in enumerate(runs)]
    return Outcome(campaigns, campaigns, sum(called))


@cache
def scalability_laws(campaigns: int) -> dict[str, Outcome]:
    law, random = Usl(1000.0, 0.03, 5e-4), np.random.default_rng(11)
    sizes = np.repeat([1, 2, 4, 8, 16, 32, 64], 3)
    curve = np.array([law.throughput_per_s(size) for size in sizes])
    covered = dict.fromkeys(PARAMETERS, 0)
    for number in range(campaigns):
        rates = curve * random.normal(1, 0.03, sizes.size)
        fit = fit_usl(sizes, rates, 1 / curve**2, samples=200, seed=number)
        for name in covered:
            low, high = fit.interval(name, 0.95)
            covered[name] += low <= getattr(law, name) <= high
    return {name: Outcome(campaigns, campaigns, count) for name, count in covered.items()}


def scalability(name: str) -> Callable[[int, np.random.Generator], Outcome]:
    return lambda campaigns, random: scalability_laws(campaigns)[name]


PARAMETERS = ("gamma", "alpha", "beta")
SCENARIOS = [
    Scenario(
        "mean of 300 s, AR(1) 0.8, taken as independent",
        naive_mean(0.8, 300),
        None,
        None,
        notes="shown as a warning",
    ),
    Scenario("mean of 120 s, independent", series_mean(autoregressive, 0.0, 120, 0.0), given=0.9),
    Scenario("mean of 300 s, AR(1) 0.5", series_mean(autoregressive, 0.0, 300, 0.5), given=0.9),
    Scenario("mean of 600 s, AR(1) 0.8", series_mean(autoregressive, 0.0, 600, 0.8), given=0.9),
    Scenario("mean of 2400 s, AR(1) 0.9", series_mean(autoregressive, 0.0, 2400, 0.9), given=0.9),
    Scenario(
        "mean of 60 s, AR(1) 0.8: too short",
        series_mean(autoregressive, 0.0, 60, 0.8),
        None,
        None,
        notes="nearly always refused",
    ),
    Scenario(
        "M/M/1 waiting time, load 0.5, 5000 requests", series_mean(waiting_times, 1.0, 5000, 0.5), given=0.9
    ),
    Scenario(
        "M/M/1 waiting time, load 0.8, 20 000 requests",
        series_mean(waiting_times, 4.0, 20_000, 0.8),
        given=0.9,
        slow=True,
    ),
    Scenario("median, 300 s, AR(1) 0.5, order statistics", percentile(50, 300, 0.5), given=0.9),
    Scenario("p95, 300 s, AR(1) 0.5, order statistics", percentile(95, 300, 0.5), given=0.9),
    Scenario("p99, 300 s, AR(1) 0.5, order statistics", percentile(99, 300, 0.5), given=0.9),
    Scenario("p99, 120 s, AR(1) 0.5: hardly long enough", percentile(99, 120, 0.5), None, None, slow=True),
    Scenario("mean of five runs of correlated seconds", runs_mean),
    Scenario("mean when the stopping rule stops, spread 5 %", stopped_mean(0.05)),
    Scenario("mean when the stopping rule stops, spread 8 %", stopped_mean(0.08), slow=True),
    Scenario("ratio of two arms in six blocks", ratio_interval),
    Scenario("null arm flagged", null_arms, **FLAGGED),
    Scenario("equivalence claimed at its margin", false_equivalence, **FLAGGED, slow=True),
    Scenario("positive control of 50 us", control),
    Scenario("interaction in a 2^3 design, three blocks", effects),
    *CONTRASTS,
    *COVARIATES,
    Scenario("planted warm-up found", planted_warm_up, 0.9, None),
    *STEADY,
    Scenario("knee of a known curve", knees, 0.93, None, given=0.9, slow=True),
    Scenario("straight line: called a knee", knees_of_rising_curves, **FLAGGED, slow=True),
    *(Scenario(f"scalability law, {name}", scalability(name), slow=True) for name in PARAMETERS),
]


def table() -> str:
    """All scenarios as the table of docs/statistics-coverage.md."""
    lines = [
        "| campaigns | what | an interval was given | it covered the truth, or the event happened |",
        "|---|---|---|---|",
    ]
    for scenario in SCENARIOS:
        found = scenario.outcome()
        notes = f" ({scenario.notes})" if scenario.notes else ""
        shares = f"{100 * found.given / found.campaigns:.1f} % | {100 * found.share:.1f} %"
        lines.append(f"| {found.campaigns} | {scenario.name}{notes} | {shares} |")
    return "\n".join(lines)


# A campaign at a load of 0.99 takes two seconds of CPU time, and one at 0.999 takes two minutes.
SIMULATED_LOADS = os.environ.get("WAYSTAGE_LOADS", "0.5,0.9")
_COUNTED = re.compile(r"^(.+, .+|load .+): (\d+) of (\d+) given, (\d+) covered$", re.MULTILINE)


def simulator_table() -> str:
    """Return the table of the simulator's intervals, whose coverage the Rust tests of the crate `simulate` measure."""
    settings = os.environ | {
        "WAYSTAGE_HONESTY": os.environ.get("WAYSTAGE_HONESTY", "1000"),
        "WAYSTAGE_LOADS": SIMULATED_LOADS,
    }
    counted: dict[str, tuple[int, int, int]] = {}
    for test in (["--lib", "--", "limit"], ["--test", "coverage", "--", "--ignored"]):
        command = ["cargo", "test", "--release", "--quiet", "-p", "simulate", *test, "--nocapture"]
        # A coverage outside its band fails the test; the table shows it.
        found = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
        if not _COUNTED.search(found.stdout):
            raise RuntimeError(found.stderr or found.stdout)
        # Each line of a load includes the campaigns of the lines before, so the last line replaces them.
        for what, given, campaigns, covered in _COUNTED.findall(found.stdout):
            counted[what] = (int(campaigns), int(given), int(covered))
    lines = ["| campaigns | M/M/1, and its limit of saturation | given | covered |", "|---|---|---|---|"]
    for what, (campaigns, given, covered) in counted.items():
        share = f"{100 * covered / given:.1f} %" if given else ""
        lines.append(f"| {campaigns} | {what} | {100 * given / campaigns:.0f} % | {share} |")
    return "\n".join(lines)


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "statistics-coverage.md"


def write_table(text: str) -> None:
    """Replace the table of the page that has the same heading."""
    page, heading = PAGE.read_text(encoding="utf-8"), re.escape(text.splitlines()[0])
    PAGE.write_text(
        re.sub(rf"{heading}\n.*?\n\n", lambda _: text + "\n\n", page, flags=re.S), encoding="utf-8"
    )


if __name__ == "__main__":
    for made in (table(), simulator_table()):
        if "--write" in sys.argv:
            write_table(made)
        sys.stdout.write(made + "\n\n")
