"""A service or think time: its mean and distribution."""

import math
from dataclasses import dataclass

from waylab.models.errors import ModelError

DISTRIBUTIONS = (
    "exponential",
    "deterministic",
    "erlang",
    "hyperexponential",
    "gamma",
    "lognormal",
    "empirical",
)


@dataclass(frozen=True)
class Service:
    """A service time in seconds.

    `squared_variation` is the variance over the squared mean: 1 for exponential, 0 for deterministic, 1/k for an
    Erlang distribution of k stages; above 1 for the hyperexponential one (two phases of balanced means); as given
    for gamma and lognormal; `empirical` draws from `values_s` with replacement, and has their mean and variation.
    """

    mean_s: float
    squared_variation: float = 1.0
    distribution: str = "exponential"
    values_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise ModelError("distribution", f"{self.distribution!r} is none of {', '.join(DISTRIBUTIONS)}")
        if not (math.isfinite(self.mean_s) and self.mean_s >= 0):
            raise ModelError("mean_s", f"must be a finite number of seconds >= 0, not {self.mean_s}")
        if not (math.isfinite(self.squared_variation) and self.squared_variation >= 0):
            raise ModelError("squared_variation", f"must be finite and >= 0, not {self.squared_variation}")
        self._check_variation()

    def _check_variation(self) -> None:
        variation, name = self.squared_variation, self.distribution
        if name == "exponential" and variation != 1:
            raise ModelError("squared_variation", f"is 1 for an exponential distribution, not {variation}")
        if name == "deterministic" and variation != 0:
            raise ModelError("squared_variation", f"is 0 for a deterministic time, not {variation}")
        if name == "erlang" and not _is_whole(1 / variation if variation else math.inf):
            raise ModelError("squared_variation", f"is 1/k for an Erlang distribution, not {variation}")
        if name == "hyperexponential" and variation <= 1:
            raise ModelError(
                "squared_variation", f"is above 1 for a hyperexponential distribution, not {variation}"
            )
        if name in ("gamma", "lognormal") and variation <= 0:
            raise ModelError("squared_variation", f"is above 0 for a {name} distribution, not {variation}")
        if (name == "empirical") != bool(self.values_s):
            raise ModelError("values_s", "belongs to the distribution `empirical`, which needs at least one")

    @staticmethod
    def deterministic(mean_s: float) -> "Service":
        """A constant time."""
        return Service(mean_s, 0.0, "deterministic")

    @staticmethod
    def erlang(mean_s: float, stages: int) -> "Service":
        """A sum of `stages` equal exponential times."""
        if stages < 1:
            raise ModelError("stages", f"must be at least 1, not {stages}")
        return Service(mean_s, 1 / stages, "erlang")

    @staticmethod
    def of_variation(mean_s: float, squared_variation: float) -> "Service":
        """The usual choice for a variation: deterministic, exponential, or gamma for anything else."""
        if squared_variation == 0:
            return Service.deterministic(mean_s)
        return Service(mean_s, squared_variation, "exponential" if squared_variation == 1 else "gamma")

    @staticmethod
    def empirical(values_s: tuple[float, ...]) -> "Service":
        """Draw from measured times."""
        values = tuple(float(value) for value in values_s)
        if not values:
            raise ModelError("values_s", "needs at least one measured time")
        for index, value in enumerate(values):
            if not (math.isfinite(value) and value >= 0):
                raise ModelError(f"values_s[{index}]", f"must be a finite number >= 0, not {value}")
        mean_s = math.fsum(values) / len(values)
        variance = math.fsum((value - mean_s) ** 2 for value in values) / len(values)
        return Service(mean_s, variance / mean_s**2 if mean_s > 0 else 0.0, "empirical", values)

    @property
    def is_exponential(self) -> bool:
        """Whether the time is memoryless; a time of zero counts as exponential."""
        return self.distribution == "exponential" or self.mean_s == 0

    @property
    def stages(self) -> int:
        """Stages of an Erlang distribution."""
        return round(1 / self.squared_variation)


def _is_whole(number: float) -> bool:
    return math.isfinite(number) and round(number) >= 1 and abs(number - round(number)) < 1e-6 * number
