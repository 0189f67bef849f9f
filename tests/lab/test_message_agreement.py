"""Contradictions in the summary of a load of messages: each is one line, and the trial is not used."""

from types import SimpleNamespace

import numpy as np
import pytest
from made import made_load
from msgspec import to_builtins
from synthetic import histogram_text
from test_agreement import changed, result_of, trial_of

from waylab.analysis.trial.message_agreement import message_disagreements
from waylab.runfolder import paths


def contradictions(load, operations=""):
    """`operations` are the planned ones."""
    return message_disagreements(SimpleNamespace(load=SimpleNamespace(operations=operations)), load)


def summary(changes):
    """Ten sends and ten pops in each of three seconds, the first of them warm-up; `changes` are by dotted place."""
    times = histogram_text(np.full(10, 1_000_000))
    half = {"response": {"mean_ns": 1e6, "std_ns": 0.0, "histogram": histogram_text(np.full(20, 1_000_000))}}
    pops, sends = (
        {"count": 20, "hits": 20, "misses": 0, **half},
        {"count": 20, "hits": 0, "misses": 0, **half},
    )
    parts = {
        "totals": {"requests": 40, "hits": 20, "misses": 0, "errors": 0, "requests_answered": 60},
        "operations": {
            "all": {"count": 40, **half},
            "get": pops,
            "set": sends,
            "messages": {"pop": pops, "send": sends},
        },
        "seconds": [
            {
                "second": number,
                "measured": number > 0,
                "requests": 20,
                "errors": 0,
                "hits": 10,
                "misses": 0,
                "histograms": {"get": times, "set": times},
            }
            for number in range(3)
        ],
        "settings": {"messages": {"verify": True, "operations": "send:1,pop:1"}},
        "messages": {"verified": True, "received": 35, "drained": 5, "peeked": 0},
    }
    content = to_builtins(made_load(**parts))
    for place, value in changes.items():
        *path, last = place.split(".")
        inner = content
        for key in path:
            inner = inner[int(key) if isinstance(inner, list) else key]
        inner[last] = value
    return made_load(**content)


def test_a_true_summary_has_no_contradiction():
    assert list(contradictions(summary({}))) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"totals.requests_answered": None}, "the number of answered requests is missing"),
        ({"messages.verified": False}, "messages were not verified, but the setting verify is True"),
        (
            {"settings.messages.operations": "send:1,peek:1"},
            "the operations send:1,peek:1, planned: send:1,pop:1",
        ),
        ({"operations.get.count": 22}, "22 reads, but 20 requests of operations that read"),
        ({"messages.lost": 1}, "found its run valid, but counted messages: 1 lost"),
        ({"messages.received": 105}, "clients received 100 messages, but 30 reads found one"),
        ({"messages.peeked": 1}, "clients received 31 messages, but 30 reads found one"),
        ({"messages.drained": 36}, "36 messages were received after the window, but only 35 in all"),
        ({"seconds.0.hits": 30}, "second 0: 30 reads with or without a message, 10 in its histogram"),
        ({"seconds.1.hits": 0}, "second 1: 0 reads with or without a message, 10 in its histogram"),
        ({"seconds.2.misses": 1}, "second 2: 11 reads with or without a message, 10 in its histogram"),
        (
            {"seconds.2.histograms": {"get": histogram_text(np.full(5, 1_000_000))}},
            "second 2: 10 reads with or without a message, 5 in its histogram",
        ),
    ],
)
def test_a_contradiction_is_one_line(change, line):
    found = list(contradictions(summary(change)))
    assert found and line in found[0] and "\n" not in found[0]


def test_operations_are_those_of_the_plan():
    (line,) = contradictions(summary({"settings": {}}), "send:1,peek:1")
    assert line == "there are requests pop, planned: send:1,peek:1"
    assert list(contradictions(summary({"settings": {}}), "send, pop:3,receive")) == []
    assert list(contradictions(summary({"settings": {}}), "d15")) == []


def test_older_summaries_are_not_compared_where_they_left_out_numbers():
    assert list(contradictions(summary({"messages.drained": None, "settings": {}}))) == []


def test_an_invalid_run_may_have_lost_messages():
    assert list(contradictions(summary({"messages.lost": 1, "valid": False, "reasons": ["1 lost"]}))) == []


def test_a_load_of_memcached_has_no_messages():
    assert list(contradictions(made_load())) == []


def test_a_valid_run_has_no_reason_why_it_is_not(run_folder):
    changed(trial_of(run_folder)[1] / paths.LOAD, lambda load: load.update(reasons=["late"]))
    (reason,) = result_of(run_folder).reasons
    assert reason == "agreement: the run is called valid, but there is a reason why it is not: late"
