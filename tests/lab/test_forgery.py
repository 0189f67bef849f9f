"""Every value of a real run folder is forged, one at a time; the manifests show each of them.

`WAYSTAGE_FORGERIES=all` forges every value; without it, every 40th forgery is tried.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from forgery import forgeries
from test_end_to_end import SPEC

from waylab.analysis import analyse, analyse_trial, read_analysis
from waylab.errors import LabError
from waylab.predict import predict, read_predictions
from waylab.runfolder import paths
from waylab.runfolder.files import read_run

ALL = os.environ.get("WAYSTAGE_FORGERIES") == "all"
STEP = 1 if ALL else 40
# A busy machine disturbs single trials.
_ATTEMPTS = 3


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run of one trial with the real program, or the run folder that WAYSTAGE_FORGED_RUN names."""
    given = os.environ.get("WAYSTAGE_FORGED_RUN")
    if given:
        copy = shutil.copytree(given, tmp_path_factory.mktemp("forged") / "run")
        analyse(copy)
        predict(copy)
        return copy
    for _ in range(_ATTEMPTS):
        directory, reasons = measured(tmp_path_factory.mktemp("forged"))
        if not reasons:
            return directory
    return pytest.skip(f"not one of {_ATTEMPTS} trials passed its gates on this machine: {reasons}")


def measured(place):
    spec = place / "spec.toml"
    text = SPEC.format(kind="proxy", count=2, service_time="none")
    for old, new in {"[1, 4]": "[2]", "blocks = 2": "blocks = 1", "law_max = 0.1": "law_max = 0.5"}.items():
        text = text.replace(old, new)
    spec.write_text(text)
    command = [sys.executable, "-m", "waylab", "run", str(spec), "--results", str(place / "results")]
    subprocess.run(command, capture_output=True, timeout=180, check=False)
    (directory,) = (place / "results").iterdir()
    return directory, read_analysis(directory).trials[0].reasons


@pytest.fixture
def copied(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def is_used(run_folder, planned):
    found = analyse_trial(run_folder, planned.id)
    assert all("\n" not in reason for reason in found.content.reasons)
    return found.used


def test_without_new_hashes_every_change_of_a_trial_is_noticed(copied):
    planned = read_run(copied).plan[0]
    directory = paths.trial_directory(copied, planned.id)
    for name in (paths.TRIAL, paths.LOAD, paths.MANIFEST):
        path = directory / name
        text = path.read_bytes()
        for forgery in list(forgeries(json.loads(text)))[:: 8 * STEP]:
            path.write_bytes(forgery.content)
            try:
                assert not is_used(copied, planned), (name, forgery.place, forgery.kind)
            except LabError as error:
                assert "\n" not in str(error)
        path.write_bytes(text)


def test_every_change_of_what_was_computed_is_refused(copied):
    """The plan, the environment and the results: a report refuses them, whatever was changed."""
    for name in (paths.RUN, paths.ENVIRONMENT, paths.ANALYSIS, paths.PREDICTIONS):
        path = copied / name
        text = path.read_bytes()
        for forgery in list(forgeries(json.loads(text)))[:: STEP * (4 if name == paths.ANALYSIS else 1)]:
            path.write_bytes(forgery.content)
            with pytest.raises(LabError) as caught:
                read_analysis(copied)
                read_predictions(copied)
            assert "\n" not in str(caught.value), (name, forgery.place, forgery.kind)
        path.write_bytes(text)
    (copied / paths.MANIFEST).unlink()
    with pytest.raises(
        LabError, match="an older version analysed this run; compute it again with: waylab analyse"
    ):
        read_analysis(copied)
