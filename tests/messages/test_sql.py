"""Tests of the SQL functions beside a running service: psycopg sends and takes messages in its own transactions."""

import itertools
import re
import subprocess
import threading
import time

import httpx
import psycopg
import pytest
from programs import ROOT, WAYSTAGE
from psycopg import errors
from psycopg.types.json import Jsonb
from sql_place import POLL_INTERVAL_S, sql_place

from waylab.messages import Client, ProblemError

PAGE = (ROOT / "docs/messages-sql.md").read_text()
NUMBERS = itertools.count()
# Neither delayed nor in flight.
NONE_INVISIBLE = """SELECT count(*) = 0 FROM invisible_message AS m JOIN queue ON queue.id = m.queue_id
    WHERE queue.name = %s AND deleted_at IS NULL"""
# The functions for applications, with arguments.
ARGUMENTS = {
    "waystage_send": "'q', 'x'::text, 'app'",
    "waystage_send_batch": "'q', '{x}'::text[], 'app'",
    "waystage_pop": "'q'",
    "waystage_receive": "'q'",
    "waystage_acknowledge": "'t'",
}


@pytest.fixture(scope="module")
def place():
    with sql_place() as made:
        yield made


@pytest.fixture
def client(place):
    with Client(place.url, sender="app") as made:
        yield made


@pytest.fixture
def queue(client):
    name = f"q{next(NUMBERS)}"
    assert client.create_queue(name)
    return name


@pytest.fixture
def app(place):
    with place.connect() as connection:
        yield connection


def call(connection, text, *parameters):
    """Return the value of one function call."""
    return connection.execute(f"SELECT {text}", parameters or None).fetchone()[0]


def drain(client, queue, receiver=None):
    """Pop everything, and return the bodies."""
    found = []
    while message := client.pop(queue, receiver=receiver):
        found.append(message.body)
    return found


def test_a_message_exists_from_the_commit_on_and_never_after_a_rollback(app, client, queue):
    with pytest.raises(RuntimeError), app.transaction():
        call(app, "waystage_send(%s, 'rolled back', 'app')", queue)
        raise RuntimeError
    with app.transaction():
        number = call(app, "waystage_send(%s, 'kept', 'app', receiver => 'bob')", queue)
        assert client.pop(queue, receiver="bob") is None
        with pytest.raises(RuntimeError), app.transaction():
            # A savepoint.
            call(app, "waystage_send(%s, 'of the savepoint', 'app', receiver => 'bob')", queue)
            raise RuntimeError
        with pytest.raises(psycopg.Error), app.transaction():
            call(app, "waystage_send('no such queue', 'x', 'app')")
        call(app, "waystage_send(%s, 'last', 'app', receiver => 'bob')", queue)
    message = client.pop(queue, receiver="bob")
    assert (message.id, message.sender, message.receiver, message.body) == (number, "app", "bob", b"kept")
    assert drain(client, queue, "bob") == [b"last"]
    # A connection that ends inside its transaction.
    other = psycopg.connect(app.info.dsn)
    call(other, "waystage_send(%s, 'lost', 'app')", queue)
    other.close()
    assert drain(client, queue) == []


def test_an_aborted_transaction_sends_nothing_and_has_the_usual_error(app, client, queue):
    app.execute("BEGIN")
    call(app, "waystage_send(%s, 'x', 'app')", queue)
    with pytest.raises(psycopg.errors.DivisionByZero):
        app.execute("SELECT 1 / 0")
    with pytest.raises(errors.InFailedSqlTransaction) as failure:
        call(app, "waystage_send(%s, 'x', 'app')", queue)
    assert failure.value.sqlstate == "25P02"
    app.execute("COMMIT")
    assert drain(client, queue) == []


def test_the_commit_wakes_a_waiting_poll(place, app, client, queue):
    found = []

    def poll():
        with Client(place.url, sender="app") as other:
            began = time.monotonic()
            found.append((other.pop(queue, wait_s=60), time.monotonic() - began))

    thread = threading.Thread(target=poll)
    thread.start()
    with app.transaction():
        call(app, "waystage_send(%s, 'at once', 'app')", queue)
        # The poll has looked, and waits.
        time.sleep(1)
    thread.join(120)
    ((message, took_s),) = found
    assert message.body == b"at once"
    assert took_s < POLL_INTERVAL_S / 2, "the poll was not woken"


def test_without_notify_nothing_is_notified(place, app, queue):
    channel = place.admin(
        "SELECT 'waystage_messages_' || relnamespace FROM pg_class WHERE oid = 'queue'::regclass"
    )
    with place.connect() as listener:
        listener.execute(f"LISTEN {channel}")
        app.execute("SET waystage.notify = off")
        call(app, "waystage_send(%s, 'x', 'app')", queue)
        app.execute("RESET waystage.notify")
        call(app, "waystage_send(%s, 'x', 'app')", queue)
        call(app, "waystage_send(%s, 'x', 'app', delay => '1 hour')", queue)
        # Another service announces its polls on this channel.
        seen = [
            one.payload
            for one in listener.notifies(timeout=1, stop_after=None)
            if one.payload.startswith("sql ")
        ]
    assert seen == [f"sql changed {queue}"]


def test_order_and_bodies(app, client, queue):
    expected = []
    for number in range(10):
        client.send(queue, f"http {number}")
        call(app, "waystage_send(%s, %s, 'app')", queue, f"ä {number}")
        call(app, "waystage_send(%s, %s, 'app')", queue, bytes([0, 255, number]))
        call(app, "waystage_send(%s, %s, 'app')", queue, Jsonb({"n": number}))
        numbers = call(app, "waystage_send_batch(%s, %s::text[], 'app')", queue, ["a", "b"])
        assert numbers == sorted(numbers)
        ones = [f"http {number}", f"ä {number}", bytes([0, 255, number]), f'{{"n": {number}}}', "a", "b"]
        expected += [one if isinstance(one, bytes) else one.encode() for one in ones]
    assert drain(client, queue) == expected
    call(
        app,
        "waystage_send_batch(%s, %s::bytea[], 'app', receivers => %s)",
        queue,
        [b"1", b"2"],
        ["bob", None],
    )
    call(app, "waystage_send_batch(%s, %s, 'app')", queue, [Jsonb([1])])
    assert drain(client, queue) == [b"2", b"[1]"]
    assert drain(client, queue, "bob") == [b"1"]


def busy(client, queue, number):
    """Send and pop one by one, with pauses in which the service reads its low-water mark."""
    for index in range(number):
        client.send(queue, str(index))
        assert client.pop(queue).body == str(index).encode()
        if index % 16 == 15:
            time.sleep(0.06)


@pytest.mark.parametrize("late", ["send", "savepoint", "delay", "key", "prepared"])
def test_a_late_commit_is_found_after_the_service_has_popped_younger_messages(place, client, queue, late):
    busy(client, queue, 32)
    with place.connect(autocommit=late == "prepared") as app:
        if late == "prepared":
            # PostgreSQL does not prepare a transaction that has notified.
            app.execute("SET waystage.notify = off; BEGIN")
        if late == "savepoint":
            app.execute("SAVEPOINT one")
            call(app, "waystage_send(%s, 'rolled back', 'app')", queue)
            app.execute("ROLLBACK TO SAVEPOINT one")
            app.execute("SAVEPOINT two")
        more = {"delay": ", delay => '10 ms'", "key": ", key => 'k'"}.get(late, "")
        call(app, f"waystage_send(%s, 'late', 'app'{more})", queue)
        if late == "savepoint":
            app.execute("RELEASE SAVEPOINT two")
        busy(client, queue, 64)
        if late == "prepared":
            app.execute("PREPARE TRANSACTION 'late'")
        time.sleep(1.5)
        busy(client, queue, 32)
        app.execute("COMMIT PREPARED 'late'" if late == "prepared" else "COMMIT")
    client.send(queue, "younger")
    if late == "delay":
        place.until(NONE_INVISIBLE, queue)
    assert drain(client, queue) == [b"late", b"younger"]


def test_a_delay_that_ended_long_before_the_commit_is_found_by_the_next_full_scan(place, client, queue):
    with place.connect("waystage", autocommit=False) as owner:
        call(owner, "waystage_send(%s, 'late', 'app', delay => '1 s')", queue)
        # As if the transaction had been open for an hour.
        owner.execute("UPDATE invisible_message SET due_at = now() - interval '1 hour' WHERE body = 'late'")
        owner.commit()
    place.until(NONE_INVISIBLE, queue)
    assert drain(client, queue) == [b"late"]


def test_delays_and_expiries_count_from_the_call(place, app, client, queue):
    with place.connect("waystage") as owner, owner.transaction():
        owner.execute("SELECT pg_sleep(0.3)")
        call(owner, "waystage_send(%s, 'x', 'app', delay => '0.2 s', expiry => '1 day')", queue)
        # After the commit, the message may become visible at any time.
        times = "SELECT due_at - sent_at, expires_at - sent_at FROM invisible_message WHERE expires_at IS NOT NULL"
        delay, expiry = owner.execute(times).fetchone()
        assert (delay.total_seconds(), expiry.days) == (0.2, 1)
        assert owner.execute(
            "SELECT bool_and(sent_at >= now() + interval '0.3 s') FROM invisible_message WHERE expires_at IS NOT NULL"
        ).fetchone() == (True,)
    place.until(NONE_INVISIBLE, queue)
    assert drain(client, queue) == [b"x"]
    call(app, "waystage_send(%s, 'x', 'app', expiry => '1 ms')", queue)
    time.sleep(0.1)
    assert drain(client, queue) == []


def test_keys_are_shared_with_http(app, client, queue):
    first = call(app, "waystage_send(%s, 'x', 'app', key => 'k')", queue)
    assert call(app, "waystage_send(%s, 'x', 'app', key => 'k', delay => '1 h')", queue) == first
    assert client.send(queue, "x", key="k") == first
    other = client.send_batch(queue, ["a", "b"], key="b")
    assert call(app, "waystage_send_batch(%s, '{a,b}'::text[], 'app', key => 'b')", queue) == other
    with pytest.raises(ProblemError) as problem:
        client.send(queue, "y", key="k")
    assert problem.value.type == "idempotency-key-reused"
    client.create_queue(queue, expiry_s=1)
    # The first send's delay and expiry apply.
    assert call(app, "waystage_send(%s, 'x', 'app', key => 'k', delay => '1 h')", queue) == first
    with pytest.raises(RuntimeError), app.transaction():
        call(app, "waystage_send(%s, 'x', 'app', key => 'rolled-back')", queue)
        raise RuntimeError
    assert client.send(queue, "other", key="rolled-back") > first
    assert drain(client, queue) == [b"x", b"a", b"b", b"other"]


LONG = "n" * 81
NAME = ("WS002", "invalid-name")
INVALID = ("WS001", "invalid-request")
# Arguments in SQL, the request with the same mistake, and the error of both.
MISTAKES = [
    ("'no-such-queue', 'x', 'app'", "POST no-such-queue/messages", {}, ("WS003", "unknown-queue")),
    (f"'{LONG}', 'x', 'app'", f"POST {LONG}/messages", {}, NAME),
    ("'a b', 'x', 'app'", "POST a%20b/messages", {}, NAME),
    ("'-a', 'x', 'app'", "POST -a/messages", {}, NAME),
    ("E'{q}\\n', 'x', 'app'", "POST {q}%0A/messages", {}, NAME),
    ("'{q}', 'x', 'ä'", "POST {q}/messages", {"Waystage-Sender": b"\xc3\xa4"}, NAME),
    ("'{q}', 'x', ''", "POST {q}/messages", {"Waystage-Sender": ""}, NAME),
    ("'{q}', 'x', 'app', receiver => ''", "POST {q}/messages?to=", {}, NAME),
    ("'{q}', 'x', 'app', receiver => '.'", "POST {q}/messages?to=.", {}, NAME),
    ("'{q}', 'x', 'app', delay => '361 h'", "POST {q}/messages?delay=361h", {}, INVALID),
    ("'{q}', 'x', 'app', delay => '-1 s'", "POST {q}/messages?delay=-1s", {}, INVALID),
    ("'{q}', 'x', 'app', expiry => '0'", "POST {q}/messages?expiry=0s", {}, INVALID),
    ("'{q}', 'x', 'app', expiry => '401 days'", "POST {q}/messages?expiry=9624h", {}, INVALID),
    (
        "'{q}', 'x', 'app', delay => '1 s', expiry => '1 s'",
        "POST {q}/messages?delay=1s&expiry=1s",
        {},
        ("WS005", "never-visible"),
    ),
    ("'{q}', 'x', 'app', key => 'a b'", "POST {q}/messages", {"Idempotency-Key": "a b"}, INVALID),
    ("'{q}', 'x', 'app', key => ''", "POST {q}/messages", {"Idempotency-Key": ""}, INVALID),
    (f"'{{q}}', 'x', 'app', key => '{LONG}'", "POST {q}/messages", {"Idempotency-Key": LONG}, INVALID),
    (
        "'{q}', repeat('x', 262145), 'app'",
        "POST {q}/messages",
        {"body": "x" * 262145},
        ("WS004", "body-too-large"),
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[0][:60])
def test_mistakes_have_the_same_problem_as_over_http(place, app, client, queue, mistake):
    arguments, request, headers, (sqlstate, problem) = mistake
    with pytest.raises(psycopg.Error) as failure:
        app.execute(f"SELECT waystage_send({arguments.replace('{q}', queue)})")
    assert failure.value.sqlstate == sqlstate
    assert failure.value.diag.message_detail == f"urn:waystage:problem:{problem}"
    assert "\n" not in failure.value.diag.message_primary
    assert f"| `{sqlstate}` | `urn:waystage:problem:{problem}` |" in PAGE
    method, path = request.replace("{q}", queue).split(" ")
    body = headers.get("body", "x")
    sent = {"Waystage-Sender": "app", **{name: value for name, value in headers.items() if name != "body"}}
    reply = httpx.request(method, f"{place.url}/v1/queues/{path}", content=body, headers=sent)
    assert reply.json()["type"] == f"urn:waystage:problem:{problem}", reply.text
    assert drain(client, queue) == []


def test_mistakes_that_only_sql_has(app, client, queue):
    mistakes = [
        f"waystage_send('{queue}', NULL::text, 'app')",
        f"waystage_send('{queue}', 'x', 'app', delay => NULL)",
        f"waystage_send_batch('{queue}', '{{}}'::text[], 'app')",
        f"waystage_send_batch('{queue}', NULL::text[], 'app')",
        f"waystage_send_batch('{queue}', '{{a,NULL}}'::text[], 'app')",
        f"waystage_send_batch('{queue}', array_fill('x'::text, ARRAY[101]), 'app')",
        f"waystage_send_batch('{queue}', '{{a,b}}'::text[], 'app', receivers => '{{c}}')",
        f"waystage_send_batch('{queue}', '{{{{a,b}},{{c,d}}}}'::text[], 'app', receivers => '{{{{a,b}},{{c,d}}}}')",
        f"waystage_pop('{queue}', max => 0)",
        f"waystage_pop('{queue}', max => 101)",
        f"waystage_receive('{queue}', lease => '0')",
        f"waystage_receive('{queue}', lease => '13 hours')",
    ]
    for mistake in mistakes:
        with pytest.raises(psycopg.Error) as failure:
            app.execute(f"SELECT {mistake}")
        assert failure.value.sqlstate == "WS001", (mistake, failure.value)
    for mistake in (
        f"waystage_send('{queue}', 'x', NULL)",
        "waystage_send(NULL, 'x', 'app')",
        "waystage_pop('a b')",
    ):
        with pytest.raises(psycopg.Error) as failure:
            app.execute(f"SELECT {mistake}")
        assert failure.value.sqlstate == "WS002", (mistake, failure.value)
    with pytest.raises(errors.ReadOnlySqlTransaction):
        app.execute(f"BEGIN READ ONLY; SELECT waystage_send('{queue}', 'x', 'app')")
    app.rollback()
    app.execute(f"BEGIN; SELECT waystage_send('{queue}', 'x', 'app')")
    with pytest.raises(errors.FeatureNotSupported):
        app.execute("PREPARE TRANSACTION 'refused'")
    app.rollback()
    assert drain(client, queue) == []


def test_limits_can_be_changed(place, app, client, queue):
    place.admin("UPDATE waystage_sql_limits SET body_bytes = 3, batch_messages = 2")
    try:
        call(app, "waystage_send(%s, 'abc', 'app')", queue)
        for bad in ("waystage_send(%s, 'abcd', 'app')", "waystage_send_batch(%s, '{a,b,c}'::text[], 'app')"):
            with pytest.raises(psycopg.Error):
                call(app, bad, queue)
    finally:
        place.admin("UPDATE waystage_sql_limits SET body_bytes = DEFAULT, batch_messages = DEFAULT")
    assert drain(client, queue) == [b"abc"]


def test_rights(place, client, queue):
    with place.connect("stranger") as stranger:
        for name, arguments in ARGUMENTS.items():
            with pytest.raises(errors.InsufficientPrivilege) as failure:
                stranger.execute(f"SELECT {name}({arguments})")
            assert failure.value.diag.message_primary == f"permission denied for function {name}"
        with pytest.raises(errors.InsufficientPrivilege):
            stranger.execute("SELECT waystage_grant('stranger', 'send')")
    with place.connect() as app:
        for forbidden in (
            "SELECT * FROM message",
            "SELECT waystage_hold_queue('q')",
            "SELECT waystage_grant('app', 'send')",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                app.execute(forbidden)
        # Objects of the caller do not get in the way of those that the functions use.
        app.execute("CREATE TEMPORARY TABLE message (id bigint); CREATE TEMPORARY TABLE queue (name text)")
        app.execute(
            "SET search_path = pg_temp, public; SET default_transaction_isolation = 'repeatable read'"
        )
        app.execute("SELECT public.waystage_send(%s, 'x', 'app')", (queue,))
    assert drain(client, queue) == [b"x"]
    public = "has_function_privilege('stranger', oid, 'EXECUTE')"
    assert place.admin(f"SELECT count(*) FROM pg_proc WHERE proname ~ '^waystage_' AND {public}") == 0
    assert place.admin("SELECT count(*) FROM pg_proc WHERE prosecdef AND proname ~ '^waystage_'") == 9
    unsafe = "SELECT count(*) FROM pg_proc WHERE prosecdef AND NOT proconfig @> '{\"search_path=public, pg_temp\"}'"
    assert place.admin(unsafe) == 0
    for name in ARGUMENTS:
        assert f"`{name}(" in PAGE


def test_pops_take_part_in_the_transaction(place, app, client, queue):
    sent = [(f"{number}", "bob" if number % 3 == 0 else None) for number in range(9)]
    for body, receiver in sent:
        client.send(queue, body, receiver=receiver)
    with pytest.raises(RuntimeError), app.transaction():
        assert len(app.execute("SELECT * FROM waystage_pop(%s, 'bob', 100)", (queue,)).fetchall()) == len(
            sent
        )
        raise RuntimeError
    with place.connect() as other, other.transaction():
        first = other.execute(
            "SELECT body, sender, receiver FROM waystage_pop(%s, 'bob')", (queue,)
        ).fetchall()
        assert first == [(b"0", "app", "bob")]
        # Others skip the message, and find the next ones in their order, over both interfaces.
        assert client.pop(queue, receiver="bob").body == b"1"
        rows = app.execute("SELECT body FROM waystage_pop(%s, 'bob', 3)", (queue,)).fetchall()
        assert rows == [(b"2",), (b"3",), (b"4",)]
        assert app.execute("SELECT body FROM waystage_pop(%s)", (queue,)).fetchall() == [(b"5",)]
    assert drain(client, queue, "bob") == [b"6", b"7", b"8"]


def test_leases_are_shared_with_http(place, app, client, queue):
    for body in "abcd":
        client.send(queue, body)
    rows = app.execute(
        "SELECT lease_token, attempt, body FROM waystage_receive(%s, max => 2, lease => '1 h')", (queue,)
    )
    (one, attempt, body), (two, *_) = rows.fetchall()
    assert (attempt, body) == (1, b"a")
    client.acknowledge(one)
    client.nack(two)
    assert call(app, "waystage_acknowledge(%s)", one) is True, "again"
    assert call(app, "waystage_acknowledge(%s)", two) is False, "nacked"
    assert call(app, "waystage_acknowledge('nonsense')") is False
    place.until(NONE_INVISIBLE, queue)
    again = client.receive(queue, lease_s=3600)
    assert (again.body, again.attempt) == (b"b", 2)
    assert call(app, "waystage_acknowledge(%s)", again.lease_token) is True
    # A lease that has expired, and then the message of another client.
    short = app.execute("SELECT lease_token FROM waystage_receive(%s, lease => '1 ms')", (queue,)).fetchone()[
        0
    ]
    place.until(NONE_INVISIBLE, queue)
    with app.transaction():
        assert app.execute("SELECT body, attempt FROM waystage_receive(%s)", (queue,)).fetchone() == (b"c", 2)
        assert call(app, "waystage_acknowledge(%s)", short) is False
    assert drain(client, queue) == [b"d"]


def test_the_rows_of_a_deleted_queue_are_removed_after_the_transaction(place, client, queue):
    gone, wake = f"gone{queue}", f"wake{queue}"
    number = place.admin("SELECT id FROM queue WHERE name = %s", queue)
    with place.connect(autocommit=False) as app:
        call(app, "waystage_send(%s, 'x', 'app')", queue)
        client.delete_queue(queue)
        client.create_queue(gone)
        client.delete_queue(gone)
        place.admin(
            "UPDATE queue SET deleted_at = now() - interval '1 hour' WHERE name IN (%s, %s)", queue, gone
        )
        client.create_queue(wake)
        client.delete_queue(wake)
        place.until("SELECT NOT EXISTS (SELECT FROM queue WHERE name = %s)", gone)
        assert place.admin("SELECT EXISTS (SELECT FROM queue WHERE id = %s)", number)
        with pytest.raises(psycopg.Error) as failure:
            call(app, "waystage_send(%s, 'x', 'app')", queue)
        assert failure.value.sqlstate == "WS003"
        app.rollback()
        assert client.create_queue(queue)
        number = place.admin("SELECT id FROM queue WHERE name = %s AND deleted_at IS NULL", queue)
        call(app, "waystage_send(%s, 'x', 'app')", queue)
        client.delete_queue(queue)
        place.admin("UPDATE queue SET deleted_at = now() - interval '1 hour' WHERE name = %s", queue)
        app.commit()
    client.create_queue(wake)
    client.delete_queue(wake)
    place.until("SELECT NOT EXISTS (SELECT FROM queue WHERE id = %s)", number)
    assert place.admin("SELECT count(*) FROM message WHERE queue_id = %s", number) == 0


def test_the_examples_of_the_page_run(place, client, capsys):
    client.create_queue("orders")
    place.admin("CREATE TABLE purchase (customer text, item text); GRANT ALL ON purchase TO app")
    place.admin("CREATE TABLE shipped (purchase text); GRANT ALL ON shipped TO app")
    send, grant, pop, lease, limits = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    (python,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    place.admin(grant)
    with place.connect() as app:
        app.execute(send)
        url = place.server.url.replace("user=waystage", "user=app")
        assert "postgresql://app@db.example/shop" in python
        exec(
            compile(python.replace("postgresql://app@db.example/shop", url), "docs/messages-sql.md", "exec"),
            {},
        )
        assert capsys.readouterr().out.split("\n")[1:] == ["WS003 urn:waystage:problem:unknown-queue", ""]
        app.execute(pop)
        assert app.execute("SELECT * FROM shipped").fetchall() == [("two apples",), ("two pears",)]
        assert app.execute("SELECT count(*) FROM purchase").fetchone() == (2,)
        client.send("orders", "for the lease", receiver="bob")
        app.execute(lease)
        assert place.admin(NONE_INVISIBLE, "orders")
    place.admin(limits)
    assert place.admin("SELECT body_bytes + batch_messages FROM waystage_sql_limits") == 1048576 + 500
    place.admin("UPDATE waystage_sql_limits SET body_bytes = DEFAULT, batch_messages = DEFAULT")


def test_a_function_of_another_program_makes_the_migration_fail_as_a_whole(place):
    place.admin("CREATE DATABASE other")
    url = place.server.url.replace("dbname=postgres", "dbname=other")
    with psycopg.connect(url, autocommit=True) as other:
        theirs = (
            "queue text, body text, sender text, receiver text, delay interval, expiry interval, key text"
        )
        other.execute(
            f"CREATE FUNCTION waystage_send({theirs}) RETURNS text LANGUAGE sql AS $$ SELECT 'theirs' $$"
        )
        command = [str(WAYSTAGE), "messages", "migrate", "--database", url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1, done
        assert re.fullmatch(
            r".*another program has the function waystage_send\(.*rename or drop it\n", done.stderr
        ), done.stderr
        assert other.execute("SELECT waystage_send('', '', '', '', NULL, NULL, '')").fetchone() == ("theirs",)
        # A service does not become ready for ever, either.
        started = subprocess.run(
            [str(WAYSTAGE), "messages", "--listen", "127.0.0.1:0", "--database", url],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert started.returncode == 1 and "rename or drop it" in started.stderr, started
        assert other.execute(
            "SELECT count(*) FROM pg_class WHERE relname IN ('queue', 'message')"
        ).fetchone() == (0,)
        # Functions of others whose names only begin alike keep their privileges.
        other.execute("DROP FUNCTION waystage_send")
        other.execute("CREATE FUNCTION waystage_total(a int) RETURNS int LANGUAGE sql AS 'SELECT a'")
        other.execute("CREATE PROCEDURE waystage_report() LANGUAGE sql AS 'SELECT 1'")
        # Tables that were dropped are created again. The functions and their grants were still there.
        for _ in range(2):
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done
            other.execute("INSERT INTO queue (name) VALUES ('q')")
            other.execute("SELECT waystage_send('q', 'x', 'app')")
            everyone = "SELECT has_function_privilege('public', %s, 'EXECUTE')"
            assert other.execute(everyone, ["waystage_total(int)"]).fetchone() == (True,)
            assert other.execute(everyone, ["waystage_pop(text,text,int)"]).fetchone() == (False,)
            assert other.execute("SELECT count(*) FROM waystage_pop('q')").fetchone() == (1,)
            other.execute(
                "DROP TABLE queue, message, invisible_message, idempotency_key, lost_lease, waystage_schema"
            )
