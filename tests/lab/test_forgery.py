"""Every value of a real run folder is forged, one at a time, with the hashes that a forger would write beside it.

Each forgery must be refused in one line, or the trial is not used, or nothing that the lab reads differs, or the value
is in the list below and no result of the trial changes. `WAYSTAGE_FORGERIES=all` forges every value (ten minutes),
`WAYSTAGE_FORGERIES=8` every 8th; without it, every 40th forgery is tried. `WAYSTAGE_FORGED_RUN` names another run
folder, for example one of a message service.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import msgspec
import pytest
from forgery import forgeries
from test_end_to_end import SPEC

from waylab.analysis import analyse, analyse_trial, read_analysis
from waylab.errors import LabError
from waylab.predict import predict, read_predictions
from waylab.runfolder import paths
from waylab.runfolder.files import FILES, read, read_run, write
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.manifest import hashes, manifest
from waylab.runfolder.trial import TrialOutcome

_TRIED = os.environ.get("WAYSTAGE_FORGERIES", "40")
STEP = 1 if _TRIED == "all" else int(_TRIED)
# A busy machine disturbs single trials.
_ATTEMPTS = 3

# Values that the lab reads and from which no number derives, with the reason.
DERIVES_NOTHING = {
    r"trial\.json started_unix_s": "the wall clock; durations use the monotonic clock",
    r"trial\.json processes.*": "names, commands and numbers of processes are a description; exit codes are checked",
    r"trial\.json testbed.*": "on this machine as it is, without links, a description",
    r"trial\.json (before|after)\..*": "the load of the machine is shown; the gates use the telemetry",
    r"trial\.json (before|after)": "a trial without them has one check less",
    r"trial\.json manifest": "the manifest itself is there and is checked",
    r"trial\.json clock_step_s": "only whether it exceeds the limit of its gate counts",
    r"trial\.json database\.(version|file_system|command.*)": "a description",
    r"trial\.json server": "null where a system has no servers behind it",
    r"load\.json started_unix_ns": "the wall clock aligns the seconds of several load generators only",
    r"load\.json settings.*": "a setting that is missing is not compared; the analysis uses the plan",
    r"load\.json totals\.(keys|requests_answered|unsent|achieved_share)": "null for other loads; open loops need them",
    r"load\.json totals\.completed": "without it, the requests of the window are the completed ones",
    r"load\.json totals\.(sent|received)_bytes": "checked with operations.all, where it is",
    r"load\.json operations\.(messages\.)?[\w-]+\.(hits|misses|sent_bytes|received_bytes)": "null is not compared",
    r"load\.json operations\.(get|set)(\..*)?": "a message service has operations of its own",
    r"load\.json seconds\[\]\.(errors|mean_ns|sum_ns|p99_ns)": "each of them is compared with the others",
    r"load\.json seconds\[\]\.histograms\.\w+": "an empty histogram is the same as none",
    r"load\.json seconds": "the last second lies beyond the window",
    r"load\.json (started_clock_ns|cpu\.polled_s)": "null for an older load generator, which has one check less",
    r"load\.json messages\.drained": "null for an older load generator, which has one check less",
    r"load\.json verification\.(checked|unjudged)": "only the text of a gate shows them; wrong values count",
}
# Values from which results derive and which nothing within the trial is compared with. docs/life-of-an-experiment.md
# names them.
COMPARED_WITH_NOTHING = {
    r"trial\.json accounting\..*": "compared with the other trials of the run by `waylab analyse`",
    r"trial\.json database\.(before|after)\.\w+": "only PostgreSQL counts them",
}


# Two load generators of one trial on this machine.
SEVERAL = '[testbed.hosts]\nhere = {}\n[assignment]\nload = ["here", "here"]\n'


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run of one trial with the real program, or the run folder that WAYSTAGE_FORGED_RUN names."""
    given = os.environ.get("WAYSTAGE_FORGED_RUN")
    if given:
        copy = shutil.copytree(given, tmp_path_factory.mktemp("forged") / "run")
        analyse(copy)
        predict(copy)
        return copy
    return used(tmp_path_factory)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A run of one trial with two load generators."""
    return used(tmp_path_factory, SEVERAL)


def used(tmp_path_factory, extra=""):
    """Measure until a trial is used; a busy machine may start two load generators too far apart."""
    for _ in range(_ATTEMPTS):
        directory, reasons = measured(tmp_path_factory.mktemp("forged"), extra)
        if not reasons:
            return directory
    return pytest.fail(f"not one of {_ATTEMPTS} trials passed its gates: {reasons}")


def measured(place, extra=""):
    spec = place / "spec.toml"
    text = SPEC.format(kind="proxy", count=2, service_time="none")
    # The test needs a trial that is used, however busy the machine is. What a gate finds is tested elsewhere.
    for old, new in {"[1, 4]": "[2]", "blocks = 2": "blocks = 1", "law_max = 0.1": "law_max = 10.0"}.items():
        assert old in text
        text = text.replace(old, new)
    text = text.replace("[gates]", "[gates]\ndropped_records_max = 1000000")
    spec.write_text(text + extra)
    command = [sys.executable, "-m", "waylab", "run", str(spec), "--results", str(place / "results")]
    subprocess.run(command, capture_output=True, timeout=500, check=False)
    (directory,) = (place / "results").iterdir()
    return directory, read_analysis(directory).trials[0].reasons


@pytest.fixture
def copied(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def results_of(run_folder, planned):
    """Return whether a trial is used, and its numbers; texts of gates may name values that nothing derives from."""
    found = analyse_trial(run_folder, planned.id)
    assert all("\n" not in reason for reason in found.content.reasons)
    curves = {name: histogram.encode() for name, histogram in found.histograms.items()}
    return found.used, (found.content.numbers, curves)


def unnoticed(run_folder, planned, name, kind):
    """Forge one file of a trial in every way, and yield those that nobody noticed."""
    directory = paths.trial_directory(run_folder, planned.id)
    path, before = directory / name, results_of(run_folder, planned)
    text = path.read_bytes()
    original = msgspec.json.decode(text, type=kind)
    found, tried = [], 0
    for forgery in list(forgeries(json.loads(text)))[::STEP]:
        path.write_bytes(forgery.content)
        files = hashes(directory, (paths.MANIFEST,))
        write(directory / paths.MANIFEST, manifest(directory, planned.id, planned.seed, files))
        tried += 1
        try:
            used, results = results_of(run_folder, planned)
        except LabError as error:
            assert "\n" not in str(error)
            continue
        if not used or msgspec.json.decode(forgery.content, type=kind) == original:
            continue
        place = f"{name} {forgery.pattern}"
        if any(re.fullmatch(pattern, place) for pattern in COMPARED_WITH_NOTHING):
            continue
        known = any(re.fullmatch(pattern, place) for pattern in DERIVES_NOTHING)
        if not known or results != before[1]:
            found.append((forgery.place, forgery.kind))
    path.write_bytes(text)
    assert tried > 4
    return found


@pytest.mark.parametrize(("name", "kind"), [(paths.TRIAL, TrialOutcome), (paths.LOAD, LoadSummary)])
def test_no_forged_value_of_a_trial_goes_unnoticed(copied, name, kind):
    planned = read_run(copied).plan[0]
    assert unnoticed(copied, planned, name, kind) == []


# Of a part, only what the merged summary adds up or repeats is read.
NOT_READ_OF_A_PART = re.compile(
    r"load-0\.json (format|throughput_per_s|reasons.*|errors.*|(measure_|started_).*"
    r"|totals\.achieved_share|operations\..*\.(mean_ns|std_ns|percentiles(\.[\d.]+)?)|seconds\[\]\.(mean_ns|p99_ns|measured|second|histograms(\.\w+)?))"
)

_BRACKETS = re.compile(r"\[\d+\]")


@pytest.mark.parametrize(("name", "kind"), [(paths.LOAD, LoadSummary), ("load-0.json", LoadSummary)])
def test_no_forged_value_of_several_generators_goes_unnoticed(several, tmp_path, name, kind):
    """The summary of all is compared with the sum of its parts: each can only be forged with the other."""
    copied = shutil.copytree(several, tmp_path / "run")
    planned = read_run(copied).plan[0]
    found = unnoticed(copied, planned, name, kind)
    patterns = {(place, what): f"{name} {_BRACKETS.sub('[]', place)}" for place, what in found}
    assert [one for one, pattern in patterns.items() if not NOT_READ_OF_A_PART.fullmatch(pattern)] == []


def test_without_new_hashes_every_change_of_a_trial_is_noticed(copied):
    planned = read_run(copied).plan[0]
    directory = paths.trial_directory(copied, planned.id)
    for name in (paths.TRIAL, paths.LOAD, paths.MANIFEST):
        path = directory / name
        text = path.read_bytes()
        for forgery in list(forgeries(json.loads(text)))[:: 8 * STEP]:
            path.write_bytes(forgery.content)
            try:
                assert not results_of(copied, planned)[0], (name, forgery.place, forgery.kind)
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


# The other two are not in a run without a stopping rule that is compared with no other.
@pytest.mark.parametrize(
    "name", [known.name for known in FILES.values() if known.name not in (paths.COMPARE, paths.STOPPING)]
)
def test_a_key_that_stands_twice_is_refused(copied, name):
    """Two readers of such a file could see two files: RFC 8259 leaves open which value counts."""
    planned = read_run(copied).plan[0]
    directory = (
        copied
        if (copied / name).is_file() and name != paths.MANIFEST
        else paths.trial_directory(copied, planned.id)
    )
    path = directory / name
    path.write_text(path.read_text().replace("{", '{"format": "x",', 1))
    kind = next(kind for kind, known in FILES.items() if known.name == name)

    with pytest.raises(LabError, match="has the key 'format' twice"):
        read(path, kind)
