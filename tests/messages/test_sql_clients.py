"""Programs in Go (pgx) and JavaScript (node-postgres) that send in their own transactions.

The clients are pinned by the lock files in `tests/clients/sql-go` and `tests/clients/sql-javascript`.
"""

import shutil
import urllib.parse

import pytest
from client_suites import CLIENTS, KEPT, fetched, go, must, run
from programs import need
from sql_place import sql_place

from waylab.messages import Client

INSTEAD = "psycopg covers the functions"
REFUSED = "WS003 urn:waystage:problem:unknown-queue"


@pytest.fixture(scope="module")
def place():
    with sql_place() as made:
        made.admin("CREATE TABLE purchase (customer text); GRANT ALL ON purchase TO app")
        yield made


@pytest.fixture
def client(place):
    with Client(place.url, sender="tester") as made:
        made.create_queue("orders")
        place.admin("DELETE FROM purchase")
        yield made
        made.delete_queue("orders")


def the_purchase_and_its_message(place, client):
    """Check that one purchase and its message are stored, and nothing of the one that was rolled back."""
    assert place.admin("SELECT count(*) FROM purchase") == 1
    message = client.pop("orders", receiver="bob")
    assert (message.sender, message.receiver, message.body) == ("shop", "bob", b"two apples")


def test_pgx(place, client):
    need("go", instead=INSTEAD)
    folder = CLIENTS / "sql-go"
    fetched(go("mod", "download", folder=folder), "pgx")
    program = KEPT / "sql-go" / "send"
    must(go("build", "-o", program, ".", folder=folder))
    output = must(run([program, place.server.url.replace("user=waystage", "user=app")]))
    assert output.splitlines() == ["true <nil>", "the payment failed", f"true {REFUSED}", "2 <nil>"]
    the_purchase_and_its_message(place, client)
    assert [message.body for message in client.pop_batch(10, "orders")] == [b"a", b"b"]


def test_node_postgres(place, client):
    need("node", "npm", instead=INSTEAD)
    source, folder = CLIENTS / "sql-javascript", KEPT / "sql-javascript"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "send.js"):
        shutil.copy(source / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    fetched(run(command, 300, cwd=folder), "the npm package pg")
    socket = urllib.parse.quote(str(place.server.folder), safe="")
    output = must(run(["node", folder / "send.js", f"postgresql://app@{socket}/postgres"]))
    assert output.splitlines() == ["true", "the payment failed", REFUSED, "2"]
    the_purchase_and_its_message(place, client)
    bodies = [message.body for message in client.pop_batch(10, "orders")]
    assert bodies == [b"a", b"b", b'{"apples": 2}']
