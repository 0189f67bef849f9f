"""The Universal Scalability Law of measured runs: weighted, with intervals, and silent where nothing was measured near.

The law itself and its fit are in `waylab.models.usl`; this file decides what it is given and what may be asked of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from waylab.fit.parameters import NotApplicableError
from waylab.models import ModelError, UslFit, fit_usl

CONFIDENCE = 0.95
_SIZES_MIN = 4


@dataclass(frozen=True)
class Scalability:
    """A fitted law; `reach` is twice the largest number of clients that was measured."""

    fit: UslFit
    clients_max: float

    @property
    def reach(self) -> float:
        """Number of clients up to which the law is asked."""
        return 2 * self.clients_max

    def throughput_per_s(self, clients: float) -> tuple[float, float, float]:
        """Predict the mean throughput of a number of clients, with the lower and upper end of the 95 % interval.

        Raises:
            NotApplicableError: beyond twice what was measured.
        """
        if self.fit.extrapolates(clients):
            raise NotApplicableError(
                f"{clients:g} clients are beyond twice the {self.clients_max:g} that were measured"
            )
        low, high = self.fit.throughput_interval_per_s(clients, CONFIDENCE)
        return self.fit.law.throughput_per_s(clients), low, high

    @property
    def peak(self) -> tuple[float, float] | None:
        """Number of clients with the highest throughput, and that throughput; None if it is out of reach."""
        clients, highest = self.fit.law.peak_clients, self.fit.law.peak_throughput_per_s
        return None if clients is None or highest is None or clients > self.reach else (clients, highest)


def fit_scalability(
    clients: Sequence[float], throughput_per_s: Sequence[Sequence[float]], seed: int = 1
) -> Scalability:
    """Fit the law to runs; `throughput_per_s` has the runs of each number of clients.

    Errors of throughput are proportions, so each run weighs by one over the square of the curve: of the means first,
    then of the curve that these gave. Weights from the runs themselves would favour those that happened to be slow.

    Raises:
        NotApplicableError: for fewer than four numbers of clients, or what the law does not allow.
    """
    if len(clients) != len(throughput_per_s) or len(set(clients)) < _SIZES_MIN:
        raise NotApplicableError(
            f"three parameters need {_SIZES_MIN} numbers of clients at least, not {len(set(clients))}"
        )
    sizes = np.repeat(np.asarray(clients, dtype=float), [len(runs) for runs in throughput_per_s])
    rates = np.concatenate([np.asarray(runs, dtype=float) for runs in throughput_per_s])
    means = np.repeat(
        [float(np.mean(runs)) if len(runs) else 0.0 for runs in throughput_per_s],
        [len(runs) for runs in throughput_per_s],
    )
    try:
        law = fit_usl(sizes, rates, 1 / means**2, samples=0).law
        curve = np.array([law.throughput_per_s(size) for size in sizes])
        fit = fit_usl(sizes, rates, 1 / curve**2, seed=seed)
    except ModelError as error:
        raise NotApplicableError(str(error)) from None
    return Scalability(fit, float(sizes.max()))
