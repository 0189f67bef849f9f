"""An exact account of messages that were sent and taken over SQL and HTTP at once, while the services were killed."""

import random
import tempfile
import threading
import time
from pathlib import Path

import psycopg
import pytest
from kill_run import Postgres, Service
from postgres_peer import postgres_or_skip
from programs import free_ports

from waylab.messages import Client, MessagesError, ProblemError

# Transactions of each of two senders over SQL, and sends of each of two senders over HTTP.
SENDS = 250
SEED = 24
LEASE_S = 5.0
SENT = "SELECT waystage_send('jobs', %s, %s)"


class Account:
    """What was committed, what was rolled back, and what was taken."""

    def __init__(self, server, ports):
        self.server, self.ports = server, ports
        self.lock = threading.Lock()
        self.committed, self.never, self.acknowledged = [], [], []
        self.failures = []
        self.is_over = threading.Event()

    def run(self, function, number):
        """Run a sender or a receiver, and keep its failure."""
        try:
            function(self, number)
        except Exception as error:
            self.failures.append(repr(error))
            self.is_over.set()


def send_sql(account, number):
    """Send in transactions with a row of our own, of which some roll back, some are slow, and some have savepoints."""
    chance = random.Random(SEED + number)
    with psycopg.connect(account.server.url) as connection:
        for index in range(SENDS):
            body, sender = f"sql-{number}-{index}", f"sql-{number}"
            connection.execute("INSERT INTO sent VALUES (%s)", (body,))
            connection.execute(SENT, (body, sender))
            fate = chance.random()
            if fate < 0.1:
                # Services pop younger messages meanwhile.
                time.sleep(0.1)
            if 0.1 < fate < 0.2:
                connection.execute("SAVEPOINT one")
                connection.execute(SENT, (f"{body}-undone", sender))
                connection.execute("ROLLBACK TO SAVEPOINT one")
                account.never.append(f"{body}-undone")
            if fate > 0.8:
                connection.rollback()
                account.never.append(body)
            else:
                connection.commit()
                with account.lock:
                    account.committed.append(body)


def persistently(account, number, request):
    """Repeat a request until its outcome is known. It is one that can be repeated."""
    while not account.failures:
        port = account.ports[number % len(account.ports)]
        try:
            with Client(f"http://127.0.0.1:{port}", sender=f"http-{number}", retry_for_s=5) as client:
                return request(client)
        except ProblemError as problem:
            if problem.status < 500:
                raise
        except MessagesError:
            pass
        number += 1
        time.sleep(0.05)
    raise RuntimeError("another thread has failed")


def send_http(account, number):
    """Send with keys, so that sends whose outcome is unknown can be repeated."""
    for index in range(SENDS):
        body = f"http-{number}-{index}"
        persistently(account, number, lambda client, body=body: client.send("jobs", body, key=body))
        with account.lock:
            account.committed.append(body)


def take_http(account, number):
    """Receive and acknowledge. A lease whose reply was lost expires, and the message returns."""
    while not account.is_over.is_set():
        message = persistently(
            account, number, lambda client: client.receive("jobs", wait_s=0.2, lease_s=LEASE_S)
        )
        if message is None:
            continue
        try:
            persistently(account, number, lambda client, lease=message.lease_token: client.acknowledge(lease))
        except ProblemError as problem:
            # Another receiver has the message.
            assert problem.type == "lease-expired"
            continue
        with account.lock:
            account.acknowledged.append(message.body.decode())


def take_sql(account, number):
    """Pop in the transaction that stores the result. Some roll back."""
    chance = random.Random(SEED + number)
    with psycopg.connect(account.server.url) as connection:
        while not account.is_over.is_set():
            taken = "INSERT INTO taken SELECT convert_from(body, 'UTF8') FROM waystage_pop('jobs', max => %s)"
            number_taken = connection.execute(taken, (chance.randint(1, 3),)).rowcount
            if chance.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
            if number_taken == 0:
                time.sleep(0.02)


@pytest.fixture
def folder():
    postgres_or_skip()
    with tempfile.TemporaryDirectory(prefix="waystage-sql-", dir="/tmp") as name:
        yield Path(name)


def test_every_committed_message_is_taken_once_and_no_other(folder):
    server = Postgres(folder / "one")
    services, kills = [], 0
    try:
        ports = free_ports(2)
        services = [Service(server.url, port, folder / f"{port}.log") for port in ports]
        with psycopg.connect(server.url, autocommit=True) as owner:
            owner.execute("CREATE TABLE sent (body text); CREATE TABLE taken (body text)")
            with Client(f"http://127.0.0.1:{ports[0]}", sender="app") as client:
                client.create_queue("jobs")
            account = Account(server, ports)
            senders = [(send_sql, 1), (send_sql, 2), (send_http, 3), (send_http, 4)]
            takers = [(take_http, 5), (take_http, 6), (take_sql, 7)]
            threads = [threading.Thread(target=account.run, args=one) for one in senders + takers]
            for thread in threads:
                thread.start()
            chance = random.Random(SEED)
            while any(thread.is_alive() for thread in threads[:4]) and not account.failures:
                time.sleep(chance.uniform(0.3, 1.0))
                chance.choice(services).kill(chance.uniform(0, 0.5))
                kills += 1
            left = "SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM invisible_message)"
            until = time.monotonic() + 120
            while (
                owner.execute(left).fetchone() != (0,) and time.monotonic() < until and not account.failures
            ):
                time.sleep(0.1)
            account.is_over.set()
            for thread in threads:
                thread.join(120)
            popped = [body for (body,) in owner.execute("SELECT body FROM taken")]
            rows = [body for (body,) in owner.execute("SELECT body FROM sent")]
            assert owner.execute(left).fetchone() == (0,)
    finally:
        for service in services:
            service.end()
        server.end()
    assert not account.failures, account.failures
    print(
        f"{kills} kills, {len(account.committed)} sent, {len(account.acknowledged)} acknowledged, {len(popped)} popped"
    )
    assert kills > 0 and popped and account.acknowledged and account.never
    assert sorted(account.acknowledged + popped) == sorted(account.committed)
    assert sorted(rows) == sorted(body for body in account.committed if body.startswith("sql-"))
