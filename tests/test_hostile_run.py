"""The short form of hostile_run.py. WAYSTAGE_HOSTILE_SECONDS is the time for each dispatch discipline."""

import os

import pytest
from hostile_run import DISCIPLINES, play
from programs import need

SECONDS = float(os.environ.get("WAYSTAGE_HOSTILE_SECONDS", "8"))


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_nothing_that_a_client_or_a_server_does_hurts_the_others(discipline, tmp_path):
    need("openssl", instead="the tests of limits, failures and transports cover single faults")
    figures, broken = play(discipline, SECONDS, 1, tmp_path)
    print(figures)
    assert not broken, "\n".join([*broken, *figures])
