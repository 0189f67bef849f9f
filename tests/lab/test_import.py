"""`waylab import`: what each tool's file says, where levels come from, and files that cannot be read."""

import json
import os
import shutil

import pytest
from foreign_files import SAMPLES, hlog, memtier, table, write_memtier

from waylab.adapters import ImportRequest, ReadOptions, import_results
from waylab.adapters.detect import read_foreign
from waylab.cli import main
from waylab.errors import LabError
from waylab.runfolder.files import read, read_run
from waylab.runfolder.load import LoadSummary


def read_one(path, **options):
    (found,) = read_foreign(path, ReadOptions(**options))
    return found


def imported(tmp_path, *files, **request):
    return import_results(ImportRequest(files=files, directory=tmp_path / "run", **request))


# By file: tool, loop, whether it corrects for coordinated omission, errors and clients; rate, mean and p90 in ms.
PRINTED = {
    "wrk2.txt": (("wrk2", "open", True, 0, 100), (2000.28, 6.602, 9.143)),
    "wrk.txt": (("wrk", "closed", False, 49, 200), (7609.25, 59.51, 179.65)),
    "k6-summary-export.json": (("k6", "", False, 0, 5), (21.6999, 146.134, 204.685)),
    "k6-handle-summary.json": (("k6", "", False, 0, 50), (13900.16, 3.50841, 4.7773)),
    "vegeta.json": (("vegeta", "open", False, 0, 0), (50.3029, 1.886116, 3.124049)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_numbers_of_a_file_are_those_that_its_tool_printed(name):
    facts, (rate, mean_ms, p90_ms) = PRINTED[name]
    found = read_one(SAMPLES / name)
    assert (found.tool, found.loop, found.corrected, found.errors, found.load.clients) == facts
    assert found.throughput_per_s == pytest.approx(rate, rel=1e-5)
    times = found.operations["all"]
    assert times.mean_ns == pytest.approx(mean_ms * 1e6, rel=1e-5)
    assert times.percentiles_ns["90"] == pytest.approx(p90_ms * 1e6, rel=1e-5)


def test_a_percentile_with_fewer_than_ten_requests_above_it_is_left_out():
    # 39 500 requests: four of them are above the 99.99th percentile.
    assert {"99.9"} == {
        one for one in read_one(SAMPLES / "wrk2.txt").operations["all"].known_percentiles() if "." in one
    }
    assert read_one(SAMPLES / "vegeta.json").operations["all"].known_percentiles().keys() == {"50", "90"}


def test_oha_counts_no_request_that_was_cut_off_at_the_end_as_an_error():
    found = read_one(SAMPLES / "oha.json")
    assert (found.requests, found.errors) == (12, 0)
    assert found.throughput_per_s == pytest.approx(12 / 1.00266425)


def test_vegeta_reports_the_rate_that_it_sent():
    # 150 requests at 50/s: 149 gaps in 2.98 s.
    assert read_one(SAMPLES / "vegeta.json").load.rate == 50.0


def test_memtier_is_read_with_its_histograms(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(memtier(50, 20_000)))
    found = read_one(path)
    assert (found.load.clients, found.load.ratio, found.requests) == (50, "1:10", 200_000)
    assert found.throughput_per_s == pytest.approx(20_000)
    assert set(found.operations) == {"all", "get", "set"}
    times = found.operations["all"]
    assert times.mean_ns == pytest.approx(2.5e6, rel=1e-3)
    assert times.histogram.get_total_count() == 200_000
    assert times.histogram.get_value_at_percentile(50) == pytest.approx(times.percentiles_ns["50"], rel=2e-3)
    assert len(found.seconds) == 10 and found.seconds[3].requests == 20_000


def test_the_output_of_a_real_memtier_that_was_stopped(tmp_path):
    """It contradicts itself three times. With the counts of its histograms, clients follow the interactive law."""
    content = json.loads((SAMPLES / "memtier-interrupted.json").read_text())
    stats, path = content["ALL STATS"], tmp_path / "one.json"

    def refused(words: str) -> None:
        path.write_text(json.dumps(content))
        with pytest.raises(LabError, match=words):
            read_foreign(path, ReadOptions())

    refused("Runtime.Total duration is -1.72354e[+]12, and cannot be negative; measure again")
    stats["Runtime"]["Total duration"] = 2915
    refused("contradicts itself: Gets has 281787 requests, but 381172 in its histogram")
    for name, count in (("Gets", 381_172), ("Sets", 38_217), ("Totals", 419_389)):
        stats[name] |= {"Count": count, "Ops/sec": count / 2.915}
    refused("contradicts itself: the mean of Totals is 1 ms, that of Gets and Sets 1[.]299")
    # Accumulated Latency of Totals is right.
    for name in ("Gets", "Sets", "Totals"):
        stats[name]["Average Latency"] = 576_542 / 419_389
    path.write_text(json.dumps(content))
    found = read_one(path)
    counts = {name: one.histogram.get_total_count() for name, one in found.operations.items()}
    assert counts == {"all": 419_389, "get": 381_172, "set": 38_217}
    times = found.operations["all"]
    assert times.histogram.get_value_at_percentile(99) == pytest.approx(2.911e6, rel=0.01)
    assert times.histogram.get_mean_value() == pytest.approx(times.mean_ns, rel=0.01)
    # N = X R for 4 x 50 connections.
    assert found.load.clients == 200
    assert found.throughput_per_s * times.mean_ns * 1e-9 == pytest.approx(200, rel=0.02)


def test_several_runs_of_memtier_are_blocks_and_their_best_and_mean_are_refused(tmp_path):
    one = memtier(4, 1000)
    runs = {
        f"RUN #{number} RESULTS": memtier(4, 1000 + number, seed=number)["ALL STATS"] for number in (1, 2, 3)
    }
    path = tmp_path / "three.json"
    path.write_text(json.dumps({"configuration": one["configuration"], "run information": {}, **runs}))
    assert [found.block for found in read_foreign(path, ReadOptions())] == [1, 2, 3]
    best = {"BEST RUN RESULTS": one["ALL STATS"], "AGGREGATED AVERAGE RESULTS (3 runs)": one["ALL STATS"]}
    path.write_text(json.dumps({"configuration": one["configuration"], "run information": {}, **best}))
    with pytest.raises(LabError, match=r"has no ALL STATS: .*--print-all-runs"):
        read_foreign(path, ReadOptions())


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_log_of_histograms_shows_its_unit(tmp_path, unit):
    path = tmp_path / "one.hlog"
    path.write_text(hlog(unit=unit))
    found = read_one(path)
    assert (found.requests, found.measured_s) == (4000, 8.0)
    assert found.operations["all"].mean_ns == pytest.approx(2e6, rel=0.05)
    assert [second.requests for second in found.seconds] == [500] * 8
    assert found.operations["all"].mean_ns == pytest.approx(found.seconds[0].mean_ns, rel=0.1)


def test_a_log_whose_unit_is_unknown_needs_it(tmp_path):
    path = tmp_path / "one.hlog"
    path.write_text(hlog(unit=1000, scale=7e4))
    with pytest.raises(LabError, match="does not show the unit of its values; give --unit ns, us or ms"):
        read_foreign(path, ReadOptions())
    assert read_one(path, unit_ns=1000).operations["all"].mean_ns == pytest.approx(2e6, rel=0.05)


def test_tags_that_may_count_a_request_twice_need_a_choice(tmp_path):
    path = tmp_path / "one.hlog"
    path.write_text(hlog(tag="READ-rt") + hlog(tag="READ-st"))
    with pytest.raises(
        LabError, match=r"has the tags READ-rt, READ-st, which may count a request twice; .*--tag"
    ):
        read_foreign(path, ReadOptions())
    assert read_one(path, tag="READ-rt").requests == 4000
    path.write_text(hlog(tag="read") + hlog(tag="update"))
    found = read_one(path)
    assert {name: one.count for name, one in found.operations.items()} == {
        "all": 8000,
        "get": 4000,
        "set": 4000,
    }


def test_a_log_of_the_java_library_is_read():
    found = read_one(SAMPLES / "java.hlog")
    assert found.requests == sum(one.count for name, one in found.operations.items() if name == "all")
    assert found.operations["all"].histogram.get_max_value() == pytest.approx(26.083e6, rel=0.01)


CSV = "version,clients,block,throughput_per_s,response_mean_ms,response_p99_ms\n"


def test_a_table_has_factors_blocks_and_times(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text(CSV + "7.2,8,1,4000,2,9\n7.2,8,2,4100,1.95,8\nnext,8,1,5000,1.6,7\n")
    run = read_run(imported(tmp_path, path))
    assert [(one.configuration, one.block) for one in run.plan] == [
        ("version=7.2", 1),
        ("version=7.2", 2),
        ("version=next", 1),
    ]
    assert {one.load.clients for one in run.plan} == {8}
    load = read(tmp_path / "run/trials" / run.plan[0].id / "load.json", LoadSummary)
    assert load.operations.all.response.percentiles == {"99": 9e6}
    assert load.source.line == 2


def test_levels_come_from_names_of_files_a_pattern_or_set(tmp_path):
    paths = write_memtier(tmp_path / "old", blocks=2)
    run = read_run(imported(tmp_path, *paths, levels=["version=7.2"]))
    assert [factor.name for factor in run.spec.factors] == ["clients", "version"]
    assert {(one.levels["clients"], one.block) for one in run.plan} == {
        (clients, block) for clients in ("2", "8", "32", "64") for block in (1, 2)
    }
    shutil.rmtree(tmp_path / "run")
    for index, path in enumerate(paths):
        path.rename(path.with_name(f"redis-7.{index % 2}-{index // 2}.json"))
    files = sorted((tmp_path / "old").iterdir())
    run = read_run(imported(tmp_path, *files, names="redis-{version}-{copy}.json"))
    assert {one.levels["version"] for one in run.plan} == {"7.0", "7.1"}
    # The files themselves have different numbers of clients.
    assert {one.levels["clients"] for one in run.plan} == {"2", "8", "32", "64"}


def test_files_of_one_configuration_are_blocks(tmp_path):
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"run{number}.json")
        paths[-1].write_text(json.dumps(memtier(8, 4000, seed=number)))
    assert [one.block for one in read_run(imported(tmp_path, *paths)).plan] == [1, 2, 3]


def broken(tmp_path, name):
    whole = json.dumps(memtier(8, 4000))
    texts = {
        "empty.json": "",
        "truncated.json": whole[: len(whole) // 2],
        "truncated.txt": (SAMPLES / "wrk2.txt").read_text()[:600],
        "two.txt": 2 * (SAMPLES / "wrk.txt").read_text(),
        "other.txt": "Server Software: nginx\nRequests per second: 100\n",
        "other.json": '{"aggregate": {"counters": {}}}',
        "list.json": "[1, 2]",
        "twice.json": '{"ALL STATS": 1, "ALL STATS": 2}',
        "damaged.hlog": hlog().replace("HISTFAAA", "HISTFAAB"),
        "cut.hlog": hlog()[:-40],
        "header.hlog": "#[Histogram log format version 1.3]\n",
        "heading.csv": CSV,
        "wide.csv": CSV + "1,2,3\n",
        "words.csv": CSV + "7.2,8,1,many,2,9\n",
        "falling.csv": "throughput_per_s,response_mean_ms,response_p50_ms,response_p99_ms\n10,2,9,3\n",
        "times.csv": "throughput_per_s,clients\n10,2\n",
        "collides.csv": "throughput_per_s,response_mean_ms,trial\n10,2,a\n",
        "unit.csv": "throughput_per_s,response_mean_ms,disk_s\n10,2,1\n",
        "k6.json": '{"metrics": {"http_reqs": {"count": 5, "rate": 1}}}',
        "k6-other.json": '{"metrics": {"http_reqs": {"count": "5", "rate": 1}, "http_req_duration": {"avg": 1}}}',
        "vegeta.json": (SAMPLES / "vegeta.json").read_text().replace('"success":1', '"success":7'),
        "nan.json": '{"ALL STATS": NaN}',
    }
    path = tmp_path / name
    path.write_text(texts[name])
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.json", "is empty; measure again"),
        ("truncated.json", "it is truncated or damaged; copy it again"),
        ("truncated.txt", "is the beginning of a run of wrk2 or wrk only; measure again"),
        ("two.txt", "has the output of several runs; give a file for each"),
        ("other.txt", "is of no known kind; known: JSON of memtier_benchmark"),
        ("other.json", "is of no known kind; known: "),
        ("list.json", "is of no known kind; known: "),
        ("twice.json", "has the key 'ALL STATS' twice"),
        ("damaged.hlog", "line 4: the histogram cannot be decoded"),
        ("cut.hlog", "line 11"),
        ("header.hlog", "has no interval with a value; measure again"),
        ("heading.csv", "has no rows"),
        ("wide.csv", "line 2: has 3 columns, but the heading has 6"),
        ("words.csv", "line 2: throughput_per_s is 'many'"),
        ("falling.csv", "line 2: contradicts itself: its percentiles fall"),
        ("times.csv", "needs exactly one column of mean response times"),
        ("collides.csv", "column trial: is the name of a column of the results; rename it"),
        ("unit.csv", "column disk_s: is the name of a column of the results; rename it"),
        ("k6.json", "has no http_reqs and http_req_duration"),
        ("k6-other.json", "http_reqs.count is '5', and should be a number"),
        ("vegeta.json", "success is 7, and should be a share"),
        ("nan.json", "NaN is no number of JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_nothing(tmp_path, capsys, name, words):
    path = broken(tmp_path, name)
    assert main(["import", str(path), "--out", str(tmp_path / "new/run")]) == 2
    found = capsys.readouterr()
    assert found.err.count("\n") == 1 and f"{path}: " in found.err and words in found.err
    assert ";" in found.err, "says what to do"
    assert sorted(one.name for one in tmp_path.iterdir()) == [name]


def test_what_is_given_is_checked(tmp_path, capsys):
    (good, *_) = write_memtier(tmp_path / "in", blocks=1)
    copy = tmp_path / "in/copy.json"
    shutil.copy(good, copy)
    wrk2 = str(SAMPLES / "wrk2.txt")
    run = tmp_path / "run"
    for arguments, words in (
        ([tmp_path / "none.json"], "none.json: there is no such file"),
        ([tmp_path / "in"], "is a folder; give files"),
        ([good, good], "has the same content as"),
        ([good, copy], "has the same content as"),
        ([good, "--set", "clients"], "--set clients: give NAME=VALUE"),
        ([good, "--set", "used=1"], "--set used: is the name of a column of the results; rename it"),
        ([good, "--set", "a b=1"], "a factor has letters, digits and underscores"),
        ([good, "--set", "clients=9"], "clients is '2' in its name and '9' in --set"),
        ([copy, "--set", "clients=9"], "clients is 2 in the file, and 9 is given"),
        ([copy, "--set", "rate=100"], "memtier_benchmark is a closed loop, which has no rate"),
        ([good, "--names", "{clients}.txt"], "its name does not match --names {clients}.txt"),
        ([good, "--names", "clients.json"], "give each factor once"),
        ([good, "--where", "experiment=a"], "--where experiment: is no column of it"),
        ([good, "--name", "../x"], "--name: '../x' should be letters"),
        ([good, "--errors-max", "-1"], "--errors-max -1: give a number of requests"),
        ([wrk2], "wrk2 does not write the rate that it was given (-R); add --set rate=2000"),
        ([good, "--out", tmp_path / "in"], "exists; give another folder with --out"),
    ):
        given = list(map(str, arguments))
        assert main(["import", *given, *([] if "--out" in given else ["--out", str(run)])]) == 2, arguments
        found = capsys.readouterr().err
        assert words in found and found.count("\n") == 1, arguments
        assert not run.exists()
    assert [one.name for one in tmp_path.iterdir()] == ["in"]


def test_a_pipe_is_not_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(LabError, match="is no regular file; save its content"):
        read_foreign(path, ReadOptions())


def test_a_rate_that_vegeta_did_not_reach_can_be_given(tmp_path):
    run = read_run(imported(tmp_path, SAMPLES / "vegeta.json", levels=["rate=80"]))
    assert run.plan[0].load.rate == 80
    load = read(tmp_path / "run/trials" / run.plan[0].id / "load.json", LoadSummary)
    assert load.totals.achieved_share == pytest.approx(50.3 / 80, rel=1e-3)
    assert "achieved_offered" not in load.source.unknown


def test_files_of_one_name_are_kept_apart(tmp_path):
    paths = []
    for number in (1, 2):
        paths.append(tmp_path / f"v{number}" / "2-out.json" if number == 1 else tmp_path / "v2/out.json")
        paths[-1].parent.mkdir()
        paths[-1].write_text(json.dumps(memtier(8, 4000, seed=number)))
    paths.append(tmp_path / "v3/out.json")
    paths[-1].parent.mkdir()
    paths[-1].write_text(json.dumps(memtier(8, 4000, seed=3)))
    run = imported(tmp_path, *paths, names="v{version}/{file}.json")
    assert len(list((run / "sources").iterdir())) == 3


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    (path, *_) = write_memtier(tmp_path / "in", blocks=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waylab.adapters.folder._write_trial", full)
    with pytest.raises(LabError, match="cannot be written: No space left on device"):
        import_results(ImportRequest(files=[path], directory=tmp_path / "a/b/run"))
    assert [one.name for one in tmp_path.iterdir()] == ["in"]


def test_a_block_that_is_given_twice_is_refused(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text(CSV + "7.2,8,1,4000,2,9\n7.2,8,1,4100,1.95,8\n")
    with pytest.raises(
        LabError, match=r"one\.csv, line 3: its configuration has block 1 twice; number the blocks"
    ):
        imported(tmp_path, path)


def test_a_table_of_trials_keeps_rows_and_marks_those_that_are_not_used(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(table())
    run = read_run(imported(tmp_path, path, where=["workers_per_middleware=8"]))
    assert len(run.plan) == 10
    assert {one.levels["workers"] for one in run.plan} == {"8"}
    assert run.plan[0].system["row"]["cells"]["experiment"] == "pool"
    assert run.plan[0].description.programs == {"proxy": 1, "backends": 1}
