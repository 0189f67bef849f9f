"""Campaigns whose errors are not normal, independent and of one size: does the contrast of two sides still cover?"""

import math
from collections.abc import Callable

import numpy as np
from scenario import FLAGGED, Outcome, Scenario

from waylab.analysis.statistics.blocks import fit_blocks
from waylab.analysis.statistics.lasting import lasting_errors

# Returns the errors of the logarithms, of shape (blocks, configurations).
Errors = Callable[[np.random.Generator, int, int], np.ndarray]
_DEVIATION = 0.03


def heavy_tails(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """Student's t with 3 degrees of freedom, whose fourth moment is infinite."""
    return _DEVIATION * random.standard_t(3, (blocks, configurations))


def disturbed(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """One trial in ten is slower, by 10 % on average: an exponential time."""
    errors = _DEVIATION * random.normal(size=(blocks, configurations))
    return errors - (random.random(errors.shape) < 0.1) * random.exponential(0.1, errors.shape)


def outlier(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """One trial of the campaign is 30 % slower."""
    errors = _DEVIATION * random.normal(size=(blocks, configurations))
    errors.flat[random.integers(errors.size)] -= 0.3
    return errors


def noisy_side(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """The second side is eight times as noisy as the first."""
    return random.normal(size=(blocks, configurations)) * np.repeat([0.01, 0.08], configurations // 2)


def _in_order(random: np.random.Generator, series: np.ndarray) -> np.ndarray:
    """Give each configuration the value of its turn; the order is drawn for each block, as in a plan."""
    return np.array([block[random.permutation(block.size)] for block in series])


def trend(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """Every trial is 5 % faster than the one before."""
    steps = 0.05 * np.arange(blocks * configurations).reshape(blocks, configurations)
    return _in_order(random, steps) + _DEVIATION * random.normal(size=steps.shape)


def _autoregressive(random: np.random.Generator, phi: float, *shape: int) -> np.ndarray:
    """AR(1) along the first axis, in its steady state."""
    series = _DEVIATION * random.normal(size=shape)
    series[0] /= math.sqrt(1 - phi**2)
    for place in range(1, shape[0]):
        series[place] += phi * series[place - 1]
    return series


def slow_machine(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """The machine's speed is AR(1) 0.8 from trial to trial."""
    series = _autoregressive(random, 0.8, blocks * configurations)
    return _in_order(random, series.reshape(blocks, configurations))


def lasting(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    """The error of a configuration lasts: AR(1) 0.5 from block to block. No order of trials can remove it."""
    return _autoregressive(random, 0.5, blocks, configurations)


def two_sides(errors: Errors, configurations: int, blocks: int, lost: int = 0) -> Callable:
    """The ratio of the second half of the configurations to the first; the `lost` slowest trials fail a gate."""
    half = configurations // 2
    weights = {f"c{one}": (1 if one >= half else -1) / half for one in range(configurations)}
    names = [f"c{one}" for _ in range(blocks) for one in range(configurations)]
    places = np.repeat(np.arange(blocks), configurations).tolist()

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        given = covered = 0
        for _ in range(campaigns):
            found = errors(random, blocks, configurations).ravel()
            drift = np.cumsum(random.normal(0, 0.1, blocks))[places]
            kept = np.sort(np.argsort(found)[lost:])
            values = np.exp(drift + found)[kept].tolist()
            model = fit_blocks([names[one] for one in kept], [places[one] for one in kept], values)
            interval = model.contrast(weights).interval()
            given += interval is not None
            covered += interval is not None and interval[0] <= 0 <= interval[1]
        return Outcome(campaigns, given, covered)

    return run


def warned(errors: Errors, configurations: int, blocks: int) -> Callable:
    """The report warns that the errors of a configuration last."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        found = [lasting_errors(errors(random, blocks, configurations)) for _ in range(campaigns)]
        return Outcome(campaigns, campaigns, sum(one is not None and one.p < 0.05 for one in found))

    return run


def _normal(random: np.random.Generator, blocks: int, configurations: int) -> np.ndarray:
    return _DEVIATION * random.normal(size=(blocks, configurations))


_SHOWN = {"low": None, "high": None}
_WARNING = {"low": None, "high": None, "notes": "shown as a warning"}
SHAPES = [
    Scenario("ratio of two configurations, t-distributed noise, three blocks", two_sides(heavy_tails, 2, 3)),
    Scenario("ratio of two sides, t-distributed noise, six blocks", two_sides(heavy_tails, 4, 6), high=0.98),
    Scenario("ratio of two sides, one trial in ten 10 % slower", two_sides(disturbed, 4, 6), high=0.98),
    Scenario(
        "ratio of two sides, one trial of the campaign 30 % slower", two_sides(outlier, 4, 6), high=None
    ),
    Scenario("ratio of two sides, a trend of 5 % from trial to trial", two_sides(trend, 4, 6)),
    Scenario("ratio of two sides, AR(1) 0.8 from trial to trial", two_sides(slow_machine, 4, 6)),
    Scenario("ratio of two sides, the slowest four of 24 trials fail", two_sides(_normal, 4, 6, lost=4)),
    Scenario("ratio of two sides, spreads 1 and 8 %, six blocks", two_sides(noisy_side, 4, 6), **_WARNING),
    Scenario("ratio of two sides, spreads 1 and 8 %, three blocks", two_sides(noisy_side, 4, 3), **_WARNING),
    Scenario(
        "ratio of two sides, AR(1) 0.5 of each configuration from block to block",
        two_sides(lasting, 4, 6),
        **_WARNING,
    ),
    *(
        Scenario(
            f"{what}, {configurations} configurations, {blocks} blocks: lasting errors found", run, **limits
        )
        for what, errors, limits in (
            ("AR(1) 0.5 from block to block", lasting, _SHOWN),
            ("independent errors", _normal, FLAGGED),
            ("spreads 1 and 8 %", noisy_side, FLAGGED),
            ("t-distributed noise", heavy_tails, FLAGGED),
        )
        for configurations, blocks in ((4, 6), (8, 6), (8, 8), (16, 5), (16, 8))
        if errors is lasting or (configurations, blocks) in ((8, 6), (16, 5))
        for run in (warned(errors, configurations, blocks),)
    ),
]
