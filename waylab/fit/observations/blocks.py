"""How much trials differ between blocks, and within one: a slow machine slows all trials of a block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from waylab.fit.observations.trials import TrialObservation

# With few blocks, their variance is hardly known. In 20 campaigns of the lab it was 0 to 2.7 times that of the trials
# of a block (median 0.16). The prior of this ratio is a scaled inverse chi-squared distribution with this scale and
# these degrees of freedom. Three degrees are as likely, but two learn faster that blocks differ more than ever.
PRIOR_SHARE, PRIOR_FREEDOM = 0.13, 2.0
_LEVEL = 0.95


@dataclass(frozen=True)
class BlockVariation:
    """Standard deviations of ln X (open loop: ln R): between trials of a block, and between blocks.

    `known` is the part of the variance between blocks that was measured, without the prior; `freedom` are the degrees
    of freedom of `block`. All deviations are 0 if no configuration has two trials.
    """

    trial: float
    block: float
    known: float
    blocks: int
    freedom: float

    @property
    def half(self) -> float:
        """Half the width of a 90 % interval, in standard deviations `block`: more than 1.645, as they are estimated."""
        return float(t.ppf(_LEVEL, self.freedom))


def keys_of(observations: Sequence[TrialObservation]) -> list[tuple[str, int]]:
    """The block of each trial."""
    return [(one.run, one.block) for one in observations]


def deviations(values: NDArray[np.float64], groups: Sequence[object]) -> NDArray[np.float64]:
    """Values without the means of their groups, of which one with a single value says nothing: not a number."""
    order = {key: place for place, key in enumerate(dict.fromkeys(groups))}
    at = np.array([order[key] for key in groups])
    counts = np.bincount(at)
    means = np.bincount(at, weights=values) / counts
    return np.where(counts[at] > 1, values - means[at], np.nan)


def block_means(values: NDArray[np.float64], blocks: Sequence[object]) -> dict[object, float]:
    """Mean of the known values of each block that has any."""
    found: dict[object, list[float]] = {}
    for key, value in zip(blocks, values.tolist(), strict=True):
        if math.isfinite(value):
            found.setdefault(key, []).append(value)
    return {key: sum(group) / len(group) for key, group in found.items()}


def block_variation(observations: Sequence[TrialObservation]) -> BlockVariation:
    """Estimate both variances from the deviations of trials from the means of their configurations."""
    logs = np.array(
        [
            math.log(one.response_s if one.settings.rate_per_s else one.throughput_per_s)
            for one in observations
        ]
    )
    blocks = keys_of(observations)
    configurations = [one.settings for one in observations]
    away = deviations(logs, configurations)
    means = block_means(away, blocks)
    if not means:
        return BlockVariation(0.0, 0.0, 0.0, max(len(set(blocks)), 1), PRIOR_FREEDOM)
    known = np.isfinite(away)
    count = len(means)
    repeated = len({one for one, used in zip(configurations, known.tolist(), strict=True) if used})
    rest = away - np.array([means.get(key, 0.0) for key in blocks])
    freedom = int(known.sum()) - repeated - (count - 1)
    if freedom < 1:
        # One configuration: its trials cannot be told from their blocks.
        total = float((away[known] ** 2).sum()) / max(int(known.sum()) - repeated, 1)
        return _variation(total, 0.0, 1)
    trial = float((rest[known] ** 2).sum()) / freedom
    if count < 2:
        return _variation(trial, 0.0, 1)
    between = sum(mean**2 for mean in means.values()) / (count - 1)
    return _variation(trial, max(0.0, between - trial * count / int(known.sum())), count)


def _variation(trial: float, between: float, count: int) -> BlockVariation:
    freedom = PRIOR_FREEDOM + count - 1
    block = (PRIOR_FREEDOM * PRIOR_SHARE * trial + (count - 1) * between) / freedom
    return BlockVariation(math.sqrt(trial), math.sqrt(block), math.sqrt(between), count, freedom)
