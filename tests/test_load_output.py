"""The load generator's output, read by the programs it is meant for: HdrHistogram's readers, scripts, Prometheus."""

import json
import re
import signal
import subprocess
import time
import urllib.request

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from programs import WAYSTAGE
from test_programs import backend, one_line, run

NANOS_PER_MILLI = 1_000_000
LOAD = ("--clients", 4, "--key-maximum", 99, "--ratio", "1:3", "--quiet")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of one run of 5000 requests."""
    folder = tmp_path_factory.mktemp("load")
    with backend() as (server,):
        arguments = (
            "load",
            "--server",
            server,
            *LOAD,
            "--requests",
            5000,
            "--print-percentiles",
            "50,99,99.9",
        )
        outputs = ("--json-out-file", folder / "run.json", "--hdr-file-prefix", folder / "run")
        result = run(*arguments, *outputs)
        assert result.returncode == 0, result.stdout + result.stderr
        assert (
            run(
                *arguments[:-2], "--json-out-file", folder / "memtier.json", "--json-compat", "memtier"
            ).returncode
            == 0
        )
    (folder / "table.txt").write_text(result.stdout)
    return folder


def decoded(text):
    return HdrHistogram.decode(text)


def recorded(histogram):
    """Return the recorded values with their counts, in order."""
    return [
        (item.value_iterated_to, item.count_at_value_iterated_to)
        for item in histogram.get_recorded_iterator()
    ]


def test_percentile_files_have_the_recorded_values(written):
    operations = json.loads((written / "run.json").read_text())["operations"]
    files = {"get": ("get", "response"), "set": ("set", "response"), "all": ("all", "response")}
    files["service_all"] = ("all", "service")
    for file, (operation, quantity) in files.items():
        times = operations[operation][quantity]
        lines = (written / f"run_{file}.hgrm").read_text().splitlines()
        assert lines[:2] == ["       Value     Percentile TotalCount 1/(1-Percentile)", ""]
        rows = [line for line in lines[2:] if not line.startswith("#")]
        # As HdrHistogram's own "%12.3f %2.12f %10d %14.2f", the last row without its last column.
        assert all(re.fullmatch(r" *\d+\.\d{3} \d\.\d{12} +\d+ +\d+\.\d\d", row) for row in rows[:-1])
        assert all(len(row) == 12 + 1 + 14 + 1 + 10 + 1 + 14 for row in rows[:-1])
        assert re.fullmatch(r" *\d+\.\d{3} 1\.0{12} +\d+", rows[-1])
        values = recorded(decoded(times["histogram"]))
        count = operations[operation]["count"]
        before = -1.0
        for row in rows:
            value_ms, share, total, *inverse = map(float, row.split())
            limit = value_ms * NANOS_PER_MILLI
            assert sum(n for value, n in values if value <= limit - 600) <= total
            assert total <= sum(n for value, n in values if value <= limit + 600)
            assert before < share <= total / count + 1e-9
            assert not inverse or inverse[0] == pytest.approx(1 / (1 - share), abs=0.006)
            before = share
        # Ten steps to the half, five to each further halving.
        assert [float(row.split()[1]) for row in rows[:7]] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55]
        mean, maximum, buckets = lines[len(rows) + 2 :]
        assert mean.startswith(f"#[Mean    = {times['mean_ns'] / NANOS_PER_MILLI:12.3f}, StdDeviation   = ")
        assert (
            maximum == f"#[Max     = {times['max_ns'] / NANOS_PER_MILLI:12.3f}, Total count    = {count:12d}]"
        )
        assert re.fullmatch(r"#\[Buckets = +\d+, SubBuckets     = +2048\]", buckets)


def test_hdrhistograms_reader_reads_the_interval_log(written):
    summary = json.loads((written / "run.json").read_text())
    path = written / "run.hlog"
    assert "#[Histogram log format version 1.3]" in path.read_text().splitlines()
    reader = HistogramLogReader(str(path), HdrHistogram(1, 60_000_000_000, 3))
    counts = {"get": 0, "set": 0}
    while (interval := reader.get_next_interval_histogram()) is not None:
        counts[interval.get_tag()] += interval.get_total_count()
        since_start_s = interval.get_start_time_stamp() / 1e3 - summary["started_unix_ns"] / 1e9
        assert abs(since_start_s - round(since_start_s)) < 0.01
        assert interval.get_end_time_stamp() - interval.get_start_time_stamp() == pytest.approx(1000)
    reader.input_file.close()
    assert counts == {name: summary["operations"][name]["count"] for name in counts}
    maximum = max(
        float(line.split(",")[3]) for line in path.read_text().splitlines() if line.startswith("Tag=")
    )
    # The log has three decimals of a millisecond; the histogram has three significant digits.
    assert maximum == pytest.approx(
        summary["operations"]["all"]["response"]["max_ns"] / NANOS_PER_MILLI, rel=0.002, abs=0.001
    )


def test_a_script_for_memtier_reads_the_memtier_format(written):
    document = json.loads((written / "memtier.json").read_text())
    stats = document["ALL STATS"]
    assert stats["Totals"]["Count"] == stats["Sets"]["Count"] + stats["Gets"]["Count"] == 5000
    assert stats["Totals"]["Ops/sec"] > 0 and stats["Gets"]["Misses/sec"] == 0
    for section in ("Sets", "Gets", "Totals"):
        found = stats[section]
        histogram = decoded(found["Percentile Latencies"]["Histogram log format"]["Compressed Histogram"])
        assert histogram.get_total_count() == found["Count"]
        assert found["Percentile Latencies"]["p50.00"] == pytest.approx(
            histogram.get_value_at_percentile(50) / 1000, abs=0.002, rel=0.002
        )
        assert found["Min Latency"] <= found["Average Latency"] <= found["Max Latency"]
        assert found["KB/sec"] > 0


def test_the_summary_has_the_requested_percentiles(written):
    summary = json.loads((written / "run.json").read_text())
    # Five values lie above the 99.9th of 5000.
    assert set(summary["operations"]["all"]["response"]["percentiles"]) == {"50", "99"}
    table = (written / "table.txt").read_text()
    heading = next(line for line in table.splitlines() if line.startswith("operation"))
    assert heading.split()[-5:] == ["mean", "p50", "p99", "p99.9", "max"]
    assert "\nVALID\n" in table and table.startswith("closed loop, N=4 clients")


def test_merged_files_equal_one_run(written, tmp_path):
    one = json.loads((written / "run.json").read_text())
    one["settings"]["seed"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(one))
    merged = tmp_path / "merged.json"
    files = (written / "run.json", other)
    result = run("load", "merge", *files, "--json-out-file", merged, "--hdr-file-prefix", tmp_path / "m")
    assert result.returncode == 0, result.stderr
    assert f"of which {other}: 4 clients" in result.stdout
    found = json.loads(merged.read_text())
    assert found["totals"]["requests"] == 10_000 and found["settings"]["clients"] == 8
    once = recorded(decoded(one["operations"]["all"]["response"]["histogram"]))
    twice = recorded(decoded(found["operations"]["all"]["response"]["histogram"]))
    assert twice == [(value, 2 * count) for value, count in once]
    # Ten values lie above the 99.9th of 10000.
    assert set(found["operations"]["all"]["response"]["percentiles"]) == {"50", "99", "99.9"}
    assert (tmp_path / "m_all.hgrm").read_text().splitlines()[-2].endswith("10000]")

    one_line(run("load", "merge", *files, written / "run.json"), "are the same run")
    one_line(run("load", "merge", written / "memtier.json"), "memtier.json: is not a summary")
    one_line(run("load", "merge", tmp_path / "none.json"), "none.json")
    one_line(run("load", "merge"), "FILE")
    one["started_unix_ns"] += 3600 * 10**9
    other.write_text(json.dumps(one))
    one_line(run("load", "merge", *files), "were not measured at the same time")
    one["valid"], one["reasons"], one["started_unix_ns"] = (
        False,
        ["2 of 9 values are stale"],
        one["started_unix_ns"] - 3600 * 10**9,
    )
    other.write_text(json.dumps(one))
    result = run("load", "merge", *files)
    assert result.returncode == 1 and f"INVALID: {other}: 2 of 9 values are stale" in result.stdout


def test_metrics_are_served_during_the_run():
    with backend() as (server,):
        command = [str(WAYSTAGE), "load", "--server", server, *map(str, LOAD), "--test-time", "100s"]
        command += ["--rate", "200", "--metrics", "127.0.0.1:0"]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"metrics at (\S+)", load.stderr.readline()).group(1)
            deadline = time.monotonic() + 60
            answered = 0
            while not answered and time.monotonic() < deadline:
                with urllib.request.urlopen(url, timeout=10) as page:
                    text = page.read().decode()
                answered = int(
                    re.search(r'waystage_load_requests_total\{operation="get"\} (\d+)', text).group(1)
                )
                time.sleep(0.05)
            assert answered > 0 and "waystage_load_offered_per_second 200.0" in text
            load.send_signal(signal.SIGINT)
            out, _ = load.communicate(timeout=60)
        finally:
            load.kill()
            load.wait()
    assert "note: ended early, after" in out


def test_the_seconds_file_grows_during_the_run_and_has_the_seconds_of_the_summary(tmp_path):
    lines, summary = tmp_path / "seconds.jsonl", tmp_path / "run.json"
    lines.write_text("of an earlier run\n")
    with backend() as (server,):
        arguments = [
            "load",
            "--server",
            server,
            *LOAD,
            "--warm-up",
            "1s",
            "--test-time",
            "60s",
            "--rate",
            "200",
        ]
        arguments += ["--seconds-file", lines, "--json-out-file", summary]
        load = subprocess.Popen([str(WAYSTAGE), *map(str, arguments)], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 50
            while lines.read_text().count("}\n") < 2:
                assert load.poll() is None and time.monotonic() < deadline, lines.read_text()
                time.sleep(0.05)
            load.send_signal(signal.SIGINT)
            load.wait(timeout=60)
        finally:
            load.kill()
            load.wait()
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    seconds = json.loads(summary.read_text())["seconds"]
    assert len(written) >= 2 and any(second["requests"] for second in written)
    known_at_the_end = ("measured", "intended")
    assert written == [
        {key: value for key, value in second.items() if key not in known_at_the_end} for second in seconds
    ]


def test_a_run_whose_seconds_cannot_be_written_has_its_summary(tmp_path):
    summary = tmp_path / "run.json"
    with backend() as (server,):
        load = ("load", "--server", server, *LOAD, "--requests", 500, "--json-out-file", summary)
        result = run(*load, "--seconds-file", "/dev/full")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("note: /dev/full: ") == 1 and "later seconds are not written" in result.stderr
    assert json.loads(summary.read_text())["totals"]["requests"] == 500


def test_a_run_without_a_summary_leaves_no_seconds_file(tmp_path):
    lines = tmp_path / "seconds.jsonl"
    one_line(run("load", "--server", "127.0.0.1:1", *LOAD, "--seconds-file", lines), "127.0.0.1:1")
    assert not lines.exists()


def test_invalid_output_arguments_print_one_line(tmp_path):
    load = ("load", "--server", "127.0.0.1:1")
    one_line(run(*load, "--json-compat", "memtier"), "--json-out-file")
    one_line(run(*load, "--json-out-file", tmp_path / "a", "--json-compat", "wrk"), "wrk", "memtier")
    one_line(run(*load, "--print-percentiles", "50,100"), "100", "percentile")
    one_line(run(*load, "--expect-hit-ratio", "90"), "90", "share")
    for flag in ("--failed-max", "--achieved-min"):
        for value in ("1%", "-0.1", "1.1", "nan"):
            one_line(run(*load, f"{flag}={value}"), flag, "share")
    one_line(
        run("load", "saturate", *load[1:], "--objective", "p99=1ms", "--failed-max", "0.1"), "--failed-max"
    )
    one_line(run(*load, "--hdr-file-prefix", tmp_path / "none" / "run"), "none/run_get.hgrm")
    one_line(run(*load, "--metrics", "nowhere"), "--metrics", "nowhere")
    kept = ("--json-out-file", tmp_path / "kept.json")
    one_line(run(*load, *kept, "--seconds-file", tmp_path / "none" / "s"), "none/s")
    assert not (tmp_path / "kept.json").exists()
    search = ("load", "saturate", *load[1:], "--objective", "p99=1ms")
    one_line(run(*search, "--seconds-file", tmp_path / "s"), "--seconds-file")


def test_a_search_says_how_long_it_takes():
    with backend() as (server,):
        search = (
            "load",
            "saturate",
            "--server",
            server,
            "--objective",
            "p99=20s",
            "--rate",
            50,
            "--rate-max",
            50,
        )
        result = run(*search, "--test-time", "3s", "--warm-up", "0s", "--clients", 4)
    first, second, *_ = result.stderr.splitlines()
    assert first.startswith("waystage: a run takes 3 s; about 11 rates") and ": 33 s, or up to 4 min" in first
    assert second == "run 1, climb: 50/s for 3 s; 8 rates left, 24 s to 3 min", result.stderr


def test_a_run_below_the_expected_hit_ratio_is_invalid(tmp_path):
    with backend() as (server,):
        load = ("load", "--server", server, "--requests", 500, "--ratio", "0:1", "--quiet")
        assert run(*load, "--expect-hit-ratio", "1").returncode == 0
        result = run(*load, "--expect-hit-ratio", "0.5", "--no-prefill", "--key-prefix", "other-")
    assert result.returncode == 1
    assert "INVALID: the hit ratio is 0.0000, and 0.5 was expected" in result.stdout
