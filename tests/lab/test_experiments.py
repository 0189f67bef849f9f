"""The experiments that come with the project: valid, and as long as they say."""

from pathlib import Path

import pytest

from waylab.plan import make_plan
from waylab.spec import read_spec
from waylab.spec.factors import setting_keys
from waylab.spec.hosts import HostSettings, Placement, TestbedSettings
from waylab.spec.schema import Compare, Design, Gates, Load, Prediction, Scale, Stopping, System

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
LONGEST_S = {"demo": 120, "smoke": 20, "calibrate": 420, "overhead": 420, "baseline-network": 300}


def test_there_are_experiments():
    assert set(LONGEST_S) <= {path.stem for path in EXPERIMENTS.rglob("*.toml")}


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.toml")), ids=lambda path: path.stem)
def test_the_experiment_is_valid_and_not_too_long(path):
    spec = read_spec(path)
    assert spec.name == path.stem
    assert make_plan(spec).expected_s <= LONGEST_S[path.stem]


def test_the_demonstration_shows_every_key():
    text = (EXPERIMENTS / "demo.toml").read_text()
    keys = setting_keys(("system", System), ("load", Load), ("design", Design), ("gates", Gates))
    keys += setting_keys(("testbed", TestbedSettings), ("hosts", HostSettings), ("placement", Placement))
    keys += setting_keys(
        ("stopping", Stopping), ("predict", Prediction), ("scale", Scale), ("compare", Compare)
    )
    keys = [key for key in keys if key not in ("testbed.hosts", "scale.levels")]
    assert [key for key in keys if f"{key.rsplit('.', 1)[1]} = " not in text] == []
