"""The short form of churn.py: pops read few pages although a snapshot or a transaction keeps removed rows alive."""

import os
import tempfile
from pathlib import Path

import pytest
from churn import Probe, failures, run
from postgres_peer import postgres_or_skip

MESSAGES = 20_000
SAMPLES = 10
# No low-water mark passes an open transaction with an id, so pops read past the messages taken since it began. Here
# these are up to 4000, because the workers of a busy machine overshoot, or 1000 for each of the four queues: 30 pages.
WRITER_RATIO_MAX = 6.0


@pytest.fixture
def folder():
    programs = postgres_or_skip().folder
    # The folder may have links to some programs only.
    if not (programs / "initdb").resolve().with_name("psql").exists():
        absent = "there is no psql beside PostgreSQL's programs; apt-get install postgresql"
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, f"required here: {absent}"
        pytest.skip(absent)
    with tempfile.TemporaryDirectory(prefix="waystage-churn-", dir="/tmp") as name:
        yield Path(name)


def test_pops_read_few_pages_after_many_sends_and_pops(folder):
    probes = run(MESSAGES, folder, SAMPLES)
    results = "\n".join(probe.line() for probe in probes)
    assert failures(probes, WRITER_RATIO_MAX) == [], results
    assert {probe.held for probe in probes} == {"", "snapshot", "writer"}, results
    assert all(min(pages) > 0 for probe in probes for pages in probe.pages.values()), results


def test_too_many_pages_are_a_failure():
    probes = [Probe(0.4, held, {}, {"pop": (21.0, 10.0)}, (1.0, 1.0)) for held in ("", "snapshot", "writer")]
    assert failures(probes) == ["40%: a pop reads 2.10 times the pages of a fresh table"] * 3
    assert len(failures(probes, 6.0)) == 2, "only while a transaction with an id is open"
