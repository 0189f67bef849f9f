"""What a trial left belongs together: every forged, exchanged or shortened part is found, and the trial is not used."""

import base64
import re
import shutil
import struct
import zlib

import pytest
from conftest import SPEC, put_fake, true_throughput
from synthetic import Truth, histogram_text, write_trial
from test_hostile_folders import changed

from waylab.analysis import analyse, analyse_trial
from waylab.analysis.trial import histograms
from waylab.analysis.trial.agreement import _agree
from waylab.analysis.trial.merged_agreement import _rounded_alike
from waylab.errors import LabError
from waylab.run import create_run
from waylab.runfolder import paths
from waylab.runfolder.files import read, read_run, write
from waylab.runfolder.manifest import Manifest, hashes, manifest, run_hash
from waylab.runfolder.trial import TrialOutcome


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run folder of four trials, which are consistent."""
    with pytest.MonkeyPatch.context() as patch:
        put_fake(tmp_path_factory, patch)
        place = tmp_path_factory.mktemp("agreement")
        spec = place / "synthetic.toml"
        spec.write_text(SPEC.replace("blocks = 3", "blocks = 2"))
        directory = create_run(spec, place / "results").directory
    for planned in read_run(directory).plan:
        write_trial(directory, planned, Truth(throughput_per_s=true_throughput(planned)))
    return directory


@pytest.fixture
def run_folder(original, tmp_path):
    """A copy of it, of which a test may change anything."""
    return shutil.copytree(original, tmp_path / "run")


def trial_of(run_folder, place=0):
    planned = read_run(run_folder).plan[place]
    return planned, run_folder / paths.TRIALS / planned.id


def result_of(run_folder, place=0):
    planned, _ = trial_of(run_folder, place)
    return analyse_trial(run_folder, planned.id).content


def with_manifest(run_folder, place=0):
    """Add the manifest that the lab writes when a trial ends."""
    planned, directory = trial_of(run_folder, place)
    kernel = {"interrupts_in_processes": True, "steal_in_processes": True}
    changed(
        directory / paths.TRIAL,
        lambda trial: trial.update(manifest=True, clock_step_s=0.0, accounting=kernel),
    )
    files = hashes(directory, (paths.MANIFEST,))
    write(directory / paths.MANIFEST, manifest(directory, planned.id, planned.seed, files))
    return directory


def gate_of(trial, name):
    return next(gate for gate in trial.gates if gate.name == name)


def rewrite(change):
    """A forgery of the load's summary."""
    return lambda directory: changed(directory / paths.LOAD, change)


def replace_histogram(load):
    load["operations"]["get"]["response"]["histogram"] = histogram_text([1000] * 100)


def scale_histogram(load):
    count = load["operations"]["get"]["count"]
    load["operations"]["get"]["response"]["histogram"] = histogram_text([1000] * 100, count)


def scale_seconds(load):
    for second in load["seconds"]:
        second["requests"] *= 3


def shrink_seconds(load):
    for second in load["seconds"]:
        second["requests"] //= 3


def end_early(load):
    load.update(partial=True, measured_s=0.35)


FORGED = {
    "emptied seconds": (
        rewrite(lambda load: load.update(seconds=[])),
        "agreement",
        "0 seconds of a measurement",
    ),
    "larger seconds": (rewrite(scale_seconds), "agreement", "requests in the measured seconds"),
    "smaller seconds": (rewrite(shrink_seconds), "agreement", "requests in the seconds of the window"),
    "a histogram of other requests": (
        rewrite(replace_histogram),
        "agreement",
        "the histogram of get has 100 of",
    ),
    "a histogram of other times": (rewrite(scale_histogram), "agreement", "the mean of get is"),
    "another seed": (rewrite(lambda load: load.update(settings={"seed": 1})), "agreement", "seed 1, planned"),
    "another ratio": (
        rewrite(lambda load: load.update(settings={"ratio_set": 5})),
        "agreement",
        "ratio_set 5",
    ),
    "more clients": (rewrite(lambda load: load.update(settings={"clients": 9})), "agreement", "clients 9"),
    "no settings": (
        rewrite(lambda load: load.update(settings={})),
        "agreement",
        "the load does not report its clients and seed",
    ),
    "an open loop": (rewrite(lambda load: load.update(settings={"loop": "open"})), "agreement", "loop open"),
    "a faster window": (
        rewrite(lambda load: load.update(throughput_per_s=1e6)),
        "agreement",
        "a throughput of",
    ),
    "an early end": (rewrite(end_early), "duration", "ended early, after 0.35 s of 2 s"),
    "a short window": (rewrite(lambda load: load.update(measured_s=1.0)), "duration", "1.00 s of 2 s"),
    "fewer requests": (
        rewrite(lambda load: load["totals"].update(requests=7)),
        "agreement",
        "requests of all operations, 7 in the totals",
    ),
    "another deviation": (
        rewrite(lambda load: load["operations"]["get"]["response"].update(std_ns=1.0)),
        "agreement",
        "the deviation of get is",
    ),
    "requests without an answer": (
        rewrite(lambda load: load["operations"]["get"]["response"].update(unanswered=3)),
        "agreement",
        "3 requests of get have no answer, but 0 failed",
    ),
    "other misses": (
        rewrite(lambda load: load["totals"].update(misses=7)),
        "agreement",
        "misses of all operations are 0, and 7 in the totals",
    ),
    "a smaller share of CPU time": (
        rewrite(lambda load: load["cpu"].update(polled_s=0.0, user_s=4.0, share=0.01)),
        "agreement",
        "the load's share of CPU time is 0.010",
    ),
    "more seconds measured": (
        rewrite(lambda load: load.update(started_clock_ns=load["measure_from_clock_ns"] - 10**9 + 5)),
        "agreement",
        "2 seconds are measured, but 1 whole seconds",
    ),
    "nothing checked": (
        rewrite(lambda load: load["verification"].update(checked=0)),
        "verification",
        "values was checked",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_summary_is_found_without_a_manifest(run_folder, name):
    forge, gate, words = FORGED[name]
    forge(trial_of(run_folder)[1])
    trial = result_of(run_folder)
    assert not trial.used
    assert words in gate_of(trial, gate).text and gate_of(trial, gate).passed is False


@pytest.mark.parametrize("name", FORGED)
def test_a_manifest_shows_every_change(run_folder, name):
    directory = with_manifest(run_folder)
    assert gate_of(result_of(run_folder), "manifest").passed is True and result_of(run_folder).used
    FORGED[name][0](directory)
    gate = gate_of(result_of(run_folder), "manifest")
    assert gate.passed is False and "load.json is not what the trial left" in gate.text


def test_numbers_agree_that_two_ways_to_convert_a_unit_round_differently():
    """13 ms were 0.013 s for the load generator, and 13 000 000 ns 0.013000000000000001 s for the lab."""
    assert _agree(0.013, 13_000_000 * 1e-9) and 13_000_000 * 1e-9 != 0.013
    assert not _agree(0.01301, 0.013) and not _agree("open", "closed") and not _agree(None, 0.0)


def test_another_server_is_found(run_folder):
    """Before, it was found only in systems whose server leaves records."""
    directory = with_manifest(run_folder)
    changed(directory / paths.TRIAL, lambda trial: trial.update(server="other"))
    gate = gate_of(result_of(run_folder), "agreement")
    assert gate.passed is False and "the server was other, planned: " in gate.text


def test_records_of_another_trial_are_found(run_folder):
    planned, directory = trial_of(run_folder)
    other = next(
        one for one in read_run(run_folder).plan if one.levels["clients"] != planned.levels["clients"]
    )
    records = run_folder / paths.TRIALS / other.id / paths.RECORDS
    shutil.copyfile(records / "load-2.way", directory / paths.RECORDS / "load-2.way")
    trial = result_of(run_folder)
    assert not trial.used and "little" in gate_of(trial, "agreement").text


def test_a_whole_folder_of_another_trial_is_found(run_folder):
    _, directory = trial_of(run_folder)
    other, elsewhere = trial_of(run_folder, 1)
    with_manifest(run_folder, 1)
    shutil.rmtree(directory)
    shutil.copytree(elsewhere, directory)
    trial = result_of(run_folder)
    assert not trial.used
    assert gate_of(trial, "agreement").text.startswith(f"trial.json is of trial {other.id}")
    assert f"the files are of trial {other.id} with seed" in gate_of(trial, "manifest").text


def test_a_trial_of_another_run_an_added_record_and_a_missing_manifest_are_found(run_folder):
    directory = with_manifest(run_folder)
    changed(run_folder / paths.RUN, lambda run: run["spec"]["gates"].update(steal_max=0.9))
    assert gate_of(result_of(run_folder), "manifest").text == "the trial was run under another run.json"
    directory = with_manifest(run_folder)
    (directory / paths.RECORDS / "proxy-9.way").write_bytes(b"")
    assert "records/proxy-9.way was added after the trial" in gate_of(result_of(run_folder), "manifest").text
    (directory / paths.RECORDS / "proxy-9.way").unlink()
    changed(
        directory / paths.MANIFEST,
        lambda manifest: manifest["files"].update({"/dev/zero": {"bytes": 1, "sha256": ""}}),
    )
    assert "not in the folder" in gate_of(result_of(run_folder), "manifest").text
    (directory / paths.MANIFEST).unlink()
    assert gate_of(result_of(run_folder), "manifest").text == "manifest.json is missing"


def test_a_trial_of_an_older_lab_is_used_with_a_note(run_folder):
    trial = result_of(run_folder)
    gate = gate_of(trial, "manifest")
    assert trial.used and gate.passed is None and gate.text.startswith("no manifest: an older version")


def test_the_load_was_measured_during_its_trial(run_folder):
    state = {"load_average": [0.0, 0.0, 0.0], "steal_s": 0.0, "memory_available_bytes": 1}
    before, after = {"clock_ns": 1} | state, {"clock_ns": 2} | state
    _, directory = trial_of(run_folder)
    changed(directory / paths.TRIAL, lambda trial: trial.update(before=before, after=after))
    assert "was not measured during this trial" in gate_of(result_of(run_folder), "agreement").text


def without_load(manifest):
    del manifest["files"]["load.json"]


def test_a_manifest_that_leaves_out_a_file_is_found(run_folder):
    directory = with_manifest(run_folder)
    changed(directory / paths.MANIFEST, without_load)
    assert gate_of(result_of(run_folder), "manifest").text == "load.json was added after the trial"


RANGES = {
    "a clock before time": (
        lambda load: load.update(measure_from_clock_ns=-1),
        "measure_from_clock_ns: Expected",
    ),
    "a huge clock": (
        lambda load: load.update(measure_to_clock_ns=10**400),
        "Expected `int` <= 4611686018427387904",
    ),
    "a huge number of requests": (
        lambda load: load["totals"].update(requests=10**400),
        "Expected `int` <= 4611686018427387904",
    ),
    "negative errors": (lambda load: load["totals"].update(errors=-5), "totals.errors: Expected `int` >= 0"),
    "wrong values that cancel out": (
        lambda load: load["verification"].update(wrong=-1, torn=1),
        "verification.wrong: Expected `int` >= 0",
    ),
    "a negative share of CPU": (
        lambda load: load["cpu"].update(share=-0.5),
        "cpu.share: Expected `float` >= 0",
    ),
    "a mean of 1e308": (
        lambda load: load["seconds"][1].update(mean_ns=1e308),
        "mean_ns: Expected `float` <= 1e+18",
    ),
    "seconds of another run": (
        lambda load: load["seconds"].extend(load["seconds"] * 99),
        "the load file has 300 seconds, but",
    ),
    "many histograms": (
        lambda load: load["seconds"][1].update(histograms={str(name): "" for name in range(99)}),
        "99 histograms in one second are too many",
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_a_number_out_of_range_is_a_reason_of_the_trial(run_folder, name):
    """Before, negative counts passed the gates, and huge ones caused tracebacks."""
    forge, words = RANGES[name]
    changed(trial_of(run_folder)[1] / paths.LOAD, forge)
    trial = result_of(run_folder)
    assert not trial.used and len(trial.reasons) == 1 and "\n" not in trial.reasons[0]
    assert words in trial.reasons[0]


TELEMETRY = {
    "cut off": lambda text: text[:-20],
    "a huge clock": lambda text: text.replace("\n5", "\n" + "9" * 400, 1),
    "not a number": lambda text: re.sub(r",\d+\.\d+", ",nan", text, count=1),
    "infinity": lambda text: re.sub(r",\d+\.\d+", ",inf", text, count=1),
    "a zero byte": lambda text: text.replace(",", ",\0", 9),
    "a long field": lambda text: text + "1" * 200_000,
    "clocks that stand still": lambda text: text + text.splitlines()[-1],
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("name", TELEMETRY)
@pytest.mark.parametrize("file", [paths.PROCESSES, paths.MACHINE])
def test_damaged_telemetry_is_a_reason_of_the_trial(run_folder, name, file):
    path = trial_of(run_folder)[1] / file
    path.write_text(TELEMETRY[name](path.read_text()))
    trial = result_of(run_folder)
    assert not trial.used and all("\n" not in reason for reason in trial.reasons)
    assert trial.reasons[0].startswith("complete: telemetry: "), trial.reasons


def test_telemetry_of_an_older_version_is_named_as_such(run_folder):
    """Before, the reason was: telemetry: 'capacity_s'."""
    path = trial_of(run_folder)[1] / paths.MACHINE
    path.write_text(path.read_text().replace("capacity_s", "other"))
    (reason,) = result_of(run_folder).reasons[:1]
    assert "has no column capacity_s, so an older version of the lab wrote it; measure again" in reason


def histogram_of(counts, digits=3, lowest=1, highest=3_600_000_000_000):
    """Return a histogram as text, with any digits and range in its header."""
    inner = struct.pack(">IIIIQQd", 0x1C849303 | 0x10, len(counts), 0, digits, lowest, highest, 1.0) + counts
    deflated = zlib.compress(inner)
    return base64.b64encode(struct.pack(">II", 0x1C849304 | 0x10, len(deflated)) + deflated).decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (histogram_of(b"\x02", digits=5, highest=(1 << 63) - 1), "declares 5 digits"),
        (histogram_of(b"\x02", highest=(1 << 64) - 1), "declares 3 digits from 1 to 18446744073709551615"),
        (histogram_of(b"\x02", lowest=0), "from 0 to"),
        (histogram_of(bytes(1 << 26)), "it is longer than"),
        (base64.b64encode(b"short").decode(), "cannot be decoded"),
        ("@@@", "cannot be decoded"),
    ],
)
def test_a_histogram_that_announces_too_much_is_refused_before_memory_is_taken(text, words):
    """Before, a header of 40 bytes allocated 64 MB; a megabyte of deflated zeros would allocate a gigabyte."""
    with pytest.raises(LabError, match=re.escape(words)):
        histograms.decode(text, "load.json")
    assert histograms.decode(histogram_of(b"\x02"), "load.json").get_total_count() == 1


def test_a_late_generator_fails_a_gate_of_its_own(run_folder):
    reason = "the generator was late: 1 % of requests were sent 2 ms later than possible"
    _, directory = trial_of(run_folder)
    changed(directory / paths.LOAD, lambda load: load.update(valid=False, reasons=[reason]))
    trial = result_of(run_folder)
    assert trial.reasons == [f"load_verdict: {reason}"]
    assert gate_of(trial, "verification").passed is True


@pytest.mark.parametrize(
    ("seconds", "growth", "passed", "words"),
    [
        (10, 0.0, None, "cannot be judged: too short: 10 seconds"),
        (60, 0.0, True, "steady when the measurement began"),
        (60, 1.0, False, "no steady state"),
    ],
)
def test_a_trial_without_a_steady_state_fails_a_gate(run_folder, seconds, growth, passed, words):
    """Throughput is constant, or falls from six times as much until shortly before the end."""

    def lengthen(load):
        rates = [
            1000 + round(5000 * growth * max(0.0, 1 - second / 50)) + second % 3 for second in range(seconds)
        ]
        load["seconds"] = [
            {"second": number, "measured": True, "requests": rate, "sum_ns": rate * 1000, "mean_ns": 1000.0}
            for number, rate in enumerate(rates)
        ]

    changed(trial_of(run_folder)[1] / paths.LOAD, lengthen)
    gate = gate_of(result_of(run_folder), "steady_state")
    assert gate.passed is passed and words in gate.text
    if passed is False:
        changed(run_folder / paths.RUN, lambda run: run["spec"]["gates"].update(steady_state=False))
        gate = gate_of(result_of(run_folder), "steady_state")
        assert gate.passed is None and gate.text.startswith("switched off; no steady state")


def test_a_load_without_reads_has_nothing_to_verify(run_folder):
    def write_only(load):
        load["verification"].update(checked=0)
        load["totals"].update(hits=0, misses=0)

    changed(trial_of(run_folder)[1] / paths.LOAD, write_only)
    gate = gate_of(result_of(run_folder), "verification")
    assert gate.passed is None and gate.text == "no value was read"


def test_the_lab_writes_a_manifest_when_a_trial_ends(fake, spec_path, tmp_path):
    text = spec_path.read_text().replace("clients = [4, 16]\nreplicas = [1, 2]", "replicas = [1, 2]")
    text = text.replace("test_time_s = 2.0\nwarm_up_s = 1.0", "test_time_s = 0.2\nwarm_up_s = 0.0")
    spec_path.write_text(text)
    campaign = create_run(spec_path, tmp_path / "results")
    campaign.run(lambda step: None)
    planned, directory = trial_of(campaign.directory)
    manifest = read(directory / paths.MANIFEST, Manifest)
    assert manifest.files == hashes(directory, (paths.MANIFEST,)) and paths.TRIAL in manifest.files
    assert manifest.run_sha256 == run_hash(directory) and manifest.trial == planned.id
    assert read(directory / paths.TRIAL, TrialOutcome).manifest


def test_a_trial_of_a_machine_that_counts_cpu_time_otherwise_is_not_used(run_folder):
    """The whole run shows it; a single trial cannot."""
    for place in range(2):
        with_manifest(run_folder, place)
    assert analyse(run_folder).trials_used == 8
    _, directory = trial_of(run_folder, 1)
    changed(
        directory / paths.TRIAL,
        lambda trial: trial["accounting"].update(interrupts_in_processes=False),
    )
    planned, _ = trial_of(run_folder, 1)
    files = hashes(directory, (paths.MANIFEST,))
    write(directory / paths.MANIFEST, manifest(directory, planned.id, planned.seed, files))
    found = analyse(run_folder)
    assert found.trials_used == 7
    (reasons,) = [trial.reasons for trial in found.trials if trial.id == planned.id]
    assert "was written on another machine" in " ".join(reasons)


def test_a_rounded_number_of_a_part_is_no_contradiction():
    """The load generator reads 0.009166666666666665 and writes 0.009166666666666663 into the merged summary."""
    content = {"user_s": 0.03, "share": 0.009166666666666665, "rates": [1.5], "seed": 3, "name": None}
    assert _rounded_alike(content | {"share": 0.009166666666666663}, content)
    for wrong in ({"share": 0.0092}, {"seed": 4}, {"name": "x"}, {"rates": [1.5, 1.5]}, {"rates": [1.6]}):
        assert not _rounded_alike(content | wrong, content)
    assert not _rounded_alike({"seed": 3}, content)
