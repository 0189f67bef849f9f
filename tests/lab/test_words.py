"""Words for the levels of factors, and the warning about a busy machine."""

from types import SimpleNamespace

import pytest

from waylab.analysis.across.answer.machine_load import busy_machine
from waylab.report.figures.figure import LOG, quantity_axis
from waylab.runfolder.gate_words import reasons_words
from waylab.runfolder.metric_words import value_words
from waylab.runfolder.words import labels_text, level_text, levels_text, pooled_text, time_text


@pytest.mark.parametrize(
    ("factor", "label", "words"),
    [
        ("replicas", "1", "1 replica"),
        ("replicas", "3", "3 replicas"),
        ("replicas", "half", "replicas half"),
        ("proxies", "1", "1 proxy"),
        ("data_size", "128", "data size 128"),
        ("dispatch", "shared", "dispatch shared"),
        ("test_time_s", "2", "test time 2 s"),
        ("backends.count", "3", "3 backends"),
        ("proxy.loops", "2", "2 proxy loops"),
        ("ratio", "1:19", "ratio 1:19"),
    ],
)
def test_a_level_reads_as_a_person_says_it(factor, label, words):
    assert level_text(factor, label) == words


def test_several_levels_are_a_list():
    assert labels_text("replicas", ["1", "3"]) == "1 or 3 replicas"
    assert levels_text({"clients": "128", "replicas": "1"}) == "128 clients, 1 replica"
    combinations = [{"clients": n, "dispatch": d} for n in ("1", "8") for d in ("pool", "fused")]
    assert pooled_text(combinations) == "the combinations of clients (1, 8) and dispatch (pool, fused)"
    assert pooled_text([{"clients": str(n)} for n in range(9)]) == "all 9 levels of clients"
    assert pooled_text([{}]) == ""


def test_a_factor_with_one_level_is_not_averaged_over():
    assert pooled_text([{"clients": "8", "replicas": "1"}]) == ""
    assert pooled_text([{"clients": n, "replicas": "1"} for n in ("1", "8")]) == "1 and 8 clients"
    many = [{"clients": str(n), "dispatch": d} for n in range(9) for d in ("pool", "fused")]
    assert pooled_text(many) == "the combinations of clients (9 levels) and dispatch (pool, fused)"


def made(foreign, steal=0.0):
    cpu = SimpleNamespace(foreign_share=foreign, steal_share=steal)
    return SimpleNamespace(content=SimpleNamespace(numbers=True), numbers=SimpleNamespace(cpu=cpu))


def test_a_busy_machine_is_named_with_its_number():
    assert busy_machine([made(0.02), made(0.05)]) == []
    assert busy_machine([made(None)]) == [] and busy_machine([]) == []
    (line,) = busy_machine([made(0.3), made(0.5)])
    assert "other programs used 40 % of its CPU time (worst trial: 50 %)" in line
    (line,) = busy_machine([made(0.02, 0.2)])
    assert "other virtual machines took 20 %" in line and "other programs" not in line


def test_an_axis_is_logarithmic_from_a_decade_on_and_says_so():
    linear = quantity_axis("y:Q", "time", "ms", [{"y": 1.0}, {"y": 9.0}], "y").to_dict()
    assert linear["title"] == "time (ms)" and linear["scale"]["zero"]
    wide = quantity_axis("y:Q", "time", "ms", [{"y": 1.0}, {"y": 11.0}], "y").to_dict()
    assert wide["title"] == f"time (ms, {LOG})" and wide["scale"]["type"] == "log"
    # Zero and negative values cannot be shown on a logarithmic axis.
    assert quantity_axis("y:Q", "time", "ms", [{"y": 0.0}, {"y": 11.0}], "y").to_dict()["scale"]["zero"]


def test_the_reasons_of_a_trial_name_gates_in_words():
    reasons = ["steal: 40 % of the machine is steal time, limit 10 %", "complete: proxy: ended with 1"]
    assert reasons_words(reasons) == (
        "steal time: 40 % of the machine is steal time, limit 10 %; "
        "all programs started, stopped in order and left their files: proxy: ended with 1"
    )
    assert reasons_words(["the folder of the trial is missing"]) == "the folder of the trial is missing"


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (999.6e3, "1 ms"),
        (999.4e3, "999 µs"),
        (999.6e6, "1 s"),
        (-999.6e3, "-1 ms"),
        (999.7, "1 µs"),
        (1234e9, "1,234 s"),
        (999.7e9, "1,000 s"),
        (0, "0 ns"),
    ],
)
def test_a_time_that_is_rounded_up_to_a_unit_has_that_unit(value_ns, text):
    assert time_text(value_ns) == text
    if value_ns > 1e6:
        assert value_words("response_mean_ns", value_ns) == text


def test_large_numbers_have_no_exponent():
    assert value_words("wal_bytes_per_request", 1234.5) == "1,234"
    assert value_words("commits_per_request", 0.98765) == "0.988"
    assert value_words("commits_per_request", 1e-5) == "1e-05"
