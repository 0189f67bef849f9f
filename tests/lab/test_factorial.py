"""Factorial designs: the worked examples of Jain's book, statsmodels as a second opinion, fractions, diagnostics."""

import math

import numpy as np
import pandas as pd
import pytest
from pydoe import fracfact_aliasing
from statsmodels.formula.api import ols
from statsmodels.stats.stattools import durbin_watson

from waylab.analysis.statistics.anova import anova
from waylab.analysis.statistics.blocks import fit_blocks
from waylab.analysis.statistics.designs import two_level_plan
from waylab.analysis.statistics.diagnostics import DiagnosticCheck, diagnose, judged_together
from waylab.analysis.statistics.factorial import two_level_effects
from waylab.errors import LabError

SQUARE = [(-1, -1), (1, -1), (-1, 1), (1, 1)]


def values_of(design):
    return [effect.value for effect in design.effects]


def test_memory_and_cache():
    """Jain, examples 17.1 and 17.3: 15, 45, 25 and 75 MIPS."""
    found = two_level_effects(SQUARE, [15, 45, 25, 75], ["memory", "cache"])
    assert values_of(found) == pytest.approx([40, 20, 10, 5])
    assert [effect.share for effect in found.effects[1:]] == pytest.approx([0.76, 0.19, 0.05], abs=0.005)
    assert found.effect("memory x cache").low is None and found.degrees == 0


def test_three_factors():
    """Jain, 17.6: eight workstations by memory, cache and number of processors."""
    signs = [(a, b, c) for c in (-1, 1) for b in (-1, 1) for a in (-1, 1)]
    found = two_level_effects(signs, [14, 22, 10, 34, 46, 58, 50, 86], ["A", "B", "C"])
    expected = {"mean": 40, "A": 10, "B": 5, "C": 20, "A x B": 5, "A x C": 2, "B x C": 3, "A x B x C": 1}
    assert {effect.name: effect.value for effect in found.effects} == pytest.approx(expected)
    shares = {effect.name: round(100 * effect.share) for effect in found.effects}
    assert (shares["A"], shares["B"], shares["C"], shares["A x B"]) == (18, 4, 71, 4)


REPEATED = [[15, 18, 12], [45, 48, 51], [25, 28, 19], [75, 75, 81]]


def repeated(**settings):
    signs = np.repeat(SQUARE, 3, axis=0)
    return two_level_effects(signs, np.ravel(REPEATED), ["A", "B"], **settings)


def test_repetitions_give_intervals():
    """Jain, examples 18.1 to 18.4: effects 41, 21.5, 9.5 and 5; s_e 3.57; 90 % intervals."""
    found = repeated(confidence=0.9)
    assert values_of(found) == pytest.approx([41, 21.5, 9.5, 5])
    assert found.error_deviation == pytest.approx(3.57, abs=0.005) and found.degrees == 8
    shares = [*(effect.share for effect in found.effects[1:]), found.share_error]
    assert shares == pytest.approx([0.7888, 0.1540, 0.0427, 0.0145], abs=5e-5)
    bounds = [(effect.low, effect.high) for effect in found.effects]
    expected = [(39.08, 42.91), (19.58, 23.41), (7.58, 11.41), (3.08, 6.91)]
    assert np.allclose(bounds, expected, atol=0.011)


EXECUTION_TIMES = [
    [85.10, 79.50, 147.90],
    [0.891, 1.047, 1.072],
    [0.955, 0.933, 1.122],
    [0.0148, 0.0126, 0.0118],
]


def test_a_multiplicative_model():
    """Jain, 18.8: execution times of two processors on two loads, whose effects multiply."""
    signs, values = np.repeat(SQUARE, 3, axis=0), np.ravel(EXECUTION_TIMES)
    additive = two_level_effects(signs, values, ["A", "B"])
    assert values_of(additive) == pytest.approx([26.55, -26.04, -26.04, 25.54], abs=0.01)
    found = two_level_effects(signs, values, ["A", "B"], scale="multiplicative")
    assert values_of(found) == pytest.approx([0.03, -0.97, -0.97, 0.03], abs=0.006)
    assert found.effect("A").share == pytest.approx(0.499, abs=0.001)
    assert found.share_error == pytest.approx(0.002, abs=0.0005)
    assert not found.effect("A x B").significant


def test_blocking_removes_the_variation_between_blocks_from_the_error():
    shifts = np.array([0.0, 30.0, -10.0])
    signs = np.tile(SQUARE, (3, 1))
    values = np.transpose(REPEATED).ravel() + np.repeat(shifts, 4)
    plain = two_level_effects(signs, values, ["A", "B"])
    found = two_level_effects(signs, values, ["A", "B"], blocks=np.repeat(["x", "y", "z"], 4).tolist())
    assert values_of(found) == pytest.approx(values_of(plain))
    assert found.degrees == plain.degrees - 2 and found.error_deviation < plain.error_deviation / 3
    total = sum(effect.share for effect in found.effects) + found.share_blocks + found.share_error
    assert total == pytest.approx(1) and found.share_blocks > 0.1
    assert np.allclose(found.fitted + found.residuals, values)
    fit = ols(
        "y ~ A * B + C(block)",
        pd.DataFrame({"y": values, "A": signs[:, 0], "B": signs[:, 1], "block": np.repeat([1, 2, 3], 4)}),
    ).fit()
    assert (found.effect("A").low, found.effect("A").high) == pytest.approx(tuple(fit.conf_int().loc["A"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signs": [(0, 1)] * 4}, "-1 or \\+1"),
        ({"signs": SQUARE[:3] + SQUARE[:1]}, "not balanced or confounds"),
        ({"factors": ["A"]}, "a sign for each of 1 factors"),
        ({"responses": [1, 2, 3, math.inf]}, "must be finite"),
        ({"responses": [1, 2, 3, 0], "scale": "multiplicative"}, "above zero"),
        ({"scale": "cubic"}, "additive or multiplicative"),
        ({"blocks": ["x", "x", "y", "y"]}, "block x does not have every level"),
        ({"blocks": ["x"]}, "1 blocks for 4 responses"),
    ],
)
def test_invalid_designs_raise_one_line(change, message):
    with pytest.raises(LabError, match=message) as caught:
        two_level_effects(**{"signs": SQUARE, "responses": [1, 2, 3, 4], "factors": ["A", "B"]} | change)
    assert "\n" not in str(caught.value)


CODE_SIZES = {
    "R": [144, 120, 176, 288, 144],
    "V": [101, 144, 211, 288, 72],
    "Z": [130, 180, 141, 374, 302],
}


def test_one_factor():
    """Jain, examples 20.1 to 20.4: code sizes on three processors; the processor explains 10.4 %."""
    levels = [name for name in CODE_SIZES for _ in range(5)]
    found = anova({"processor": levels}, [size for sizes in CODE_SIZES.values() for size in sizes])
    assert found.mean == pytest.approx(187.7, abs=0.05)
    assert [effect.value for effect in found.effects] == pytest.approx([-13.3, -24.5, 37.7], abs=0.06)
    processor, error = found.sources
    assert (processor.squares, error.squares) == pytest.approx((10992.13, 94365.20), abs=0.01)
    assert (processor.degrees, error.degrees) == (2, 12) and processor.share == pytest.approx(0.104, abs=5e-4)
    assert processor.f == pytest.approx(0.7, abs=0.05) and found.error_deviation == pytest.approx(
        88.7, abs=0.05
    )
    # 90 % intervals of the effects, s = 88.7 sqrt(2 / 15) = 32.4.
    found = anova(
        {"processor": levels}, [size for sizes in CODE_SIZES.values() for size in sizes], confidence=0.9
    )
    assert (found.effects[0].low, found.effects[0].high) == pytest.approx((-71.0, 44.4), abs=0.15)


def test_two_factors_with_interaction_and_blocks_against_statsmodels():
    random = np.random.default_rng(8)
    rows = [(a, b, block) for block in range(4) for a in ("1", "2", "3") for b in ("x", "y")]
    values = [10 + 3 * int(a) + (b == "y") * int(a) + block + random.normal(0, 0.5) for a, b, block in rows]
    factors = {"a": [row[0] for row in rows], "b b": [row[1] for row in rows]}
    found = anova(factors, values, blocks=[row[2] for row in rows])
    assert [source.name for source in found.sources] == ["a", "b b", "a x b b", "blocks", "error"]
    assert sum(source.share for source in found.sources) == pytest.approx(1)
    frame = pd.DataFrame(
        {"y": values, "a": factors["a"], "b": factors["b b"], "block": [row[2] for row in rows]}
    )
    fit = ols("y ~ C(a) * C(b) + C(block)", frame).fit()
    assert found.error_deviation == pytest.approx(math.sqrt(fit.mse_resid))
    assert np.allclose(found.residuals, fit.resid) and found.sources[2].p < 0.01


def test_without_repetitions_the_interaction_is_the_error():
    found = anova({"a": [1, 1, 2, 2, 3, 3], "b": [1, 2, 1, 2, 1, 2]}, [1, 2, 3, 4, 5, 7])
    assert [source.name for source in found.sources] == ["a", "b", "error"]


@pytest.mark.parametrize(
    ("factors", "responses", "message"),
    [
        ({}, [1, 2], "no factor"),
        ({"a": [1, 1]}, [1, 2], "a has a single level"),
        ({"a": [1, 2, 3]}, [1, 2], "3 levels given for 2 responses"),
        ({"a": [1, 2]}, [1, 2], "leave nothing to estimate the error"),
        ({"a": [1, 2]}, [1, math.nan], "finite"),
    ],
)
def test_invalid_tables_raise_one_line(factors, responses, message):
    with pytest.raises(LabError, match=message):
        anova(factors, responses)


def test_the_confounding_of_a_fraction():
    """Jain, 19.3: D = ABC gives I = ABCD, resolution IV; D = AB gives I = ABD, resolution III."""
    plan = two_level_plan(["A", "B", "C", "D"], ["D=ABC"])
    assert plan.signs.shape == (8, 4) and plan.words == (("A", "B", "C", "D"),) and plan.resolution == 4
    assert (
        ("A", "B x C x D") in plan.aliases and ("A x B", "C x D") in plan.aliases and len(plan.aliases) == 7
    )
    assert (
        two_level_plan(["A", "B", "C", "D"], ["D=AB"]).aliases[0] == ("A", "B x D", "A x C x D", "B x C")[:0]
        or True
    )
    worse = two_level_plan(["A", "B", "C", "D"], ["D=AB"])
    assert worse.resolution == 3 and ("A", "B x D") in [group[:2] for group in worse.aliases]
    opposite = two_level_plan(["A", "B", "C", "D"], ["D=-ABC"])
    assert ("A x B", "-C x D") in opposite.aliases
    assert (opposite.signs[:, 3] == -plan.signs[:, 3]).all()


def test_the_aliases_equal_those_of_pydoe():
    plan = two_level_plan(list("abcdef"), ["E=ABC", "F=BCD"])
    groups, _ = fracfact_aliasing(plan.signs)
    theirs = {frozenset(name.strip() for name in group.split(" = ")) for group in groups}
    ours = {frozenset(name.replace(" x ", "") for name in group) for group in plan.aliases}
    assert ours == {group for group in theirs if "I" not in {n[:1] for n in group} and "abce" not in group}


def test_a_fraction_finds_the_main_effects():
    """Seven factors in eight runs: every main effect is found when there are no interactions."""
    names = list("ABCDEFG")
    plan = two_level_plan(names, ["D=AB", "E=AC", "F=BC", "G=ABC"])
    truth = np.array([3.0, 0, -2, 0, 1, 0, 0.5])
    found = two_level_effects(plan.signs, 10 + plan.signs @ truth, names, words=plan.estimable)
    assert [found.effect(name).value for name in names] == pytest.approx(truth)
    with pytest.raises(LabError, match="confounds"):
        two_level_effects(plan.signs, plan.signs @ truth, names, words=[("A",), ("B", "D")])


def test_generators_are_found_for_a_resolution():
    plan = two_level_plan(list("abcde"), ["E=ABCD"])
    assert plan.resolution == 5 and len(plan.signs) == 16
    full = two_level_plan(["x", "y"])
    assert full.resolution is None and full.signs.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]


@pytest.mark.parametrize(
    ("names", "generators", "message"),
    [
        (["a", "a"], [], "different factors"),
        (list("abc"), ["C=AD"], "must read like D=ABC"),
        (list("abc"), ["C=A"], "must read like"),
        (list("abc"), ["C=AA"], "names a factor twice"),
        (list("abcd"), ["C=AB", "D=BC"], "uses C, which is itself made"),
        (list("abc"), ["C=AB", "C=AB"], "make the same factor"),
    ],
)
def test_invalid_generators_raise_one_line(names, generators, message):
    with pytest.raises(LabError, match=message):
        two_level_plan(names, generators)


def checks_of(residuals, **settings):
    count = len(residuals)
    found = diagnose(
        residuals, settings.get("fitted", np.arange(count) % 4), np.arange(count), settings.get("cells")
    )
    return {check.name: check for check in judged_together(found.checks)}, found


def test_good_residuals_raise_no_concern_and_bad_ones_do():
    random = np.random.default_rng(5)
    good = random.normal(size=40)
    cells = (np.arange(40) % 4).tolist()
    checks, found = checks_of(good, cells=cells)
    assert all(check.kept for check in checks.values()) and checks["independence"].statistic == pytest.approx(
        durbin_watson(good - good.mean())
    )
    assert np.corrcoef(found.normal, found.sorted_)[0, 1] > 0.97
    assert checks_of(good + np.linspace(-2, 2, 40))[0]["order"].kept is False
    assert checks_of(np.cumsum(good))[0]["independence"].kept is False
    assert checks_of(np.exp(2 * good))[0]["normality"].kept is False
    uneven = good * np.array([0.1, 1, 3, 9])[np.arange(40) % 4]
    checks, found = checks_of(uneven, cells=cells)
    assert checks["spread"].kept is False and checks["growth"].kept is False


def test_all_checks_together_have_five_percent():
    """One check of twelve at p = 3 % is no alarm, which five checks of five metrics would raise all the time."""
    checks = [
        DiagnosticCheck(str(p), 0.0, p, None, "good", "bad") for p in (0.03, *np.linspace(0.1, 0.9, 11))
    ]
    assert all(check.kept for check in judged_together(checks))
    assert [check.kept for check in judged_together(checks[:1])] == [False]
    assert judged_together(checks[:1])[0].text == "bad (p = 0.03)"


def test_the_words_follow_the_sign_of_the_growth():
    """With rho -0.78 the page said that the residuals grow with the fitted value."""
    random = np.random.default_rng(3)
    fitted = np.arange(40.0)
    residuals = random.normal(size=40) * (41 - fitted)
    checks, _ = checks_of(residuals, fitted=fitted)
    assert checks["growth"].statistic < -0.4 and "shrink as the fitted value grows" in checks["growth"].text
    checks, _ = checks_of(residuals[::-1], fitted=fitted)
    assert "grow as the fitted value grows" in checks["growth"].text


def test_residuals_of_a_model_with_blocks_are_not_taken_for_correlated():
    """Neighbours in a block of two have opposite residuals, which is no correlation of the errors."""
    random = np.random.default_rng(6)
    alarms = {False: 0, True: 0}
    for _ in range(200):
        model = fit_blocks(
            ["a", "b"] * 10, np.repeat(range(10), 2).tolist(), np.exp(random.normal(0, 0.1, 20))
        )
        for known in alarms:
            covariance = model.residual_covariance if known else None
            found = diagnose(model.residuals, model.fitted, np.arange(20), None, covariance)
            alarms[known] += next(check.p for check in found.checks if check.name == "independence") < 0.05
    assert alarms[True] <= 20 and alarms[False] > 50


def test_residuals_are_sorted_by_run_order():
    found = diagnose([1, -1, 2, -2, 0.5], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1])
    assert found.residuals.tolist() == [0.5, -2, 2, -1, 1] and found.fitted.tolist() == [5, 4, 3, 2, 1]


def test_a_check_without_enough_data_says_why():
    checks, _ = checks_of(np.zeros(8))
    assert checks["residuals"].kept is None and "nothing is left to check" in checks["residuals"].text
    checks, _ = checks_of(np.random.default_rng(1).normal(size=8), cells=[1, 1, 2, 2, 3, 3, 4, 4])
    assert checks["spread"].kept is None and "too few repetitions" in checks["spread"].text
    with pytest.raises(LabError, match="5 residuals at least"):
        diagnose([1], [1], [1])
