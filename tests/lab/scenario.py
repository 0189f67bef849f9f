"""One row of the table of statistics-coverage: a scenario with a known truth, simulated many times."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CAMPAIGNS = int(os.environ.get("WAYSTAGE_HONESTY", "1000"))
# In the tests, slow scenarios run fewer campaigns, so their acceptance band is wider. Longer runs have 1000 or more.
SLOW = max(CAMPAIGNS // 5, 1000 if CAMPAIGNS > 1000 else 1)
# The band of what may happen in at most 5 % of the campaigns.
FLAGGED = {"low": None, "high": 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)}


@dataclass(frozen=True)
class Outcome:
    """Numbers of campaigns, of those with an interval, and of those whose interval covers the truth."""

    campaigns: int
    given: int
    covered: int

    @property
    def share(self) -> float:
        return self.covered / self.given if self.given else math.nan


@dataclass(frozen=True)
class Scenario:
    """One row of the table: a scenario, and the band of its share; None if the share is only shown."""

    name: str
    run: Callable[[int, np.random.Generator], Outcome]
    low: float | None = 0.93
    high: float | None = 0.97
    given: float = 0.0
    slow: bool = False
    notes: str = ""

    def outcome(self) -> Outcome:
        """Run the scenario with its own seed, so that the result does not depend on the order."""
        seed = list(self.name.encode())
        return self.run(SLOW if self.slow else CAMPAIGNS, np.random.default_rng(seed))

    def limits(self, campaigns: int) -> tuple[float, float]:
        """The band, widened by two standard errors less those of a thousand campaigns."""
        extra = max(0.0, 2 * math.sqrt(0.05 * 0.95) * (campaigns**-0.5 - 1000**-0.5))
        return (self.low or 0.0) - extra, (1.0 if self.high is None else self.high) + extra
