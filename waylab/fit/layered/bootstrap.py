"""What the fit would be with other blocks: trials resampled by block, and the parameters fitted again.

Each draw replaces the errors of every block by those of a block that is drawn with replacement, and those of a trial by
those of one of its trials. Parameters that the trials do not identify would keep their prior in every draw, so that the
prior's centre is drawn, too (Bardsley and others, Randomize-then-optimize, SIAM J. Sci. Comput. 36, 2014). Every draw
starts at the fitted parameters and keeps the derivatives there: a step costs one solution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.search import Minimum, Prior, losses, weights_of

Array = NDArray[np.float64]

# A step of a draw in the logarithm of a parameter.
_STEP_MAX = 2.0
# Deviations that count as none, and one that stands for a draw without a steady state; limits of the ratio.
_TINY, _FAR = 1e-9, 10.0
_RATIOS = (0.7, 3.0)


@dataclass(frozen=True)
class Draws:
    """Logarithms of the parameters in each draw, fitted through the solver and by its linear form at the fit."""

    exact: Array
    linear: Array


def resampled(residuals: Array, blocks: Sequence[object], count: int, seed: int) -> Array:
    """Errors of the trials in each draw, shape (draws, trials, kinds); those that a trial does not have are 0.

    A block keeps what its trials have in common. Means by kind are left out: they are misfit and no chance.
    """
    random = np.random.default_rng(seed)
    known = np.isfinite(residuals)
    counts = np.maximum(known.sum(axis=0), 1)
    values = np.where(known, residuals, 0.0)
    centred = np.where(known, values - values.sum(axis=0) / counts, 0.0)
    order = list(dict.fromkeys(blocks))
    members = [np.flatnonzero([one == key for one in blocks]) for key in order]
    found = np.empty((count, *residuals.shape))
    for draw in range(count):
        sources = random.integers(len(order), size=len(order))
        for mine, source in zip(members, sources.tolist(), strict=True):
            found[draw, mine] = centred[random.choice(members[source], size=len(mine))]
    return found


def fit_draws(
    errors: Callable[[Array], Array],
    minimum: Minimum,
    prior: Prior,
    noise: float,
    moved: Array,
    rounds: int,
    seed: int,
) -> Draws:
    """Fit the parameters to errors that are moved, shape (draws, errors), with the prior's centre drawn."""
    random = np.random.default_rng(seed)
    count, size = len(moved), len(minimum.logs)
    centres = prior.centre + prior.widths * random.standard_normal((count, size))
    inverse = np.linalg.inv(minimum.curvature)

    def step(seen: Array, at: Array) -> Array:
        uphill = (weights_of(seen, noise) * seen) @ minimum.slopes + (at - centres) / prior.widths**2
        return np.asarray(np.clip(-uphill @ inverse, -_STEP_MAX, _STEP_MAX))

    def costs(seen: Array, at: Array) -> Array:
        return np.asarray(losses(seen, noise) + (((at - centres) / prior.widths) ** 2).sum(axis=1))

    base = minimum.errors[None, :] + moved
    fixed = weights_of(minimum.errors, noise)
    pulls = (centres - prior.centre) / prior.widths**2
    linear = minimum.logs - ((fixed * moved) @ minimum.slopes - pulls) @ inverse
    here = np.repeat(minimum.logs[None, :], count, axis=0)
    seen, least = base, costs(base, here)
    ahead = step(seen, here)
    for _ in range(rounds):
        tried = here + ahead
        there = errors(tried) + moved
        found = costs(there, tried)
        better = found < least
        here, seen = np.where(better[:, None], tried, here), np.where(better[:, None], there, seen)
        least = np.where(better, found, least)
        ahead = np.where(better[:, None], step(seen, here), ahead / 3)
    return Draws(here, linear)


def curvature_ratio(exact: Array, linear: Array) -> Array:
    """How much further the draws reach than their linear form says, by quantity; shape (draws, quantities) each."""
    far, near = (
        np.quantile(np.abs(np.nan_to_num(one, nan=_FAR, posinf=_FAR)), 0.9, axis=0) for one in (exact, linear)
    )
    return np.asarray(np.clip(np.where(near > _TINY, far / np.maximum(near, _TINY), 1.0), *_RATIOS))
