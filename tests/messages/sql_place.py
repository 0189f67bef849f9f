"""A PostgreSQL server with a message service, and roles for the tests of the SQL functions."""

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from kill_run import Postgres
from postgres_peer import postgres_or_skip
from service import serving

# Without a notification, polls would wait so long. The service pops again after this time only.
POLL_INTERVAL_S = 40


class Server(Postgres):
    """A server that allows prepared transactions."""

    settings = (*Postgres.settings, "max_prepared_transactions=4")


class Place:
    """A PostgreSQL server with a service."""

    def __init__(self, server, url):
        self.server, self.url = server, url

    def connect(self, user="app", **options):
        """Connect as this role."""
        options = {"autocommit": True, **options}
        return psycopg.connect(self.server.url.replace("user=waystage", f"user={user}"), **options)

    def admin(self, statement, *parameters):
        """Run a statement as the owner of the tables, and return the first value."""
        with self.connect("waystage") as connection:
            done = connection.execute(statement, parameters or None)
            return done.fetchone()[0] if done.description else None

    def until(self, statement, *parameters):
        """Wait until the statement returns true."""
        for _ in range(6000):
            if self.admin(statement, *parameters):
                return
            time.sleep(0.02)
        pytest.fail(f"it does not become true: {statement}")


@contextmanager
def sql_place():
    """Run a server with a service, whose role `app` can execute the functions and `stranger` cannot."""
    postgres_or_skip()
    # A short path that every user can enter: the path of PostgreSQL's socket has a limit, and its user is not root.
    with tempfile.TemporaryDirectory(prefix="waystage-sql-", dir="/tmp") as name:
        server = Server(Path(name) / "one")
        config = Path(name) / "messages.toml"
        config.write_text(f'poll-interval = "{POLL_INTERVAL_S}s"\n')
        try:
            with serving("--config", config, database=server.url) as url:
                made = Place(server, url)
                made.admin("CREATE ROLE app LOGIN")
                made.admin("CREATE ROLE stranger LOGIN")
                for permission in ("send", "receive"):
                    made.admin("SELECT waystage_grant('app', %s)", permission)
                yield made
        finally:
            server.end()
