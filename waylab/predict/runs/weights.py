"""Weights of models by their errors at configurations held out inside the calibration set."""

import math
from collections.abc import Mapping, Sequence

from waylab.fit.layered.model import NAME as LAYERED
from waylab.predict.runs.inner import InnerPair

_STEEPNESS = 2.0
_NEGLIGIBLE = 0.05
_ERROR_LEAST = 1e-3


def weights_by_errors(errors: Mapping[str, Sequence[float]], pairs: int) -> dict[str, float]:
    """Weights from the mean absolute error of each model; squared, so that better ones dominate.

    A model without an error at half of the held-out configurations has none: it was judged on easier ones.
    """
    shares = {
        name: max(sum(map(abs, found)) / len(found), _ERROR_LEAST) ** -_STEEPNESS
        for name, found in errors.items()
        if found and len(found) >= 0.5 * pairs
    }
    total = sum(shares.values())
    kept = {name: share for name, share in shares.items() if share > _NEGLIGIBLE * total}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


def percentile_weights(pairs: Sequence[InnerPair]) -> dict[str, float]:
    """Weights of the layered model's models of percentiles, by the errors of the ratio of 95th percentile and mean."""
    errors: dict[str, list[float]] = {}
    for pair in pairs:
        found, seen_s = pair.predicted.get(LAYERED), p95_of(pair.measured.percentiles_s)
        for name, values_s in found.percentile_models_s.items() if found and seen_s else ():
            p95_s = p95_of(values_s)
            if found and seen_s and p95_s:
                ratio, seen = p95_s / found.response_s.value, seen_s / pair.measured.response_s
                errors.setdefault(name, []).append(math.log(ratio / seen))
    return weights_by_errors(errors, max((len(found) for found in errors.values()), default=0))


def p95_of(percentiles_s: Mapping[str, Mapping[str, float]]) -> float | None:
    """The 95th percentile of all response times."""
    return percentiles_s.get("all", {}).get("95")
