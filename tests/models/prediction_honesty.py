"""Measures how often 90 % prediction intervals of runs contain what is measured, where the truth is known.

`python tests/models/prediction_honesty.py 100` prints the table of docs/prediction-accuracy.md from a hundred runs for
each row; the layered model alone takes about a second of CPU time for a run.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from known_runs import measured, settings

from waylab.fit.layered import LayeredModel
from waylab.fit.observations import ModelSettings, TrialObservation, pooled
from waylab.predict.runs import fit_runs

# Clients and servers. Between the calibrated configurations, and beyond in clients, in servers or in both.
BETWEEN = ((4, 1), (16, 3))
BEYOND = ((64, 1), (64, 3), (256, 3), (16, 5), (64, 7))
INSIDE_PART, BEYOND_PART = "between", "beyond"


@dataclass(frozen=True)
class Run:
    """How a run is made: noise of a trial and of a block, numbers of blocks and of clients."""

    noise: float
    between_blocks: float
    blocks: int
    clients: Sequence[int] = (2, 8, 32)
    think_s: float = 0.0
    # What the model does not have: blocks that drift, blocks in which only the proxy is slower, unequal servers.
    drifts: bool = False
    proxy_only: bool = False
    unequal: bool = False

    def made(self, seed: int) -> tuple[list[TrialObservation], dict[str, list[TrialObservation]]]:
        """Trials to learn from, and a later trial of each configuration to predict, by part."""
        random = np.random.default_rng([seed, self.blocks])
        slower = self.between_blocks * random.standard_normal(self.blocks + 1)
        if self.drifts:
            slower = np.cumsum(slower)

        def trial(one: ModelSettings, block: int, effect: float) -> TrialObservation:
            effects = {"slower_proxy": effect} if self.proxy_only else {"slower": effect}
            return measured(one, random, self.noise, block=block, unequal=self.unequal, **effects)

        known = [
            trial(settings(clients, servers, think_s=self.think_s), block, float(slower[block]))
            for block in range(self.blocks)
            for servers in (1, 3)
            for clients in self.clients
        ]
        # Every trial that is predicted is in a block of its own.
        later = {
            part: [
                trial(
                    settings(*one, think_s=self.think_s),
                    1000 + place,
                    float(slower[-1]) if self.drifts else self.between_blocks * random.standard_normal(),
                )
                for place, one in enumerate(sizes)
            ]
            for part, sizes in ((INSIDE_PART, BETWEEN), (BEYOND_PART, BEYOND))
        }
        return known, later


RUNS = {
    "noise 2 %, two blocks": Run(0.02, 0.0, 2),
    "noise 10 %, three blocks": Run(0.1, 0.0, 3),
    "noise 2 %, blocks 2 %, two blocks": Run(0.02, 0.02, 2),
    "noise 2 %, blocks 2 %, four blocks": Run(0.02, 0.02, 4),
    "noise 2 %, blocks 5 %, three blocks": Run(0.02, 0.05, 3),
    "noise 2 %, blocks 5 %, six blocks": Run(0.02, 0.05, 6),
    "noise 5 %, blocks 3 %, think time 0.2 ms, three blocks": Run(0.05, 0.03, 3, think_s=2e-4),
    "noise 2 %, blocks 2 %, three blocks, idle trials only": Run(0.02, 0.02, 3, (1, 2, 4)),
    "noise 2 %, blocks 3 % that drift, four blocks": Run(0.02, 0.03, 4, drifts=True),
    "noise 2 %, blocks in which only the proxy differs by 6 %, four blocks": Run(
        0.02, 0.06, 4, proxy_only=True
    ),
    "noise 2 %, blocks 2 %, a server with twice the keys, three blocks": Run(0.02, 0.02, 3, unequal=True),
    "noise 2 %, blocks 3 %, one block": Run(0.02, 0.03, 1),
}


@dataclass
class Count:
    """Predictions, and intervals that contain the throughput and the mean response time; half-widths of ln X."""

    predictions: int = 0
    throughputs: int = 0
    responses: int = 0
    halves: tuple[float, ...] = ()

    @property
    def shares(self) -> tuple[float, float]:
        return self.throughputs / self.predictions, self.responses / self.predictions


def coverage(run: Run, count: int, first: int = 0) -> dict[str, Count]:
    """Fit to so many runs and predict later trials."""
    counts = {INSIDE_PART: Count(), BEYOND_PART: Count()}
    for seed in range(first, first + count):
        known, later = run.made(seed)
        fitted = fit_runs(known, models=[LayeredModel()])
        for part, trials in later.items():
            mine = counts[part]
            for one in pooled(trials):
                found = fitted.predict(one.settings)
                mine.predictions += 1
                mine.throughputs += bool(found.throughput_per_s.contains(one.throughput_per_s))
                mine.responses += bool(found.response_s.contains(one.response_s))
                high, value = found.throughput_per_s.high, found.throughput_per_s.value
                assert high is not None
                mine.halves += (high / value - 1,)
    return counts


def table(count: int) -> str:
    """All runs as the table of docs/prediction-accuracy.md."""
    lines = [
        "| runs | trials | between: X, R | beyond: X, R | half-width of X, between and beyond |",
        "|---:|---|---|---|---|",
    ]
    for name, run in RUNS.items():
        found = coverage(run, count)
        shares = " | ".join(
            ", ".join(f"{100 * share:.0f}" for share in one.shares) + " %" for one in found.values()
        )
        halves = ", ".join(f"{100 * float(np.median(one.halves)):.1f} %" for one in found.values())
        lines.append(f"| {count} | {name} | {shares} | {halves} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(int(sys.argv[1])))
