"""Null arms and positive controls: declared in a specification, judged by the analysis, reported in the answer."""

import random

import pytest
from synthetic import Truth, write_trial

from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.run import create_run
from waylab.runfolder.files import read_run
from waylab.spec import read_spec

SPEC = """
name = "roles"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
server = "embedded"
[load]
clients = 4
sample = 1
test_time_s = 2.0
[system.proxy]
sample = 1
[factors.arm]
one = {}
slow = { service_time = "fixed:50us" }
[design]
blocks = 8
"""
NULL = '[[compare]]\nrole = "null"\nfactor = "arm"\nbaseline = "one"\nmetric = "response_mean_ns"\nmargin = 0.05\n'
CONTROL = '[[compare]]\nrole = "control"\nfactor = "arm"\nbaseline = "one"\ncandidate = "slow"\n'
ADDED = CONTROL + 'metric = "response_mean_ns"\nadded = "50us"\n'
RATIO = CONTROL + "ratio = 0.8\n"


def judged(tmp_path, again_factor=1.0, slow_ns=50_000.0):
    """Analyse a campaign with response times of 200 us and 1 % noise, multiplied and increased by the arguments."""
    path = tmp_path / "roles.toml"
    path.write_text(SPEC + NULL + ADDED + RATIO)
    directory = create_run(path, tmp_path / "results").directory
    for planned in read_run(directory).plan:
        arm = planned.levels["arm"]
        response_ns = 200_000.0 * (1 + 0.01 * random.Random(f"{planned.id}/1").uniform(-1, 1))
        response_ns *= again_factor if arm == "one-again" else 1.0
        response_ns += slow_ns if arm == "slow" else 0.0
        write_trial(directory, planned, Truth(throughput_per_s=4e9 / response_ns))
    return analyse(directory)


def test_the_null_arm_shows_no_difference_and_the_control_is_found(fake, tmp_path):
    analysis = judged(tmp_path)
    null, added, ratio = analysis.comparisons
    assert null.candidate == "one-again" and null.null.flagged is False
    assert null.overall.equivalent is True
    assert added.control.found and added.control.exact
    assert added.control.mean == pytest.approx(50_000, rel=0.05) and added.control.added == 50_000
    # 200 of 250 us.
    assert ratio.control.found and ratio.control.mean == pytest.approx(0.8, rel=0.01)
    said = "\n".join(analysis.facts)
    assert (
        "Null arm, response_mean_ns of one-again against one: the same thing under two names does not" in said
    )
    assert "the positive control was found: ratio 0.8" in said


def test_a_differing_null_arm_is_flagged_and_an_absent_effect_is_not_found(fake, tmp_path):
    null, added, ratio = judged(tmp_path, again_factor=1.1, slow_ns=0.0).comparisons
    assert null.null.flagged is True and "do not trust" in null.null.text
    assert added.control.found is False and ratio.control.found is False
    assert "was NOT found" in ratio.control.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONTROL, 'compare[0]: role = "control" needs either added = "50us"'),
        (CONTROL + 'added = "50us"', "compare[0].added: is a time, but throughput_per_s is not"),
        (CONTROL + "added = 50", "compare[0].added = 50: should be a duration such as 200us"),
        (CONTROL + "ratio = 1.0", "nothing was changed"),
        (ADDED.replace('"control"', '"effect"'), 'needs role = "control"'),
        (
            ADDED.replace('"control"', '"proof"'),
            "compare[0].role = 'proof': should be one of effect, null, control",
        ),
        (
            NULL + 'candidate = "slow"',
            "compare[0]: a null arm compares a level with itself, but one and slow differ",
        ),
        (NULL.replace('"one"', '"two"'), "compare[0].baseline = 'two': is not a level of arm"),
        (
            "[factors]\nclients = [1, 2]\n" + NULL.replace('"arm"', '"clients"').replace('"one"', "1"),
            "a null arm needs a factor with named levels",
        ),
    ],
)
def test_an_invalid_role_raises_one_line(tmp_path, text, message):
    path = tmp_path / "roles.toml"
    path.write_text((SPEC if "[factors]" not in text else SPEC.partition("[factors.arm]")[0]) + text)
    with pytest.raises(LabError) as caught:
        read_spec(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)
