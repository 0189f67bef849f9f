"""Computes every ratio of an analysis with its interval, so that a ratio is the same number everywhere.

The model of a metric is logarithm = configuration + block + error, over the trials that were used. A contrast pairs
the configurations of both sides by the levels of the factors that neither side names. Its error is that of the
configurations that it names, because the others may be noisier or quieter. If the trials have measured the speed of
the machine, contrasts are adjusted for it (`design.covariate`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from scipy import special

from waylab.analysis.across.metrics import metric_of, more_is_better
from waylab.analysis.statistics.blocks import BlockModel, Contrast, fit_blocks, holm
from waylab.analysis.statistics.covariate import Slope, adjusted_contrast, slope
from waylab.analysis.statistics.pairs import ratio_of
from waylab.analysis.statistics.repetitions import CONFIDENCE
from waylab.errors import LabError
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.runfolder.words import several_levels

# Labels by factor; a configuration matches if it has one of the labels of every factor named.
Levels = Mapping[str, Sequence[str]]
Weights = dict[str, float]
# Trials that were used, each with its value.
_Kept = list[tuple[AnalysedTrial, float]]
NO_PAIR = "no pair of trials passed the gates"


@dataclass(frozen=True)
class MetricModel:
    """The model of one metric over `trials`; `levels` are the labels of each configuration that has a value."""

    metric: str
    model: BlockModel | None
    levels: dict[str, dict[str, str]]
    blocks_of: dict[str, set[int]]
    trials: tuple[AnalysedTrial, ...]
    values: tuple[float, ...]
    # The slope with which contrasts are adjusted for the speed of the machine; None for no adjustment.
    speed: Slope | None = None

    def ratio(self, of: Levels, to: Levels, margin: float = 0.0) -> Ratio:
        """Return the ratio of two sides, with equal weight for every combination of the other factors' levels."""
        return self.ratio_of_weights(self.weights(of, to), margin)

    def ratio_of_weights(self, weights: Weights, margin: float = 0.0) -> Ratio:
        """Return the ratio whose logarithm is the sum of these weights times the configurations' logarithms."""
        found = self.contrast(weights)
        if found is None:
            return missing_ratio()
        estimate = ratio_of(found, self.blocks(weights), margin, len(weights), more_is_better(self.metric))
        return Ratio(**vars(estimate))

    def contrast(self, weights: Weights) -> Contrast | None:
        """Estimate the sum of weights times logarithms; None if the data do not connect the configurations."""
        kept = [
            (trial, value)
            for trial, value in zip(self.trials, self.values, strict=True)
            if trial.configuration in weights
        ]
        if not kept:
            return None
        try:
            if self.speed:
                columns = *_places(kept), [value for _, value in kept], _probes(kept)
                return adjusted_contrast(*columns, self.speed, weights)
            return _fitted(kept).contrast(weights)
        except LabError:
            return None

    def logs(self) -> list[float]:
        """Return the logarithms of the values; adjusted to equal speed of the machine if contrasts are."""
        logs = [math.log(value) for value in self.values]
        if self.speed is None:
            return logs
        probes = [math.log(probe) for probe in _probes(list(zip(self.trials, self.values, strict=True)))]
        centre = math.fsum(probes) / len(probes)
        return [one - self.speed.estimate * (probe - centre) for one, probe in zip(logs, probes, strict=True)]

    def blocks(self, weights: Weights) -> int:
        """Return the number of blocks in which a configuration of the contrast was used."""
        return len(set().union(*(self.blocks_of[name] for name in weights)))

    def weights(self, of: Levels, to: Levels) -> Weights:
        """Return the weight of each configuration, +1 in total for `of` and -1 for `to`; empty without a pair."""
        named = {*of, *to}
        sides: dict[tuple[tuple[str, str], ...], tuple[list[str], list[str]]] = {}
        for name, levels in self.levels.items():
            others = tuple((factor, label) for factor, label in levels.items() if factor not in named)
            for place, side in enumerate((of, to)):
                if meant(levels, side):
                    sides.setdefault(others, ([], []))[place].append(name)
        pairs = [pair for pair in sides.values() if pair[0] and pair[1]]
        weights: Weights = {}
        for pair in pairs:
            for names, sign in zip(pair, (1.0, -1.0), strict=True):
                for name in names:
                    weights[name] = weights.get(name, 0.0) + sign / len(names) / len(pairs)
        return {name: weight for name, weight in weights.items() if weight}

    def pairs(self, of: Levels, to: Levels) -> list[dict[str, str]]:
        """List the combinations of the other factors' levels that both sides have; of factors that vary."""
        varied = several_levels(self.levels.values()) - {*of, *to}
        found: dict[tuple[tuple[str, str], ...], set[int]] = {}
        for levels in self.levels.values():
            others = tuple((factor, label) for factor, label in levels.items() if factor in varied)
            for place, side in enumerate((of, to)):
                if meant(levels, side):
                    found.setdefault(others, set()).add(place)
        return [dict(others) for others, places in found.items() if len(places) == 2]


def metric_model(trials: Iterable[AnalysedTrial], metric: str) -> MetricModel:
    """Fit the model of a metric to the trials that were used and have a value above zero."""
    kept: _Kept = []
    for trial in trials:
        value = metric_of(trial.numbers, metric) if trial.used and trial.numbers else None
        if value and value > 0:
            kept.append((trial, value))
    blocks: dict[str, set[int]] = {}
    for trial, _ in kept:
        blocks.setdefault(trial.configuration, set()).add(trial.block)
    levels = {trial.configuration: trial.levels for trial, _ in kept}
    trials, values = tuple(trial for trial, _ in kept), tuple(value for _, value in kept)
    return MetricModel(metric, _fitted(kept) if kept else None, levels, blocks, trials, values, _speed(kept))


def _fitted(kept: _Kept) -> BlockModel:
    return fit_blocks(*_places(kept), [value for _, value in kept])


def _speed(kept: _Kept) -> Slope | None:
    """Return the slope over the CPU time of the lab's fixed computation, if every trial has it."""
    probes = _probes(kept)
    if not kept or len(probes) < len(kept):
        return None
    return slope(*_places(kept), [value for _, value in kept], probes)


def _places(kept: _Kept) -> tuple[list[str], list[int]]:
    return [trial.configuration for trial, _ in kept], [trial.block for trial, _ in kept]


def _probes(kept: _Kept) -> list[float]:
    measured = [trial.numbers.cpu.probe_ns for trial, _ in kept if trial.numbers]
    return [probe for probe in measured if probe]


def meant(levels: Mapping[str, str], side: Levels) -> bool:
    """Return whether a configuration has one of the labels of every factor named."""
    return all(levels.get(factor) in labels for factor, labels in side.items())


def missing_ratio() -> Ratio:
    """Return the result for two sides without any pair of used trials: no ratio."""
    return Ratio(blocks=0, ratio=None, low=None, high=None, excludes_1=None, equivalent=None, reason=NO_PAIR)


def as_family(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Add the adjusted p-value and the simultaneous interval to each ratio.

    `p_family` is adjusted by Holm's method. `family_low` and `family_high` are simultaneous 95 % intervals
    (Bonferroni). Ratios without an interval are not part of the family.
    """
    judged = [one.p for one in ratios if one.p is not None]
    adjusted = iter(holm(judged))
    return [
        one if one.p is None else replace(one, p_family=next(adjusted), **_simultaneous(one, len(judged)))
        for one in ratios
    ]


def family_size(ratios: Iterable[Ratio]) -> int:
    """Return the number of ratios of a family that have an interval."""
    return sum(one.p is not None for one in ratios)


def significant(ratio: Ratio) -> bool:
    """Return whether a ratio differs from 1, at 5 % for its whole family."""
    p = ratio.p if ratio.p_family is None else ratio.p_family
    return p is not None and p < 1 - CONFIDENCE


def _simultaneous(ratio: Ratio, size: int) -> dict[str, float]:
    assert ratio.ratio is not None and ratio.error is not None, "a ratio with a p-value has an error"
    half = float(special.stdtrit(ratio.degrees, 1 - (1 - CONFIDENCE) / 2 / size)) * ratio.error
    return {"family_low": ratio.ratio * math.exp(-half), "family_high": ratio.ratio * math.exp(half)}
