"""Campaigns of known truth whose machine changes its speed, which a fixed computation beside every trial measures."""

import math
from dataclasses import dataclass

import numpy as np
from scenario import Outcome, Scenario

from waylab.analysis.statistics.blocks import Contrast, fit_blocks
from waylab.analysis.statistics.covariate import adjusted_contrast, slope

_RATIO = 1.07
_WEIGHTS = {"c1": 1.0, "c0": -1.0}


@dataclass(frozen=True)
class Machine:
    """Standard deviations of logarithms: of the machine's speed, of a trial itself, and of the probe itself."""

    speed: float = 0.06
    own: float = 0.02
    probe: float = 0.01
    # How much of the speed a value shows, and by how much each further configuration slows the probe down.
    effect: float = -0.9
    disturbs: float = 0.0
    # By how much the second configuration alone slows the probe down.
    second_disturbs: float = 0.0
    # Autocorrelation of the speed from trial to trial.
    correlation: float = 0.8


@dataclass(frozen=True)
class Campaign:
    names: list[str]
    places: list[int]
    values: list[float]
    probes: list[float]

    def plain(self) -> Contrast:
        """The contrast without the covariate, with the error of its own two configurations."""
        kept = [place for place, name in enumerate(self.names) if name in _WEIGHTS]
        names, places, values = (
            [one[place] for place in kept] for one in (self.names, self.places, self.values)
        )
        return fit_blocks(names, places, values).contrast(_WEIGHTS)

    def adjusted(self) -> Contrast:
        """The contrast as the lab computes it: adjusted if there is a slope."""
        found = slope(self.names, self.places, self.values, self.probes)
        if found is None:
            return self.plain()
        kept = [place for place, name in enumerate(self.names) if name in _WEIGHTS]
        columns = (
            [one[place] for place in kept] for one in (self.names, self.places, self.values, self.probes)
        )
        return adjusted_contrast(*columns, found, _WEIGHTS)


def campaign(random: np.random.Generator, machine: Machine, configurations: int, blocks: int) -> Campaign:
    """Complete blocks in random order; the speed is an AR(1) process from trial to trial."""
    order = np.concatenate([random.permutation(configurations) for _ in range(blocks)])
    steps = random.normal(size=order.size)
    speed = np.empty(order.size)
    last = random.normal()
    for place, step in enumerate(steps):
        last = machine.correlation * last + math.sqrt(1 - machine.correlation**2) * step
        speed[place] = machine.speed * last
    probes = speed + random.normal(0, machine.probe, order.size) + machine.disturbs * order
    probes += np.where(order == 1, machine.second_disturbs, 0.0)
    values = machine.effect * speed + random.normal(0, machine.own, order.size)
    values += np.where(order == 1, math.log(_RATIO), 0.0)
    places = np.repeat(np.arange(blocks), configurations)
    return Campaign(
        [f"c{one}" for one in order],
        places.tolist(),
        np.exp(values).tolist(),
        (1e6 * np.exp(probes)).tolist(),
    )


def coverage(machine: Machine, configurations: int, blocks: int):
    """The ratio of two configurations, adjusted for the speed of the machine."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        covered = 0
        for _ in range(campaigns):
            low, high = campaign(random, machine, configurations, blocks).adjusted().interval()
            covered += low <= math.log(_RATIO) <= high
        return Outcome(campaigns, campaigns, covered)

    return run


COVARIATES = [
    Scenario(
        "ratio adjusted for the machine's speed, eight configurations, three blocks",
        coverage(Machine(), 8, 3),
    ),
    Scenario(
        "ratio adjusted for the machine's speed, three configurations, five blocks", coverage(Machine(), 3, 5)
    ),
    # If the speed differs between the configurations by chance, ratios are not adjusted: their intervals cover less.
    Scenario(
        "ratio adjusted for the machine's speed, two configurations, eight blocks",
        coverage(Machine(), 2, 8),
        low=0.92,
    ),
    Scenario(
        "the same, with a speed that is independent from trial to trial",
        coverage(Machine(correlation=0.0), 2, 8),
        low=0.90,
    ),
    Scenario(
        "ratio adjusted for the machine's speed, which changes nothing", coverage(Machine(effect=0.0), 8, 3)
    ),
    Scenario(
        "ratio adjusted for the machine's speed, whose measurement has an error of 4 %",
        coverage(Machine(probe=0.04), 8, 4),
    ),
    Scenario(
        "ratio adjusted for the machine's speed, whose measurement each configuration slows by 5 % more than the last",
        coverage(Machine(disturbs=0.05), 8, 3),
    ),
    *(
        Scenario(
            f"the same, {configurations} configurations, {blocks} blocks, one slows it by {100 * slower:g} %",
            coverage(Machine(second_disturbs=slower), configurations, blocks),
            None,
            None,
            notes="shown as a warning",
        )
        for configurations, blocks in ((2, 8), (8, 4))
        for slower in (0.01, 0.03)
    ),
]
