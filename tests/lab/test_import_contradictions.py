"""`waylab import`: files that contradict themselves or what is given, and outputs that are easily misread."""

import copy
import json
import re

import pytest
from foreign_files import SAMPLES, hlog, memtier

from waylab.adapters import ReadOptions
from waylab.adapters.detect import read_foreign
from waylab.errors import LabError

K6, OHA, VEGETA = (
    json.loads((SAMPLES / name).read_text()) for name in ("k6-handle-summary.json", "oha.json", "vegeta.json")
)

READABLE = sorted({path.name for path in SAMPLES.iterdir()} - {"README.md", "memtier-interrupted.json"})


def read(tmp_path, text, **options):
    path = tmp_path / "one"
    path.write_text(text)
    (found,) = read_foreign(path, ReadOptions(**options))
    return found


def refused(tmp_path, text, words, **options):
    with pytest.raises(LabError, match=words) as error:
        read(tmp_path, text, **options)
    assert "\n" not in str(error.value)


def changed(content, *path_and_value):
    *keys, last, value = path_and_value
    found = copy.deepcopy(content)
    place = found
    for key in keys:
        place = place[key]
    place[last] = value
    return json.dumps(found)


def test_the_uncorrected_times_of_wrk2_are_not_read(tmp_path):
    """`wrk2 --u_latency` prints a second distribution below the corrected one, here with a tenth of the times."""
    text = (SAMPLES / "wrk2.txt").read_text()
    begin, end = text.index("  Latency Distribution"), text.index("  60018 requests in")
    second = text[begin:end].replace(
        "Recorded Latency", "Uncorrected Latency (measured without taking delayed starts into account)"
    )
    second = re.sub(r"([0-9.]+)ms", lambda match: f"{float(match[1]) / 10:.2f}ms", second)
    both = read(tmp_path, text[:end] + second + text[end:])
    once = read(tmp_path, text)
    assert both.corrected and both.operations == once.operations
    assert both.operations["all"].percentiles_ns["99"] == pytest.approx(11.18e6)


def test_what_a_script_prints_after_the_summary_of_wrk_is_not_read(tmp_path):
    text = (SAMPLES / "wrk.txt").read_text()
    found = read(tmp_path, text + "-----\n 50%  1.00us\n 99.9%  2.00us\n")
    assert found.operations == read(tmp_path, text).operations


@pytest.mark.parametrize("name", READABLE)
def test_a_byte_order_mark_and_the_ends_of_lines_of_windows_change_nothing(tmp_path, name):
    text = (SAMPLES / name).read_text()
    plain = read(tmp_path, text)
    (tmp_path / "two").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (other,) = read_foreign(tmp_path / "two", ReadOptions())
    assert other.throughput_per_s == plain.throughput_per_s
    assert other.operations["all"].percentiles_ns == plain.operations["all"].percentiles_ns


def test_only_requests_in_flight_at_the_end_of_oha_are_no_errors(tmp_path):
    errors = {"aborted due to deadline": 2, "deadline has elapsed": 5, "timeout": 3}
    assert read(tmp_path, changed(OHA, "errorDistribution", errors)).errors == 8


def test_k6_reports_failures_as_a_share_or_as_a_number(tmp_path):
    def failed(**values):
        return changed(K6, "metrics", "http_req_failed", {"values": values})

    count = K6["metrics"]["http_reqs"]["values"]["count"]
    assert read(tmp_path, failed(rate=0.25)).errors == round(0.25 * count)
    assert read(tmp_path, failed(rate=0.25, passes=25, fails=75)).errors == 25
    refused(tmp_path, failed(rate=0.2, passes=80, fails=20), "contradicts itself: 80 of 100 requests failed")


def test_files_that_contradict_themselves(tmp_path):
    times = ("metrics", "http_req_duration", "values")
    refused(tmp_path, changed(K6, *times, "p(99)", 0.5), "contradicts itself: its percentiles fall")
    refused(tmp_path, changed(K6, *times, "p(999)", 9.0), "has a percentile 999; none is above 100")
    refused(tmp_path, changed(K6, "metrics", "vus_max", {"values": {"max": -3}}), "no count is negative")
    codes = {"200": 100, "500": 50}
    refused(tmp_path, changed(VEGETA, "status_codes", codes), "success is 1, but 100 of 150 replies are 2xx")
    stats = ("ALL STATS", "Totals")
    refused(tmp_path, changed(memtier(8, 4000), *stats, "Connection Errors", -5), "no count is negative")
    latencies = (*stats, "Percentile Latencies", "p50.00")
    refused(tmp_path, changed(memtier(8, 4000), *latencies, 30), "its percentiles fall")
    runtime = ("ALL STATS", "Runtime")
    refused(tmp_path, changed(memtier(8, 4000), *runtime, "Time unit", "SECONDS"), "should be 'MILLISECONDS'")
    assert read(tmp_path, changed(memtier(8, 4000), *runtime, "Interrupted", "true")).partial


def test_a_log_of_histograms_that_counts_twice_or_has_another_unit(tmp_path):
    text = hlog()
    refused(tmp_path, text + hlog(), "has two intervals with the same start; give a file for each run")
    refused(tmp_path, text, "shows the unit ns, and --unit ms is given; leave --unit out", unit_ns=1_000_000)
    assert read(tmp_path, text, unit_ns=1).requests == 4000


@pytest.mark.parametrize(
    ("heading", "row", "words"),
    [
        ("response_p999_ms", "9", "line 2: has a percentile 999; none is above 100, and p99.9 is p99_9"),
        ("response_p99_ms,response_p99_us", "9,9000", "has two columns of response_p99; remove one"),
        ("measured_s,requests", "10,40", "line 2: throughput_per_s is 10, but 40 requests in 10 s"),
        ("requests", "1_000", "line 2: requests is '1_000'"),
        ("requests", "\u0664\u0660", "line 2: requests is "),
    ],
)
def test_columns_and_numbers_that_are_easily_misread(tmp_path, heading, row, words):
    refused(tmp_path, f"throughput_per_s,response_mean_ms,{heading}\n10,2,{row}\n", words)
