"""Estimates the demands by damped least squares through the solver, from all trials together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.bootstrap import Draws, fit_draws, resampled
from waylab.fit.layered.demands import Parameter, parameters_of, roles_of
from waylab.fit.layered.instances import BATCHING, OVERHEAD, networks_of
from waylab.fit.layered.network import solve_cycles
from waylab.fit.layered.search import Minimum, Prior, search, weights_of
from waylab.fit.layered.targets import RATE, RESPONSE, Targets, check_trials
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.observations.blocks import (
    PRIOR_FREEDOM,
    PRIOR_SHARE,
    BlockVariation,
    block_means,
    block_variation,
    deviations,
    keys_of,
)

Array = NDArray[np.float64]

_NOISE_MIN = 0.01
_NOISE_START = 0.08
_BATCHING_STARTS = (-0.7, 0.7)
# Draws of the bootstrap and steps of each, and those of a fit that starts at another one: it costs less itself.
_DRAWS, _STEPS, _DRAWS_AGAIN, _STEPS_AGAIN = 32, 3, 16, 2


@dataclass(frozen=True)
class Estimates:
    """Logarithms of the parameters with their covariance; noise of all errors, and of ln X in one block.

    `block_covariance` is the part that the effects of the blocks add: all trials of a block share them.
    """

    parameters: tuple[Parameter, ...]
    logs: Array
    covariance: Array
    block_covariance: Array
    noise: float
    run_noise: float
    draws: Draws
    variation: BlockVariation


class _Problem:
    """Errors of all trials by rows of parameters."""

    def __init__(self, observations: Sequence[TrialObservation], parameters: Sequence[Parameter]) -> None:
        self.observations, self._parameters = observations, parameters
        self._settings = [one.settings for one in observations]
        self.foreign = [one.foreign_share for one in observations]
        self._overhead_at = len(parameters) - 1
        before = np.log([one.start for one in parameters])
        self.prior = Prior(before, np.array([one.log_spread for one in parameters]))
        first = networks_of(parameters, self._settings[:1], before[None, :], self.foreign[:1])[0]
        self.targets = Targets(observations, [one.name for one in first.centres])

    def errors(self, rows: Array, shares: Sequence[float]) -> Array:
        """For rows of parameters: errors of all trials, solved in one batch, trials of one configuration once."""
        count = len(rows)
        unlike = dict.fromkeys(zip(self._settings, shares, strict=True))
        order = {key: place for place, key in enumerate(unlike)}
        found = solve_cycles(
            networks_of(
                self._parameters,
                [one for one, _ in unlike] * count,
                np.repeat(rows, len(unlike), axis=0),
                [share for _, share in unlike] * count,
            )
        )
        mine = np.array([order[key] for key in zip(self._settings, shares, strict=True)])
        places = np.arange(count)[:, None] * len(unlike) + mine
        return self.targets.errors(found, np.exp(rows[:, self._overhead_at]), places)

    def search(self, logs: Array, noise: float) -> Minimum:
        """The nearest minimum."""
        return search(self.errors, logs, self.prior, noise, self.foreign)


def estimate(observations: Sequence[TrialObservation], start: Estimates | None = None) -> Estimates:
    """Fit to trials; with a start, from the parameters of a fit to nearly the same trials.

    Raises:
        RefusedFitError: with too few configurations, or with trials of several systems.
    """
    check_trials(observations)
    parameters = _parameters(observations)
    problem = _Problem(observations, parameters)
    logs = problem.prior.centre.copy()
    if start is not None and len(start.logs) == len(logs):
        logs = start.logs.copy()
    noise = _NOISE_START if start is None else start.noise
    if start is None:
        # How work batches has several local optima.
        at = parameters.index(BATCHING)
        tries = [logs + np.where(np.arange(len(logs)) == at, step, 0.0) for step in _BATCHING_STARTS]
        best = min((problem.search(one, noise) for one in tries), key=lambda found: found.cost)
        logs, noise = best.logs, _noise_of(best.errors)
    found = problem.search(logs, noise)
    noise = _noise_of(found.errors)
    covariance = np.asarray(np.linalg.inv(found.curvature), dtype=np.float64)
    variation = block_variation(observations)
    draws, steps = (_DRAWS, _STEPS) if start is None else (_DRAWS_AGAIN, _STEPS_AGAIN)
    return Estimates(
        tuple(parameters),
        found.logs,
        covariance,
        _block_covariance(problem, found, covariance, noise, variation),
        noise,
        _run_noise(problem, found.logs, noise, variation),
        _draws(problem, found, noise, draws, steps),
        variation,
    )


def _parameters(observations: Sequence[TrialObservation]) -> list[Parameter]:
    roles = roles_of(observations[0].settings)
    mean_cpu = {
        role: float(np.mean(found))
        for role in roles
        if (found := [one.cpu_s[role] for one in observations if one.cpu_s.get(role, 0) > 0])
    }
    mean_link = {
        name: float(np.mean([one.link_s[name] for one in observations if name in one.link_s]))
        for name in dict.fromkeys(name for one in observations for name in one.link_s)
    }
    least_s = min(one.response_s for one in observations)
    known = sorted({one.settings for one in observations})
    return [*parameters_of(known, mean_cpu, least_s, mean_link), BATCHING, OVERHEAD]


def _noise_of(errors: Array) -> float:
    """Robust: the median absolute deviation, as if the errors were normal."""
    return max(_NOISE_MIN, 1.4826 * float(np.median(np.abs(errors))))


def _run_noise(problem: _Problem, logs: Array, noise: float, variation: BlockVariation) -> float:
    """Standard deviation of ln X (open loop: ln R) of a trial from the fit, without what its block has in common."""
    share = float(np.mean(problem.foreign))
    errors = problem.errors(logs[None, :], [share] * len(problem.foreign))[0]
    wanted = RESPONSE if problem.observations[0].settings.rate_per_s else RATE
    of_rates = errors[[kind == wanted for _, kind in problem.targets.owners]]
    if not of_rates.size:
        return noise
    blocks = keys_of(problem.observations)
    means = block_means(deviations(of_rates, _configurations(problem)), blocks)
    size = len(blocks) / max(variation.blocks, 1)
    kept = _shrinkage(variation, size)
    of_rates = of_rates - kept * np.array([means.get(key, 0.0) for key in blocks])
    return max(_NOISE_MIN, float(np.sqrt(np.mean(of_rates**2))))


def _configurations(problem: _Problem) -> list[ModelSettings]:
    return [one.settings for one in problem.observations]


def _shrinkage(variation: BlockVariation, size: float) -> float:
    """The part of a mean over the trials of a block that is the effect of the block."""
    whole = variation.known**2 + variation.trial**2 / size
    return variation.known**2 / whole if whole > 0 else 0.0


def _block_covariance(
    problem: _Problem, found: Minimum, covariance: Array, noise: float, variation: BlockVariation
) -> Array:
    """What the effects of blocks add to the covariance: measured ones, and a slower machine as the prior."""
    owners, blocks = problem.targets.owners, keys_of(problem.observations)
    of_errors = [blocks[place] for place, _ in owners]
    pulls = (weights_of(found.errors, noise)[:, None] * found.slopes) @ covariance
    slower = pulls * (math.sqrt(PRIOR_SHARE) * variation.trial * problem.targets.slower())[:, None]
    measured = np.zeros(len(owners))
    for kind in dict.fromkeys(kind for _, kind in owners):
        mine = np.array([one == kind for _, one in owners])
        places = [place for place, one in owners if one == kind]
        away = deviations(found.errors[mine], [problem.observations[place].settings for place in places])
        means = block_means(away, [blocks[place] for place in places])
        measured[mine] = [means.get(blocks[place], 0.0) for place in places]
    count = variation.blocks
    kept = _shrinkage(variation, len(blocks) / max(count, 1))
    measured *= math.sqrt(kept)
    # The mean of the blocks takes a part of their effects.
    scale = count / (count - 1) if count > 1 else 0.0
    return (
        PRIOR_FREEDOM * _by_block(slower, of_errors)
        + (count - 1) * scale * _by_block(pulls * measured[:, None], of_errors)
    ) / variation.freedom


def _by_block(pulls: Array, blocks: Sequence[object]) -> Array:
    """Covariance of the parameters from errors that are shared within blocks."""
    order = {key: place for place, key in enumerate(dict.fromkeys(blocks))}
    sums = np.zeros((len(order), pulls.shape[1]))
    np.add.at(sums, [order[key] for key in blocks], pulls)
    return sums.T @ sums


def _draws(problem: _Problem, found: Minimum, noise: float, count: int, steps: int) -> Draws:
    owners = problem.targets.owners
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(kind for _, kind in owners))}
    trials, columns = np.array([place for place, _ in owners]), np.array([kinds[kind] for _, kind in owners])
    table = np.full((len(problem.observations), len(kinds)), np.nan)
    table[trials, columns] = found.errors
    moved = resampled(table, keys_of(problem.observations), count, seed=1)[:, trials, columns]
    return fit_draws(
        lambda rows: problem.errors(rows, problem.foreign), found, problem.prior, noise, moved, steps, seed=2
    )
