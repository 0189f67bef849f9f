"""The share of a core that a study finds for its middleware: the search, the specification of its run, wrong files."""

from types import SimpleNamespace

import pytest
from test_study import STUDY, study_of

from waylab.cli.study import calibration
from waylab.errors import LabError
from waylab.spec import calibration_spec, read_spec, read_study, write_specs

HOSTS = """
[changes.testbed]
kind = "netns"
time_scale = 20
[changes.testbed.hosts]
client = { cores = 4 }
middleware = { cores = 0.5 }
server = { cores = 1 }
[changes.assignment]
load = ["client"]
proxy = ["middleware"]
backends = ["server", "server"]
[calibration]
experiment = "first"
of = { clients = 16, replicas = 1 }
host = "middleware"
throughput_per_s = 20000
"""
CALIBRATED = STUDY.replace("[changes.load]", HOSTS + "[changes.load]")


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Search with a middleware whose throughput is a function of its cores; return the study and the shares tried."""

    def search(throughput, measured=True, narrowed=None, blocks=5):
        """`narrowed` is the throughput of twenty trials: its mean and interval. `blocks` exist from the beginning."""
        study, tried, blocks = read_study(study_of(tmp_path, CALIBRATED)), [], [blocks]

        def read(path, folder, scale):
            cores = read_spec(path).testbed.hosts["middleware"].cores
            return SimpleNamespace(cores=cores, blocks=lambda: blocks[0])

        def measure(experiment, more):
            blocks[0] = more or blocks[0]

        def rate(experiment):
            if blocks[0] == 20:
                return narrowed
            tried.append(experiment.cores)
            found = throughput(experiment.cores)
            return found if found is None or isinstance(found, tuple) else (found, found, found)

        monkeypatch.setattr(calibration, "read_experiment", read)
        monkeypatch.setattr(calibration, "_throughput", rate)
        folder = tmp_path / "specs"
        found = calibration.calibrate(study, folder, "full", measure if measured else None)
        return found, tried

    return search


def cores_of(study):
    return {name: one["testbed"]["hosts"]["middleware"]["cores"] for name, one in study.experiments.items()}


def test_the_share_is_changed_in_proportion_until_the_throughput_agrees(searched):
    found, tried = searched(lambda cores: 26_000 * cores + 4_500)
    assert tried == [0.5, 0.5714, 0.5904]
    assert cores_of(found.study) == {"first": 0.5904, "second": 0.5904}
    assert "middleware has 0.5904 cores. With " in found.said and "; 20,000 were required." in found.said


def test_a_share_that_is_right_is_kept(searched):
    found, tried = searched(lambda cores: 20_500)
    assert tried == [0.5] and cores_of(found.study)["first"] == 0.5


def test_a_throughput_in_the_interval_is_enough_but_a_wide_interval_is_not(searched):
    found, tried = searched(lambda cores: (20_500, 19_950, 21_100))
    assert tried == [0.5] and cores_of(found.study)["first"] == 0.5
    assert "20,500 requests/s (95 % interval 19,950 to 21,100)" in found.said
    with pytest.raises(LabError, match=r"\(10,000 to 40,000/s with 0\.5 cores, "):
        searched(lambda cores: (23_000, 10_000, 40_000))
    # Outside of its interval, 3 % decide.
    assert searched(lambda cores: (21_500 if cores == 0.5 else 20_400, 20_300, 21_600))[1] == [0.5, 0.4651]


def test_a_wide_interval_is_narrowed_by_more_trials_whose_mean_corrects_the_share(searched):
    wide, narrow = (21_500, 19_800, 23_200), (19_000, 18_600, 19_400)
    found, tried = searched(lambda cores: wide, narrowed=narrow)
    assert tried == [0.5] and cores_of(found.study)["second"] == 0.5263
    assert "middleware has 0.5263 cores. With " in found.said
    assert "and 0.5 cores it answers 19,000 requests/s (95 % interval 18,600 to 19,400)" in found.said


def test_the_same_command_finds_the_same_share_again(searched):
    wide, narrow = (21_500, 19_800, 23_200), (19_000, 18_600, 19_400)
    found, _ = searched(lambda cores: wide, narrowed=narrow)
    # Now all twenty trials exist from the beginning, and their interval is narrow.
    again, tried = searched(lambda cores: narrow, narrowed=narrow, blocks=20)
    assert tried == [] and again.said == found.said
    assert cores_of(again.study) == cores_of(found.study)
    # Twenty trials end the search, as they did when they were measured.
    far = (17_000, 16_600, 17_400)
    assert cores_of(searched(lambda cores: far, narrowed=far, blocks=20)[0].study)["first"] == 0.5882


def test_a_study_whose_calibration_was_stopped_is_not_calibrated(searched):
    found, _ = searched(lambda cores: (21_500, 19_800, 23_200), measured=False)
    assert found.missing and not found.said


def test_a_throughput_that_cores_do_not_set_is_an_error(searched):
    with pytest.raises(
        LabError, match=r"middleware does not come near 20,000 requests/s \(5,000 to 5,000/s with"
    ):
        searched(lambda cores: 5_000)


def test_the_mean_of_all_runs_decides_if_the_speed_of_the_machine_changes_between_them(searched):
    speeds = iter([0.9, 1.12, 0.88, 1.1, 0.92])
    found, tried = searched(lambda cores: 40_000 * cores * next(speeds))
    assert len(tried) == 5
    # The geometric mean of the five speeds is 0.978.
    assert cores_of(found.study)["second"] == pytest.approx(0.5 / 0.978, rel=0.001)
    assert "on average over 5 runs" in found.said and "18,000 to 18,000/s with 0.5 cores" in found.said


def test_without_measurements_the_cores_are_those_of_the_file(searched):
    found, _ = searched(lambda cores: None, measured=False)
    assert found.missing and not found.said and cores_of(found.study)["second"] == 0.5


def test_the_run_has_one_configuration_and_five_blocks(tmp_path):
    study = read_study(study_of(tmp_path, CALIBRATED))
    content = calibration_spec(study.with_cores(0.7).experiments["first"], study.calibration)
    assert content["testbed"]["hosts"]["middleware"]["cores"] == 0.7
    study.experiments["calibration"] = content
    spec = read_spec(write_specs(study, tmp_path / "specs")["calibration"])
    assert [len(factor.levels) for factor in spec.factors] == [1] * len(spec.factors)
    assert spec.design.blocks == 5 and not spec.published.findings and not spec.compare


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[calibration]", "calibration = 1\n[other]", "calibration: should be a table"),
        ('experiment = "first"', 'experiment = "frist"', "'frist': is not an experiment; did you mean"),
        ('host = "middleware"', 'host = "client-9"', "'client-9': is not a host of first with cores"),
        ("clients = 16, ", "", "calibration.of: must have one level of each factor: clients, replicas"),
        ("clients = 16", "clients = 17", r"calibration.of.clients = 17: is not a level of first"),
        (
            "throughput_per_s = 20000",
            "throughput_per_s = true",
            "throughput_per_s = True: should be a number",
        ),
        ("throughput_per_s = 20000", "throughput_per_s = -1", "throughput_per_s = -1: should be a number"),
        ("throughput_per_s = 20000", "rate = 1", "calibration.rate is not a key"),
    ],
)
def test_a_wrong_calibration_is_one_line(tmp_path, old, new, message):
    text = CALIBRATED.replace(old, new) if "other" not in new else "calibration = 1\n" + STUDY
    with pytest.raises(LabError, match=message):
        read_study(study_of(tmp_path, text))
