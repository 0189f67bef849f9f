"""The Universal Scalability Law of measured runs: weighted, with intervals, and silent where nothing was measured near.

The law itself and its fit are in `waylab.models.usl`; this file decides what it is given and what may be asked of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waylab.fit.parameters import NotApplicableError
from waylab.models import ModelError, UslFit, fit_usl

CONFIDENCE = 0.95
_SIZES_MIN = 4
_CURVE_POINTS = 40


@dataclass(frozen=True)
class Scalability:
    """A fitted law; `reach` is twice the largest number of clients that was measured."""

    fit: UslFit
    clients_max: float

    @property
    def reach(self) -> float:
        """Number of clients up to which the law is asked."""
        return 2 * self.clients_max

    def throughput_per_s(self, clients: float) -> dict[str, float]:
        """Predict the mean throughput of so many clients: `mean`, `low` and `high` of the 95 % interval.

        Raises:
            NotApplicableError: beyond twice what was measured.
        """
        if self.fit.extrapolates(clients):
            raise NotApplicableError(
                f"{clients:g} clients are beyond twice the {self.clients_max:g} that were measured"
            )
        low, high = self.fit.throughput_interval_per_s(clients, CONFIDENCE)
        return {"mean": self.fit.law.throughput_per_s(clients), "low": low, "high": high}

    def as_dict(self) -> dict[str, Any]:
        """Return parameters with intervals, the peak as far as it may be said, and the curve with its band."""
        law = self.fit.law
        parameters = {}
        for name in ("gamma", "alpha", "beta"):
            low, high = self.fit.interval(name, CONFIDENCE)
            parameters[name] = {"value": getattr(law, name), "low": low, "high": high}
        peak = law.peak_clients
        near = peak is not None and peak <= self.reach
        # The law is one of one client at least, whatever the smallest measured number.
        points = np.geomspace(1.0, self.reach, _CURVE_POINTS).tolist()
        return {
            **parameters,
            "r_squared": self.fit.r_squared,
            "clients_max": self.clients_max,
            "reach": self.reach,
            "peak_clients": peak if near else None,
            "peak_throughput_per_s": law.peak_throughput_per_s if near else None,
            "warnings": list(self.fit.warnings),
            "curve": [
                {"clients": point, **self.throughput_per_s(min(point, self.reach))} for point in points
            ],
        }


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
