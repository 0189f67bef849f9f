"""Whether the level of a series changes after its warm-up."""

import numpy as np
import pytest
from honesty import autoregressive

from waylab.analysis.statistics.level import level_change
from waylab.analysis.statistics.steady_state import judge, latest
from waylab.errors import LabError


def noise(values, seed=1, phi=0.0):
    return 100 + autoregressive(np.random.default_rng(seed), 1, values, phi)[0]


@pytest.mark.parametrize(("place", "shape"), [(0.6, "step"), (0.8, "step")])
@pytest.mark.parametrize("values", [40, 60, 300])
def test_a_late_step_is_found_at_its_place(values, place, shape):
    step = round(place * values)
    found = judge(noise(values) + 10 * (np.arange(values) >= step))
    assert found.steady is False and found.cut == 0 and found.change.shape == shape
    assert found.values - found.change.values + found.change.at == pytest.approx(step, abs=values // 60)
    assert found.change.size == pytest.approx(10 / 103, rel=0.15)


@pytest.mark.parametrize("values", [40, 60, 300])
def test_a_drift_is_found(values):
    found = judge(noise(values, seed=2) - np.linspace(-6, 6, values))
    assert found.steady is False and found.change.shape == "drift"
    assert found.change.size == pytest.approx(-0.12, abs=0.02)


def test_a_change_within_the_limit_is_not_reported():
    values = 100 + 0.1 * (noise(60) - 100) + 4 * (np.arange(60) >= 40)
    change = level_change(values)
    assert change.statistic > 3 * change.critical and not change.larger_than(0.05)
    assert judge(values).steady is True


def test_a_large_change_that_chance_explains_is_not_reported():
    change = level_change(noise(40, seed=3, phi=0.9) + 20 * np.sin(np.arange(40)))
    assert abs(change.size) > 0.02 and not change.larger_than(0.02)


@pytest.mark.parametrize("warm_up", [12, 18])
def test_a_warm_up_of_less_than_a_third_is_cut(warm_up):
    found = judge(noise(60) - 30 * (np.arange(60) < warm_up))
    assert found.steady is True and warm_up <= found.cut <= warm_up + 10 and found.change is None


def test_an_exponential_warm_up_is_cut():
    found = judge(noise(120) - 40 * np.exp(-np.arange(120) / 10))
    assert found.steady is True and 20 <= found.cut <= 60


def test_a_warm_up_of_half_the_series_is_no_steady_state():
    values = np.concatenate([np.linspace(40, 100, 60), np.full(40, 100.0)])
    found = judge(values + 0.1 * (noise(100) - 100))
    assert found.steady is False and found.change.size > 0.3


def test_a_step_after_a_warm_up_is_found():
    values = noise(200) - 50 * (np.arange(200) < 20) + 8 * (np.arange(200) >= 120)
    assert judge(values).steady is False


def test_a_series_of_less_than_forty_values_is_not_called_steady():
    found = judge(noise(39))
    assert found.steady is None and found.refused.startswith("too short: 39 values, and it takes 40")
    assert judge(noise(30) + 20 * (np.arange(30) >= 20)).steady is False
    found = judge([1.0, 2.0])
    assert found.steady is None and found.cut == 0 and "too short: 2 values" in found.refused


def test_a_constant_series_is_steady():
    assert judge([7.0] * 40).steady is True and judge([0.0] * 40).steady is True


def test_the_last_of_several_series_decides():
    random = np.random.default_rng(5)
    steady_from = {
        cut: np.where(np.arange(100) < cut, 5.0, 10.0) + random.normal(0, 0.1, 100) for cut in (10, 30)
    }
    assert latest({"early": steady_from[10], "late": steady_from[30]})[1] == "late"
    found, name = latest({"late": steady_from[30], "never": np.linspace(1, 50, 100), "short": [1.0]})
    assert name == "never" and found.steady is False


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: latest({}), "no series to judge"),
        (lambda: level_change([1.0] * 19), "needs 20 finite values"),
        (lambda: level_change([np.nan] * 30), "needs 20 finite values"),
        (lambda: level_change([0.0] * 30), "mean above zero"),
    ],
)
def test_invalid_input_raises_one_line(call, message):
    with pytest.raises(LabError, match=message):
        call()
