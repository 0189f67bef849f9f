"""The models that are fitted for each split, and the choice among them by errors inside the calibration set."""

import math
from collections.abc import Mapping, Sequence

from waylab.fit.table.baselines import GaussianProcessModel, baselines
from waylab.fit.table.chain import ChainModel, ChainPrior
from waylab.fit.table.effects import Effects
from waylab.fit.table.interface import CellPrediction, TableModel
from waylab.predict.table.splits import EXTRAPOLATING, HoldOut

CHOSEN = "chosen"
# A curve that may bend more, and that is not pulled towards saturation.
_FREE = ChainPrior(drift=0.35, roughness=0.8, end=None, spread=2.0)
# Other numbers of servers are predicted better by curves that saturate later.
_LAYERED = ChainPrior(drift=1.0)
_STEEPNESS = 2.0
_NEGLIGIBLE = 0.05


def candidates(outer: HoldOut, split: str) -> list[TableModel]:
    """All models for a hold-out."""
    if split in ("pools", "clients"):
        own: list[TableModel] = [ChainModel("chain"), ChainModel("chain-free", _FREE)]
    else:
        among = tuple(sorted({one.settings for one in (*outer.calibration, *outer.targets)}))
        own = [ChainModel("layered", _LAYERED, Effects(among))]
    return [*own, *baselines()]


def may_be_chosen(name: str, outer: HoldOut) -> bool:
    """Whether a model takes part in the choice.

    The field reports' models are there to compare. A Gaussian process knows no bottleneck, and nothing draws the free
    chain towards one, so both may only interpolate.
    """
    if name in {GaussianProcessModel().name, "chain-free"}:
        return outer.part not in EXTRAPOLATING and _varies(outer)
    return name in {"chain", "layered"}


def _varies(outer: HoldOut) -> bool:
    """Whether the held-out factor, if it is a single one, still varies in the calibration."""
    known = {getattr(one.settings, outer.part, index) for index, one in enumerate(outer.calibration)}
    return len(known) > 1


def weights_of(errors: Mapping[str, Sequence[float]], prior: Sequence[str]) -> dict[str, float]:
    """Weights of a blend from the mean absolute errors of each model; squared, so that better ones dominate.

    Without errors, the first name of `prior` that is among them takes all.
    """
    means = {name: sum(map(abs, found)) / len(found) for name, found in errors.items() if found}
    if not means:
        return {next(name for name in prior if name in errors): 1.0}
    shares = {name: max(mean, 1e-6) ** -_STEEPNESS for name, mean in means.items()}
    total = sum(shares.values())
    kept = {name: share / total for name, share in shares.items() if share > _NEGLIGIBLE * total}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


def blend(parts: Mapping[str, CellPrediction], weights: Mapping[str, float]) -> CellPrediction | None:
    """The geometric mean of predictions. A value that some of them lack is the mean of the others."""
    used = {name: weight for name, weight in weights.items() if name in parts}
    if not used:
        return None

    def mean(field: str) -> float | None:
        known = [
            (weight, value)
            for name, weight in used.items()
            if (value := getattr(parts[name], field)) is not None
        ]
        if not known:
            return None
        total = sum(weight for weight, _ in known)
        return math.exp(sum(weight * math.log(value) for weight, value in known) / total)

    heaviest = max(used, key=lambda name: used[name])
    rate, response_s = mean("throughput_per_s"), mean("response_s")
    assert rate is not None and response_s is not None
    return CellPrediction(
        rate,
        response_s,
        mean("inside_s"),
        mean("holding_s"),
        mean("p95_s"),
        parts[heaviest].bottleneck,
        mean("spread"),
        mean("spread_inside"),
    )
