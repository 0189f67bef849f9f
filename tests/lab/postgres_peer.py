"""A real PostgreSQL for the tests: without one, a test is skipped, or fails if peers are required."""

import os

import pytest

from waylab.errors import LabError
from waylab.program import find_waystage
from waylab.testbed.postgres import PostgresPrograms, find_postgres


def postgres_or_skip(pgbench: bool = False) -> PostgresPrograms:
    """Return the programs; without them, skip or fail the test."""
    try:
        find_waystage()
        return find_postgres(pgbench)
    except LabError as error:
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, f"required here: {error}"
        pytest.skip(f"{error}; what needs no database is tested beside")
