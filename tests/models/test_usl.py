"""The Universal Scalability Law: a published fit, laws that are found again, intervals, and bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waylab.models import ModelError, Usl, fit_usl
from waylab.models.summary.usl import explain_usl

# SPEC SDM91 on a Sun SPARCcenter (Gunther, Guerrilla Capacity Planning, 2007; `specsdm91` in R's package `usl`).
CLIENTS = (1, 18, 36, 72, 108, 144, 216)
THROUGHPUT = (64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2)
SIZES = np.array([1, 2, 4, 8, 16, 32, 64])


def runs(law, noise=0.0, repeats=1, seed=5):
    sizes = np.repeat(SIZES, repeats)
    random = np.random.default_rng(seed).normal(1, noise, sizes.size)
    return sizes, np.array([law.throughput_per_s(size) for size in sizes]) * random


def test_the_published_fit():
    """R's `usl` from version 2 on, all three by nonlinear least squares: gamma 89.995, alpha .0277, beta .000104.

    Its older versions divide by the throughput of one client first and fit the other two: other numbers.
    """
    fit = fit_usl(CLIENTS, THROUGHPUT, samples=0)
    assert fit.law.gamma == pytest.approx(89.995, abs=6e-4)
    assert fit.law.alpha == pytest.approx(0.0277, abs=6e-5)
    assert fit.law.beta == pytest.approx(0.000104, abs=6e-7)
    assert fit.law.peak_clients == pytest.approx(96.52, abs=0.01)
    assert 0.98 < fit.r_squared < 1 and not fit.warnings


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(0, 0.9), st.floats(0, 0.05))
def test_a_law_is_found_again(gamma, alpha, beta):
    law = fit_usl(*runs(Usl(gamma, alpha, beta)), samples=0).law
    assert law.gamma == pytest.approx(gamma, rel=1e-5)
    assert law.alpha == pytest.approx(alpha, rel=1e-4, abs=1e-5)
    assert law.beta == pytest.approx(beta, rel=1e-4, abs=1e-6)


def test_the_peak_is_the_highest_point():
    law = Usl(1000.0, 0.05, 2e-4)
    peak = law.peak_clients
    assert peak == pytest.approx(math.sqrt(0.95 / 2e-4))
    assert law.peak_throughput_per_s >= max(law.throughput_per_s(n) for n in (peak - 1, peak + 1, 1, 500))


def test_without_coherency_there_is_no_peak_but_a_limit():
    assert Usl(100.0, 0.1, 0.0).peak_clients is None
    assert Usl(100.0, 0.1, 0.0).peak_throughput_per_s == pytest.approx(1000.0)
    assert Usl(100.0, 0.0, 0.0).peak_throughput_per_s is None
    assert Usl(100.0, 0.0, 0.0).throughput_per_s(7) == pytest.approx(700.0)
    assert Usl(100.0, 1.0, 0.5).peak_clients == 1.0


def test_alpha_and_beta_are_never_negative():
    """Throughput that grows faster than the clients, which the law cannot describe."""
    law = fit_usl(SIZES, SIZES**1.2, samples=0).law
    assert law.alpha == 0 and law.beta == 0


def test_weights_say_which_runs_to_believe():
    sizes, rates = runs(Usl(100.0, 0.05, 1e-3))
    rates[-1] *= 2
    believed = fit_usl(sizes, rates, samples=0).law
    doubted = fit_usl(sizes, rates, [1, 1, 1, 1, 1, 1, 1e-9], samples=0).law
    assert doubted.beta == pytest.approx(1e-3, rel=1e-3) and abs(believed.beta / 1e-3 - 1) > 0.3


def test_intervals_cover_the_true_law_about_as_often_as_nominal():
    law, covered = Usl(1000.0, 0.03, 5e-4), 0
    for seed in range(20):
        fit = fit_usl(*runs(law, 0.03, 5, seed), samples=30, seed=seed)
        low, high = fit.throughput_interval_per_s(48, 0.9)
        covered += low <= law.throughput_per_s(48) <= high
    assert 13 <= covered <= 20


def test_the_same_seed_gives_the_same_intervals():
    data = runs(Usl(1000.0, 0.03, 5e-4), 0.05, 3)
    first, again, other = (fit_usl(*data, samples=20, seed=seed) for seed in (1, 1, 2))
    assert first.interval("alpha") == again.interval("alpha") != other.interval("alpha")
    low, high = first.interval("gamma", 0.5)
    assert low <= high and first.interval("gamma", 0.95)[0] <= low


def test_few_sizes_and_far_predictions_are_marked():
    few = fit_usl([1, 2, 4, 8], [10, 18, 30, 40], samples=0)
    assert "only 4 different numbers of clients; 6 at least are wanted" in few.warnings
    fit = fit_usl(CLIENTS, THROUGHPUT, samples=0)
    assert not fit.extrapolates(432) and fit.extrapolates(433)
    assert any("no peak" in warning for warning in fit_usl(SIZES, 100.0 * SIZES, samples=0).warnings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1, 2]), "3 different values at least for three parameters, not 2"),
        (([1, 1, 2, 2], [1, 1, 2, 2]), "3 different values at least"),
        (([1, 2, 3], [1, 2]), "one entry per run"),
        (([0, 2, 3], [1, 2, 3]), r"clients\[0\]: must be finite and at least 1"),
        (([1, 2, math.inf], [1, 2, 3]), r"clients\[2\]: must be finite"),
        (([1, 2, 3], [1, 0, 3]), r"throughput_per_s\[1\]: must be finite and above 0"),
        (([1, 2, 3], [1, math.nan, 3]), r"throughput_per_s\[1\]: must be finite and above 0"),
        (([1, 2, 3], [1, 2, 3], [1, -1, 1]), r"weights\[1\]: must be finite and above 0"),
    ],
)
def test_invalid_runs_are_refused(arguments, message):
    with pytest.raises(ModelError, match=message):
        fit_usl(*arguments)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Usl(0, 0, 0), "gamma: must be a finite rate > 0"),
        (lambda: Usl(1, 1.1, 0), "alpha: must lie between 0 and 1"),
        (lambda: Usl(1, math.nan, 0), "alpha: must lie between 0 and 1"),
        (lambda: Usl(1, 0, -1), "beta: must be finite and >= 0"),
        (lambda: Usl(1, 0, 0).throughput_per_s(0), "clients: must be at least 1"),
        (lambda: fit_usl(CLIENTS, THROUGHPUT, samples=0).interval("alpha"), "made without resampling"),
        (lambda: fit_usl(CLIENTS, THROUGHPUT, samples=2).interval("sigma"), "is none of gamma, alpha, beta"),
        (
            lambda: fit_usl(CLIENTS, THROUGHPUT, samples=2).interval("beta", 1.0),
            "share: must lie between 0 and 1",
        ),
    ],
)
def test_invalid_queries_are_refused(ask, message):
    with pytest.raises(ModelError, match=message):
        ask()


def test_a_fit_without_serial_work_names_no_limit():
    found = replace(fit_usl(CLIENTS, THROUGHPUT, samples=0), law=Usl(100.0, 0.0, 0.0))
    text = " ".join(explain_usl(found))
    assert "No work is found to be serial" in text and "any limit" not in text
