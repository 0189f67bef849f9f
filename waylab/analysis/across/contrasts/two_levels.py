"""Effects of designs in which every factor has two levels, as contrasts of the model of `model.py`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from waylab.analysis.across.contrasts.model import Levels, MetricModel, Weights, meant, metric_model
from waylab.analysis.statistics.pairs import no_interval
from waylab.runfolder.trial_numbers import AnalysedTrial

Word = tuple[str, ...]


@dataclass(frozen=True)
class LargestEffect:
    """The effect of a factor beside the largest other effect, both as factors above 1."""

    mine: float
    # The share of the variation of the logarithm that the factor's effect explains.
    share: float
    other: float
    other_name: str
    blocks: int
    # One-sided p-values of "the factor's effect is not the larger one" and "is not the smaller one".
    p_larger: float | None
    p_smaller: float | None
    reason: str


def word_weights(
    configurations: Mapping[str, Mapping[str, str]], levels: Mapping[str, Sequence[str]], word: Word
) -> Weights:
    """Return the contrast of an effect: from the low to the high level, or how two factors act together.

    `levels` are the two labels of each factor, and `word` the factors of the effect. For one factor it is the ratio
    of the high to the low level. For several it is the geometric mean of the ratios of ratios.
    """
    signs = {
        name: math.prod(1 if labels[factor] == levels[factor][1] else -1 for factor in word)
        for name, labels in configurations.items()
    }
    return {name: 2 * sign / len(signs) for name, sign in signs.items()}


def largest_effect(
    metric: str, factor: str, of: Levels, trials: Sequence[AnalysedTrial]
) -> LargestEffect | None:
    """Compare the effect of a factor with the largest other one, main effect or interaction.

    `of` restricts the configurations, and `factor` may be an interaction, `a x b`. None unless all combinations of
    two levels of each other factor were used.
    """
    model = metric_model(trials, metric)
    chosen = {name: labels for name, labels in model.levels.items() if meant(labels, of)}
    levels = two_levels(chosen, [*of])
    mine = tuple(factor.split(" x "))
    if levels is None or not set(mine) <= set(levels):
        return None
    words = [word for size in range(1, len(levels) + 1) for word in combinations(levels, size)]
    weights = {word: word_weights(chosen, levels, word) for word in words}
    sizes = {word: found.estimate for word in words if (found := model.contrast(weights[word]))}
    if len(sizes) < len(words) or len(words) < 2:
        return None
    other = max((word for word in words if word != mine), key=lambda word: abs(sizes[word]))
    signs = [math.copysign(1, sizes[word]) for word in (mine, other)]
    difference = {
        name: signs[0] * weights[mine][name] - signs[1] * weights[other][name] for name in weights[mine]
    }
    contrast = model.contrast(difference)
    assert contrast is not None, "the difference of two estimable contrasts is estimable"
    smaller = contrast.p_below()
    blocks = model.blocks(weights[mine])
    return LargestEffect(
        math.exp(abs(sizes[mine])),
        _share(model, chosen, sizes[mine]),
        math.exp(abs(sizes[other])),
        " x ".join(other),
        blocks,
        contrast.p_above(),
        # The other effect was chosen as the largest of several, so its p-value is adjusted for their number.
        None if smaller is None else min(1.0, smaller * (len(words) - 1)),
        "" if smaller is not None else no_interval(blocks, len(difference)),
    )


def _share(model: MetricModel, chosen: Mapping[str, object], size: float) -> float:
    """Return n q^2 / SST for an effect of size 2 q (Jain 1991, 18.5). Adjust both for the covariate, or neither."""
    logs = np.array(model.logs())
    mine = logs[[trial.configuration in chosen for trial in model.trials]]
    total = float(((mine - mine.mean()) ** 2).sum())
    return min(1.0, mine.size * (size / 2) ** 2 / total) if total else 0.0


def two_levels(
    configurations: Mapping[str, Mapping[str, str]], fixed: Sequence[str] = ()
) -> dict[str, list[str]] | None:
    """Return the two labels of each factor that is not fixed; None unless all of their combinations are there."""
    names = [name for name in next(iter(configurations.values()), {}) if name not in fixed]
    levels = {name: list(dict.fromkeys(labels[name] for labels in configurations.values())) for name in names}
    levels = {name: labels for name, labels in levels.items() if len(labels) > 1}
    whole = all(len(labels) == 2 for labels in levels.values()) and len(configurations) == 2 ** len(levels)
    return levels if whole else None
