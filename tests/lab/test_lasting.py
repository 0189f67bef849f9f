"""Errors of a configuration that last from block to block, and the warning that intervals are too narrow."""

import math

import numpy as np
import pytest
from honesty_shapes import lasting
from made import made_trial, without_use

from waylab.analysis.across.answer.lasting import narrow_intervals
from waylab.analysis.statistics.lasting import complete_blocks, lasting_errors
from waylab.errors import LabError


def independent(random, blocks, configurations):
    return 0.03 * random.normal(size=(blocks, configurations))


def test_lasting_errors_are_found_and_their_correlation_is_estimated():
    random = np.random.default_rng(2)
    found = [lasting_errors(lasting(random, 8, 16)) for _ in range(100)]
    assert sum(one.p < 0.05 for one in found) > 85
    assert np.mean([one.correlation for one in found]) == pytest.approx(0.5, abs=0.06)


def test_independent_errors_are_not_and_neither_is_a_drift_of_the_machine():
    random = np.random.default_rng(3)
    drift = np.cumsum(random.normal(0, 0.2, 8))[:, None]
    found = [lasting_errors(drift + independent(random, 8, 16)) for _ in range(200)]
    assert sum(one.p < 0.05 for one in found) <= 20
    assert np.median([one.correlation for one in found]) < 0.1


@pytest.mark.parametrize("shape", [(4, 16), (8, 1), (1, 1), (0, 0)])
def test_too_few_blocks_or_configurations_show_nothing(shape):
    assert lasting_errors(np.random.default_rng(1).normal(size=shape)) is None
    assert lasting_errors(np.ones((8, 8))) is None


def test_invalid_values_are_one_line():
    with pytest.raises(LabError, match="lasting errors: need finite values of shape"):
        lasting_errors([[1.0, math.nan]])


def test_incomplete_blocks_are_left_out():
    values = {(block, name): 2.0 for block in range(7) for name in "abc"}
    assert complete_blocks(values).shape == (7, 3)
    del values[3, "b"]
    assert complete_blocks(values).shape == (6, 3)
    for block in (1, 5):
        del values[block, "b"]
    assert complete_blocks(values).shape == (7, 2)


def trials(errors):
    return [
        made_trial({"clients": str(place)}, block=block, throughput_per_s=1000 * place * math.exp(error))
        for block, row in enumerate(errors, 1)
        for place, error in enumerate(row, 1)
    ]


def test_a_run_whose_errors_last_has_a_warning():
    (line,) = narrow_intervals(trials(lasting(np.random.default_rng(5), 8, 16)))
    assert line.startswith(
        "All intervals of this run may be too narrow, because the errors of a configuration last from block to block: "
        "throughput (correlation of neighbouring blocks 0."
    )
    assert narrow_intervals(trials(independent(np.random.default_rng(5), 8, 16))) == []


def test_trials_that_were_not_used_do_not_count():
    made = trials(lasting(np.random.default_rng(5), 8, 16))
    assert narrow_intervals([without_use(one) for one in made]) == [] == narrow_intervals([])
