"""The tool's own choice: a blend of models by their errors inside the calibration set, with calibrated intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from waylab.fit.interface import (
    Domain,
    Estimate,
    ModelPrediction,
    RefusedFitError,
    RunModel,
    domain_of_runs,
    unidentifiable,
)
from waylab.fit.layered import FittedLayered, LayeredModel
from waylab.fit.layered.model import NAME as LAYERED
from waylab.fit.layered.shapes import blended
from waylab.fit.observations import ModelSettings, TrialObservation, pooled
from waylab.fit.observations.blocks import BlockVariation, block_variation
from waylab.fit.tabled import CHAIN, tabled_models
from waylab.predict.runs.inner import Fits, InnerPair, fit_all, inner_pairs
from waylab.predict.runs.weights import p95_of, percentile_weights, weights_by_errors

CHOSEN = "chosen"
LEVEL = 0.9
_GAUSSIAN_PROCESS = "gaussian-process"
# Quantile of |error| / standard deviation of a normal error, and how many held-out errors it is worth.
_QUANTILE_BEFORE, _WEIGHT_BEFORE = 1.645, 5.0
_ERROR_BEFORE = 0.1
_BEYOND = 1.5
# Inner configurations beyond the rest, with which the errors beyond can be told from the others.
_PAIRS_MIN = 3
# Utilisation below which all trials are idle, and share of the largest throughput that is as much.
_IDLE, _SATURATED = 0.35, 0.93
# Half the width of the interval of ln X in an open loop: the arrivals of a trial vary a little.
_OPEN_HALF = 0.01

Progressing = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class FittedChosen:
    """All fitted models, the weights of the blend and the widths of intervals."""

    fits: Fits
    pairs: Sequence[InnerPair] = field(repr=False)
    domain: Domain = field(repr=False)
    observations: Sequence[TrialObservation] = field(repr=False)
    variation: BlockVariation
    among: tuple[ModelSettings, ...] = field(default=(), repr=False)
    name: str = CHOSEN

    @property
    def layered(self) -> FittedLayered | None:
        """The layered model, if it could be fitted."""
        found = self.fits.fitted.get(LAYERED)
        return found if isinstance(found, FittedLayered) else None

    @property
    def parameters(self) -> Mapping[str, float]:
        """Parameters of the model with the largest weight."""
        return self.fits.fitted[self._heaviest].parameters

    @property
    def log_spreads(self) -> Mapping[str, float]:
        """Standard deviations of the logarithms of these parameters."""
        return self.fits.fitted[self._heaviest].log_spreads

    @property
    def unidentified(self) -> Sequence[str]:
        """What the trials could not identify."""
        found = list(self.fits.fitted[self._heaviest].unidentified)
        if reason := blocks_unknown(self.variation, self.observations):
            found.insert(0, reason)
        layered = self.layered
        if layered is not None and (reason := one_sided(layered, self.observations)):
            found.insert(0, reason)
        return tuple(found)

    @property
    def _heaviest(self) -> str:
        weights = self.weights(interpolates=True)
        return max(weights, key=lambda name: weights[name])

    def weights(self, *, interpolates: bool) -> dict[str, float]:
        """Weights of the models, by their errors at inner configurations of the same kind.

        A Gaussian process knows no bottleneck, so that it takes no part beyond the trials.
        """
        names = [LAYERED, CHAIN, *([_GAUSSIAN_PROCESS] if interpolates else [])]
        usable = [name for name in names if name in self.fits.fitted]
        pairs = self._alike(extrapolates=not interpolates)
        errors = {
            name: [one.errors(name)["throughput"] for one in pairs if name in one.predicted]
            for name in usable
        }
        found = weights_by_errors(errors, len(pairs))
        return found or ({usable[0]: 1.0} if usable else {next(iter(self.fits.fitted)): 1.0})

    def percentile_weights(self, *, interpolates: bool) -> dict[str, float]:
        """Weights of the models of percentiles, by their errors at inner configurations of the same kind."""
        return percentile_weights(self._alike(extrapolates=not interpolates))

    def _alike(self, *, extrapolates: bool) -> list[InnerPair]:
        """The inner configurations that say how well models extrapolate; all of them, if those are few."""
        beyond = [one for one in self.pairs if one.extrapolates]
        return beyond if extrapolates and len(beyond) >= _PAIRS_MIN else list(self.pairs)

    def predict(
        self, settings: ModelSettings, trials: int = 1, *, same_blocks: bool = False
    ) -> ModelPrediction:
        """The blend of all that can predict the settings. The interval is that of the mean of so many trials.

        Each trial is in another block, and these blocks are not those of the calibration unless `same_blocks` is true.

        Raises:
            RefusedFitError: when none of them can.
        """
        found, reasons = self.predict_all(settings, trials, same_blocks=same_blocks)
        if CHOSEN not in found:
            raise RefusedFitError(reasons[CHOSEN])
        return found[CHOSEN]

    def predict_all(
        self, settings: ModelSettings, trials: int = 1, *, same_blocks: bool = False
    ) -> tuple[dict[str, ModelPrediction], dict[str, str]]:
        """Every model with its interval, the blend first; and the reasons of those that refuse."""
        reason = unidentifiable(self.domain, settings)
        if reason:
            return {}, dict.fromkeys((CHOSEN, *self.fits.fitted), reason)
        found, reasons = self.fits.predict(settings)
        chosen = self._blend(found, self.domain.beyond(settings))
        if chosen is None:
            reasons[CHOSEN] = reasons.get(LAYERED) or "; ".join(sorted(set(reasons.values())))
        else:
            found = {CHOSEN: chosen, **found}
        return {
            name: self._with_intervals(name, one, trials, same_blocks=same_blocks)
            for name, one in found.items()
        }, reasons

    def _blend(
        self, found: Mapping[str, ModelPrediction], extrapolates: tuple[str, ...]
    ) -> ModelPrediction | None:
        weights = self.weights(interpolates=not extrapolates)
        used = {name: weight for name, weight in weights.items() if name in found}
        if not used:
            return None
        total = sum(used.values())

        def mean(values: Mapping[str, float]) -> float:
            return math.exp(sum(weight * math.log(values[name]) for name, weight in used.items()) / total)

        # The layered model alone knows percentiles, operations and utilisation.
        head = found.get(LAYERED) or found[max(used, key=lambda name: used[name])]
        response_s = mean({name: one.response_s.value for name, one in found.items()})
        ratio = response_s / head.response_s.value
        percentiles_s = blended(
            head.percentile_models_s, self.percentile_weights(interpolates=not extrapolates)
        )
        return replace(
            head,
            model=CHOSEN,
            throughput_per_s=Estimate(
                mean({name: one.throughput_per_s.value for name, one in found.items()})
            ),
            response_s=Estimate(response_s),
            responses_s={name: ratio * value for name, value in head.responses_s.items()},
            percentiles_s={
                operation: {share: ratio * value for share, value in values.items()}
                for operation, values in percentiles_s.items()
            },
            extrapolates=extrapolates,
        )

    def _with_intervals(
        self, name: str, one: ModelPrediction, trials: int, *, same_blocks: bool
    ) -> ModelPrediction:
        halves = self.half_widths(name, one, trials)
        if not same_blocks:
            halves = {
                quantity: math.hypot(half, self._block_half(one, quantity, trials))
                for quantity, half in halves.items()
            }

        def around(value: float, half: float) -> Estimate:
            return Estimate(value, value * math.exp(-half), value * math.exp(half))

        p95_s = p95_of(one.percentiles_s)
        return replace(
            one,
            throughput_per_s=around(one.throughput_per_s.value, halves["throughput"]),
            response_s=around(one.response_s.value, halves["response"]),
            p95_s=around(p95_s, self._p95_half(name, one, halves["response"])) if p95_s else None,
        )

    def _p95_half(self, name: str, one: ModelPrediction, at_least: float) -> float:
        """The same for the 95th percentile: it is a multiple of the mean, and at least as uncertain."""
        scores = []
        pairs = self._alike(extrapolates=bool(one.extrapolates))
        for pair in pairs:
            predicted = self._inner(name, pair)
            ours, theirs = (
                p95_of(predicted.percentiles_s) if predicted else None,
                p95_of(pair.measured.percentiles_s),
            )
            if ours and theirs:
                scores.append(abs(math.log(ours / theirs)))
        beyond = _BEYOND if one.extrapolates and len(pairs) == len(self.pairs) else 1.0
        return max(at_least, beyond * _quantile(scores, _ERROR_BEFORE))

    @property
    def widening(self) -> float:
        """By how much the errors inside the calibration set exceed those that the layered model expects."""
        layered = self.layered
        if layered is None or not self.pairs:
            return 1.0
        scores = []
        for pair in self.pairs:
            found = pair.predicted.get(LAYERED)
            if found is not None and found.uncertainty is not None:
                error = abs(math.log(found.response_s.value / pair.measured.response_s))
                spread = _of_mean(found.uncertainty[1], self.trial_spread, pair.measured.trials)
                scores.append(error / spread)
        return _quantile(scores, _QUANTILE_BEFORE) / _QUANTILE_BEFORE

    @property
    def trial_spread(self) -> float:
        """Standard deviation of ln X (open loop: ln R) between trials of one block; 0 if no configuration has two."""
        return self.variation.trial

    @property
    def _rate_spread(self) -> float:
        """Standard deviation of ln X between trials of an open loop; 0 if none was measured twice."""
        known = [
            (one.trials - 1, one.spread)
            for one in self.observations
            if one.spread is not None and one.settings.rate_per_s
        ]
        freedom = sum(count for count, _ in known)
        return math.sqrt(sum(count * spread**2 for count, spread in known) / freedom) if freedom else 0.0

    def _block_half(self, one: ModelPrediction, quantity: str, trials: int) -> float:
        """Half the width that the effects of the blocks add: of the calibrated ones, and of those to be predicted.

        Errors inside the calibration set do not contain these effects, because all configurations share the blocks.
        """
        variation, response_s = self.variation, one.response_s.value
        if quantity == "throughput":
            if one.settings.rate_per_s:
                return 0.0
            reach, place = 1.0, 0
        else:
            reach, place = 1.0 if one.settings.rate_per_s else 1.0 + one.settings.think_s / response_s, 1
        of_fit = reach * variation.block / math.sqrt(variation.blocks)
        if one.block_uncertainty is not None:
            of_fit = one.block_uncertainty[place]
        return variation.half * math.hypot(of_fit, reach * variation.block / math.sqrt(trials))

    def half_widths(self, name: str, one: ModelPrediction, trials: int) -> dict[str, float]:
        """Half the widths of the 90 % intervals of ln X and ln R: conformal, from errors inside the calibration set."""
        found = {}
        between = self.trial_spread
        pairs = self._alike(extrapolates=bool(one.extrapolates))
        # Errors beyond the rest need no factor.
        beyond = _BEYOND if one.extrapolates and len(pairs) == len(self.pairs) else 1.0
        for place, quantity in enumerate(("throughput", "response")):
            scores, counts = [], []
            for pair in pairs:
                predicted = self._inner(name, pair)
                if predicted is None:
                    continue
                error = abs(math.log(_value(predicted, quantity) / _measured(pair.measured, quantity)))
                counts.append(pair.measured.trials)
                if one.uncertainty is None:
                    scores.append(error)
                elif predicted.uncertainty is not None:
                    scores.append(
                        error / _of_mean(predicted.uncertainty[place], between, pair.measured.trials)
                    )
            if quantity == "throughput" and one.settings.rate_per_s:
                # Requests arrive whatever the system does.
                found[quantity] = max(_OPEN_HALF, _QUANTILE_BEFORE * self._rate_spread)
                continue
            # No interval can be narrower than the measurement that it is to contain varies by itself.
            least = _QUANTILE_BEFORE * between / math.sqrt(trials)
            if one.uncertainty is not None:
                spread = _of_mean(one.uncertainty[place], between, trials)
                found[quantity] = max(least, spread * _quantile(scores, _QUANTILE_BEFORE))
                continue
            # The errors are those of means of several trials.
            more = 1 / trials - 1 / (sum(counts) / len(counts)) if counts else 0.0
            found[quantity] = max(
                least,
                math.hypot(
                    beyond * _quantile(scores, _ERROR_BEFORE),
                    _QUANTILE_BEFORE * between * math.sqrt(max(0.0, more)),
                ),
            )
        return found

    def _inner(self, name: str, pair: InnerPair) -> ModelPrediction | None:
        if name == CHOSEN:
            return self._blend(pair.predicted, ("held out",) if pair.extrapolates else ())
        return pair.predicted.get(name)


def blocks_unknown(variation: BlockVariation, observations: Sequence[TrialObservation]) -> str:
    """Why the trials do not show how much blocks differ, with the measurement that would; `observations` are means."""
    if all(one.trials < 2 for one in observations):
        return (
            "variation between blocks: no configuration was measured twice, so that the intervals do not contain it; "
            "measure a second block"
        )
    if variation.blocks < 2:
        return (
            "variation between blocks: it cannot be told from that between trials, so that its prior decides; "
            "measure all configurations in several blocks"
        )
    return ""


def one_sided(layered: FittedLayered, observations: Sequence[TrialObservation]) -> str:
    """Why loads on one side of saturation leave capacity or delay open, with the measurement that would help."""
    found = layered.solve([one.settings for one in observations])
    busiest = float(found.utilisation.max())
    if found.host_use.shape[1]:
        busiest = max(busiest, float(found.host_use.max()))
    if busiest < _IDLE:
        share = f"{100 * busiest:.0f} %"
        return (
            f"capacity: all trials are nearly idle (the busiest part is {share} busy); measure more clients"
        )
    groups: dict[ModelSettings, list[tuple[int, float]]] = {}
    for one in observations:
        if not one.settings.rate_per_s:
            key = replace(one.settings, clients=1)
            groups.setdefault(key, []).append((one.settings.clients, one.throughput_per_s))
    compared = [sorted(group) for group in groups.values() if len(group) > 1]
    if compared and all(group[0][1] > _SATURATED * max(rate for _, rate in group) for group in compared):
        return (
            "delay: all trials are saturated (fewer clients have the same throughput); measure fewer clients"
        )
    return ""


def _of_mean(spread: float, between: float, trials: int) -> float:
    """Standard deviation for the mean of several trials, from that for one trial and that between trials."""
    # The spread is estimated, too, so that the difference may be below what a mean of trials varies by itself.
    return math.sqrt(max(spread**2 - between**2 * (1 - 1 / trials), between**2 / trials, (0.3 * spread) ** 2))


def _value(one: ModelPrediction, quantity: str) -> float:
    return one.throughput_per_s.value if quantity == "throughput" else one.response_s.value


def _measured(one: TrialObservation, quantity: str) -> float:
    return one.throughput_per_s if quantity == "throughput" else one.response_s


def _quantile(scores: Sequence[float], before: float) -> float:
    """The conformal quantile, drawn towards what is expected if there are few scores."""
    sizes = np.sort(np.asarray(scores, dtype=float))
    if not sizes.size:
        return before
    place = min(sizes.size, math.ceil(LEVEL * (sizes.size + 1))) - 1
    weight = sizes.size / (sizes.size + _WEIGHT_BEFORE)
    return math.exp(weight * math.log(max(float(sizes[place]), 1e-3)) + (1 - weight) * math.log(before))


def fit_runs(
    observations: Sequence[TrialObservation],
    among: Sequence[ModelSettings] = (),
    report: Progressing = _silent,
    models: Sequence[RunModel] | None = None,
) -> FittedChosen:
    """Fit all models to usable trials, and judge them inside the calibration set.

    Raises:
        RefusedFitError: when there are fewer than three configurations, all with one load, or no model can be fitted.
    """
    settings = {one.settings for one in observations}
    if len(settings) < 3:
        raise RefusedFitError(
            f"{len(settings)} configuration{'s are' if len(settings) != 1 else ' is'} too few to fit a model; "
            "measure at least three, with different numbers of clients"
        )
    models = models if models is not None else [LayeredModel(), *tabled_models(among)]
    fits = fit_all(models, observations)
    if LAYERED not in fits.fitted and CHAIN not in fits.fitted:
        raise RefusedFitError(next(iter(fits.reasons.values())))
    start = fits.fitted.get(LAYERED)
    pairs = inner_pairs(models, observations, start if isinstance(start, FittedLayered) else None, report)
    return FittedChosen(
        fits,
        pairs,
        domain_of_runs(observations),
        pooled(observations),
        block_variation(observations),
        tuple(among),
    )
