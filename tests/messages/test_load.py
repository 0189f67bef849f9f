"""Tests the load generator with a live service: several agents, and the search for a rate."""

import json
import re
import subprocess
from contextlib import contextmanager

import pytest
from programs import WAYSTAGE

COUNTS = (
    "lost",
    "doubled",
    "torn",
    "unknown",
    "misdelivered",
    "out_of_order",
    "sends_in_doubt",
    "pops_in_doubt",
)


def load(*arguments):
    """Run a load and return its result."""
    command = [str(WAYSTAGE), "load", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@contextmanager
def agent():
    """Run an agent, and yield its address."""
    command = [str(WAYSTAGE), "load", "agent", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield re.search(r"ready on (\S+)", process.stdout.readline()).group(1)
        finally:
            process.kill()


def test_agents_have_queues_of_their_own_and_their_counts_are_added(url, tmp_path):
    out = tmp_path / "summary.json"
    with agent() as one, agent() as other:
        words = ["--messages", url, "--agent", one, "--agent", other, "--clients", 6, "--requests", 1201]
        result = load(*words, "--operations", "send:3,send-to:2,pop:5,peek", "--json-out-file", out)
    assert out.exists(), result
    summary = json.loads(out.read_text())
    messages, parts = summary["messages"], summary["parts"]
    assert (result.returncode, summary["valid"], len(parts)) == (0, True, 2), result
    assert [messages[name] for name in COUNTS] == [0] * len(COUNTS), result
    assert messages["acknowledged"] == messages["received"] > 300
    assert sum(operation["count"] for operation in summary["operations"]["messages"].values()) == 1201
    assert min(report["share"]["requests"] for report in summary["coordination"]["agents"]) == 600


@pytest.mark.parametrize("argument", [["--prefill", "10"], ["--queue-prefix", "x"], ["--token-file", "x"]])
def test_what_every_agent_would_have_for_itself_is_refused(argument):
    result = load("--messages", "http://127.0.0.1:1", "--agent", "127.0.0.1:1", *argument)
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 2 and len(lines) == 1 and argument[0] in lines[0], result


def test_a_search_ends_at_what_two_clients_can_ask(url, tmp_path):
    out = tmp_path / "search.json"
    # Two connections with one request each are the limit: the search stops when more requests are due than answered.
    objective = ["--objective", "p50=200ms", "--precision", "10%", "--extensions", 0]
    words = ["--messages", url, "--clients", 2, "--rate", 200, "--warm-up", "200ms", "--test-time", "3s"]
    result = load("saturate", *words, *objective, "--json-out-file", out)
    # A run this short decides nothing with certainty, and its answer is not confirmed.
    assert out.exists() and result.returncode in (0, 1), result
    found = json.loads(out.read_text())
    climb = [probe for probe in found["probes"] if probe["step"] == "climb"]
    # The search climbs until a run contradicts it; a result that a later run contradicts is dropped.
    outcomes = [probe["outcome"] in ("met", "undecided") for probe in climb]
    assert outcomes == [True] * (len(climb) - 1) + [False], result
    assert 0 < found["finding"]["rate_per_s"] < climb[-1]["rate_per_s"], result
