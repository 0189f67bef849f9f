"""Intervals of predictions where the truth is known: blocks that differ, and configurations beyond the calibration."""

import dataclasses

import numpy as np
import pytest
from known_runs import measured, settings
from prediction_honesty import BEYOND_PART, INSIDE_PART, Run, coverage

from waylab.fit.layered import LayeredModel, fitting
from waylab.fit.layered.bootstrap import curvature_ratio, resampled
from waylab.fit.layered.fitting import estimate
from waylab.fit.observations.blocks import PRIOR_SHARE, block_variation
from waylab.predict.runs import fit_runs, judge_runs


@pytest.fixture(scope="module")
def differing_blocks():
    """Three blocks that differ by 6 %, and trials that differ by 2 %."""
    random = np.random.default_rng(4)
    return [
        measured(settings(clients, servers), random, 0.02, block=block, slower=0.06 * (block - 1))
        for block in range(3)
        for servers in (1, 3)
        for clients in (2, 8, 32)
    ]


def test_intervals_contain_a_later_trial_although_blocks_differ():
    """All configurations share the blocks, so that errors inside the calibration set do not show their effect."""
    found = coverage(Run(0.02, 0.05, 6), 12)
    assert found[INSIDE_PART].predictions == 24 and found[BEYOND_PART].predictions == 60
    both = [sum(one.throughputs for one in found.values()), sum(one.responses for one in found.values())]
    # The seven of a run share the effects of its blocks, so that the share of twelve runs varies much.
    assert all(count / 84 >= 0.72 for count in both)


def test_the_variation_of_blocks_is_told_from_that_of_trials():
    known, _ = Run(0.02, 0.05, 60).made(0)
    found = block_variation(known)
    assert found.trial == pytest.approx(0.02, rel=0.15)
    assert found.block == pytest.approx(0.05, rel=0.25)
    assert found.blocks == 60 and found.half == pytest.approx(1.67, abs=0.02)
    alike = block_variation(Run(0.02, 0.0, 60).made(0)[0])
    assert alike.block < 0.006


def test_one_block_leaves_the_variation_of_blocks_to_the_prior():
    random = np.random.default_rng(1)
    known = [measured(settings(count, 1), random, 0.02, block=1) for count in (2, 2, 8, 8, 32, 32)]
    found = block_variation(known)
    assert found.blocks == 1 and found.known == 0
    assert found.block == pytest.approx(PRIOR_SHARE**0.5 * found.trial)
    alone = block_variation(known[::2])
    assert (alone.trial, alone.block) == (0, 0)


def test_trials_that_do_not_show_the_variation_of_blocks_are_flagged(differing_blocks):
    def flags(trials):
        found = fit_runs(trials, models=[LayeredModel()]).unidentified
        return [text for text in found if text.startswith("variation between blocks: ")]

    once = [one for one in differing_blocks if one.block == 0]
    (text,) = flags(once)
    assert "no configuration was measured twice" in text and text.endswith("; measure a second block")
    # Each configuration twice, in one block.
    (text,) = flags(once + [dataclasses.replace(one, block=0) for one in differing_blocks if one.block == 1])
    assert "its prior decides" in text and text.endswith("; measure all configurations in several blocks")
    assert flags(differing_blocks) == []


def test_trials_of_the_same_blocks_need_no_room_for_the_effects_of_blocks(differing_blocks):
    fitted = fit_runs(differing_blocks, models=[LayeredModel()])
    same = fitted.predict(settings(16, 3), 3, same_blocks=True).throughput_per_s
    later = fitted.predict(settings(16, 3), 3).throughput_per_s
    assert same.value == later.value
    assert np.log(later.high / later.value) > 1.5 * np.log(same.high / same.value)


def test_the_judge_knows_whether_held_out_trials_share_the_blocks(differing_blocks):
    random = np.random.default_rng(2)

    def width(block: int) -> float:
        held = measured(settings(16, 3), random, 0.0, "held-out", block=block)
        known = [dataclasses.replace(one, role="calibration") for one in differing_blocks]
        _, judged = judge_runs([*known, held])
        found = next(one for one in judged if one.model == "layered").predicted
        return found.throughput_per_s.high / found.throughput_per_s.low

    assert np.log(width(1000)) > 1.5 * np.log(width(0))


def test_effects_of_blocks_widen_the_fit_and_not_the_spread_of_trials(differing_blocks):
    layered = LayeredModel().fit(differing_blocks)
    within, of_blocks = layered.spreads(settings(16, 3))
    # A third of the variance of a block, because three blocks were measured.
    assert of_blocks[0] == pytest.approx(layered.estimates.variation.block / 3**0.5, rel=0.6)
    assert within[0] < of_blocks[0]
    assert layered.run_noise < 0.035


def test_draws_of_a_bootstrap_keep_what_trials_of_a_block_share():
    residuals = np.array([[1.0], [1.1], [-1.0], [-1.1]])
    found = resampled(residuals, ["a", "a", "b", "b"], 50, seed=1)
    assert found.shape == (50, 4, 1)
    assert (np.sign(found[:, 0, 0]) == np.sign(found[:, 1, 0])).all()
    assert {tuple(row) for row in np.sign(found[:, [0, 2], 0]).tolist()} == {
        (1, 1),
        (1, -1),
        (-1, 1),
        (-1, -1),
    }


def test_draws_are_fitted_through_the_solver(differing_blocks):
    """Where the model is linear, a draw that is fitted agrees with its linear form; its spread is that of the fit."""
    found = estimate(differing_blocks)
    layered = LayeredModel().fit(differing_blocks)
    draws = found.draws
    assert draws.exact.shape == draws.linear.shape == (32, len(found.logs))
    one = settings(16, 3)
    rates = np.log(layered.solve([one] * 32, logs=draws.exact).throughput_per_s)
    slopes = layered.slopes(one)[0]
    linear = (draws.linear - found.logs) @ slopes
    fitted = rates - np.log(layered.solve([one]).throughput_per_s[0])
    assert np.corrcoef(linear, fitted)[0, 1] > 0.8
    assert 0.3 < fitted.std() / np.hypot(*[part[0] for part in layered.spreads(one)]) < 3


def test_draws_that_reach_further_than_their_linear_form_widen_the_interval():
    linear = np.linspace(-1, 1, 41)[:, None]
    assert curvature_ratio(linear, linear)[0] == pytest.approx(1)
    assert curvature_ratio(np.exp(linear) - 1, linear)[0] > 1.2
    assert curvature_ratio(np.full_like(linear, np.nan), linear)[0] == 3
    assert curvature_ratio(linear, np.zeros_like(linear))[0] == 1


def test_the_bootstrap_costs_at_most_as_much_as_the_fit(differing_blocks, monkeypatch):
    """In networks solved: the CPU time grows with their number."""
    solved = []
    solver = fitting.solve_cycles
    monkeypatch.setattr(fitting, "solve_cycles", lambda nets: solved.append(len(nets)) or solver(nets))
    first = estimate(differing_blocks)
    whole = sum(solved)
    solved.clear()
    monkeypatch.setattr(fitting, "_STEPS", 0)
    estimate(differing_blocks)
    assert sum(solved) < whole <= 2 * sum(solved)
    monkeypatch.undo()
    assert first.draws.exact.shape[0] == 32
