"""A day's worth of sends and pops in fast motion: do pops become slower, and do the tables grow?

Workers send and pop in batches over a small backlog; every fifth batch is received with a lease, and some of these
messages are nacked or left to expire. For a part of the run a transaction holds an old snapshot, as a backup does, and
for another part an open transaction has a transaction id. In between, single pops, receives and sends are measured,
interleaved with those of a second service whose tables are fresh. Run it with

    .venv/bin/python tests/messages/churn.py --messages 10000000

Pages are those that a statement reads, in memory or not, as pg_stat_statements counts them. The exit code is 0 if pops
read at most twice the pages of fresh tables. test_churn.py runs a short form.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

# pytest has the folder of the shared helpers in its path; a program has not.
sys.path.append(str(Path(__file__).parent.parent))

from kill_run import Postgres
from programs import WAYSTAGE

QUEUES = 4
BACKLOG = 1000
BATCH = 500
# Every batch with this number is received with a lease instead of popped, and one in ten of its messages comes back.
LEASED_EVERY = 5
RETURNED = 10
LEASE = "2s"
# An additional pop keeps the backlog constant despite the messages that come back.
EXTRA_EVERY = LEASED_EVERY * RETURNED
PROBES = 10
SAMPLES = 100
BODY = "x" * 100
# Parts of the run.
SNAPSHOT = (0.3, 0.5)
WRITER = (0.7, 0.8)
RATIO_MAX = 2.0
PATIENCE_S = 60.0
HOLD_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue;\n"
HOLD_ID = "BEGIN; SELECT pg_current_xact_id();\n"
# A part of each statement's text.
STATEMENTS = {
    "pop": "Pops the oldest messages of one queue",
    "receive": "leased AS",
    "acknowledge": "Deletes messages of leases",
    "send": "Stores one message",
}
PAGES = """SELECT datname, query, (shared_blks_hit + shared_blks_read)::float / calls
    FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid"""
SIZES = """SELECT json_build_object(
    'dead', (SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname IN ('message', 'invisible_message')),
    'message_mb', pg_relation_size('message') / 1048576, 'key_mb', pg_relation_size('message_pkey') / 1048576,
    'sender_mb', pg_relation_size('message_by_sender') / 1048576,
    'invisible_mb', pg_total_relation_size('invisible_message') / 1048576)"""
FRESH = ("TRUNCATE message, invisible_message, idempotency_key, lost_lease", "VACUUM ANALYZE")


class ChurnPostgres(Postgres):
    """A server that counts the pages of each statement."""

    settings = (*Postgres.settings, "shared_preload_libraries=pg_stat_statements", "max_wal_size=2GB")


class Service:
    """A service at one database of the server."""

    def __init__(self, postgres: Postgres, database: str, folder: Path) -> None:
        settings = folder / "churn.toml"
        settings.write_text(f"batch-limit = {BATCH}\n")
        url = postgres.url.replace("dbname=postgres", f"dbname={database}")
        command = [str(WAYSTAGE), "messages", "--config", str(settings), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, "--database", url], text=True, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split(" ")[4]

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)


class BusyError(Exception):
    """The service could not execute the request in time, for example on a machine that is too busy."""


class Client:
    """One connection."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)

    def close(self) -> None:
        """Close it."""
        self.connection.close()

    def ask(self, method: str, path: str, document: object = None, may_be_late: bool = False) -> Any:
        """Send a request with a JSON document, and return the reply's document or text."""
        body = None if document is None else json.dumps(document)
        headers = {"Waystage-Sender": "alice", "Content-Type": "application/json"}
        self.connection.request(method, path, body, headers)
        reply = self.connection.getresponse()
        data = reply.read()
        is_late = may_be_late and reply.status == http.client.GONE
        if reply.status == http.client.SERVICE_UNAVAILABLE:
            raise BusyError
        if reply.status >= http.client.BAD_REQUEST and not is_late:
            raise RuntimeError(f"{method} {path}: {reply.status} {data!r}")
        is_json = reply.getheader("content-type") == "application/json"
        return json.loads(data) if is_json and data else (data, reply)

    def send_batch(self, queue: str, number: int) -> None:
        """Send this many messages."""
        for start in range(0, number, BATCH):
            messages = [{"body": BODY}] * min(BATCH, number - start)
            self.ask("POST", f"/v1/queues/{queue}/messages:batch", {"messages": messages})

    def pop_batch(self, queue: str) -> None:
        """Pop a batch."""
        self.ask("POST", f"/v1/queues/{queue}/messages:pop?max={BATCH}")

    def lease_batch(self, queue: str) -> None:
        """Receive a batch, acknowledge most of it, nack one message, and let the leases of the others expire."""
        taken = self.ask("POST", f"/v1/queues/{queue}/messages:receive?max={BATCH}&lease={LEASE}")["messages"]
        tokens = [message["lease_token"] for message in taken]
        done = [token for place, token in enumerate(tokens) if place % RETURNED]
        if done:
            # On a slow machine the leases may have expired. Their messages then come back as well.
            self.ask("POST", f"/v1/leases/{tokens[0]}/nack", may_be_late=True)
            self.ask("POST", "/v1/leases:acknowledge", {"lease_tokens": done})


@dataclass
class Probe:
    """Pages and milliseconds of single requests, in the churned tables and in fresh ones."""

    part: float
    held: str
    sizes: dict[str, float]
    pages: dict[str, tuple[float, float]]
    pop_ms: tuple[float, float]

    @property
    def ratio(self) -> float:
        """The pages of a pop, relative to fresh tables."""
        churned, fresh = self.pages["pop"]
        return churned / fresh

    def line(self) -> str:
        """Return the results in one line."""
        pages = " ".join(f"{name} {old:.1f}/{new:.1f}" for name, (old, new) in self.pages.items())
        sizes = " ".join(f"{name} {size:.0f}" for name, size in self.sizes.items())
        old, new = self.pop_ms
        time_ratio = f"pop ms {old:.2f}/{new:.2f}"
        return f"{self.part:4.0%} {self.held:8} pages {pages} ratio {self.ratio:.2f} {time_ratio} {sizes}"


@dataclass
class Churn:
    """Both services, and the workers at the first one."""

    messages: int
    postgres: Postgres
    services: tuple[Service, Service]
    samples: int
    done: int = 0
    target: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    failures: list[BaseException] = field(default_factory=list)

    def prepare(self) -> None:
        """Create the queues, with their backlog."""
        for service in self.services:
            with closing(Client(service.address)) as client:
                for number in range(QUEUES):
                    client.ask("PUT", f"/v1/queues/q{number}")
                    client.send_batch(f"q{number}", BACKLOG)

    def run_until(self, target: int) -> None:
        """Send and pop until so many messages were sent in all."""
        self.target = target
        workers = [threading.Thread(target=self.work, args=(f"q{number}",)) for number in range(QUEUES)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self.failures:
            raise self.failures[0]

    def work(self, queue: str) -> None:
        """One worker."""
        try:
            with closing(Client(self.services[0].address)) as client:
                while self.done < self.target:
                    with suppress(BusyError):
                        self.turn(client, queue)
        except BaseException as error:
            self.failures.append(error)

    def turn(self, client: Client, queue: str) -> None:
        """Send a batch, and take as many messages out."""
        turn = self.done // BATCH
        client.send_batch(queue, BATCH)
        with self.lock:
            self.done += BATCH
        (client.pop_batch if turn % LEASED_EVERY else client.lease_batch)(queue)
        if turn % EXTRA_EVERY == 0:
            client.pop_batch(queue)

    def probe(self, held: str) -> Probe:
        """Measure single requests at both services in turn; up to twice more, later, if pops read too many pages.

        On a busy machine, the low-water marks can need longer than usual to become current, and messages of expired
        leases, which are old, come back later.
        """
        probe = self.probe_after(0.5, held)
        for _ in range(2):
            if probe.ratio > RATIO_MAX:
                probe = self.probe_after(5.0, held)
        return probe

    def probe_after(self, wait_s: float, held: str) -> Probe:
        """Wait until statistics and low-water marks are current, and measure."""
        for statement in FRESH:
            sql(self.postgres, statement, "fresh")
        with ExitStack() as stack:
            old, new = (stack.enter_context(closing(Client(one.address))) for one in self.services)
            new.send_batch("q0", BACKLOG)
            time.sleep(wait_s)
            return self.measure(held, old, new)

    def measure(self, held: str, old: Client, new: Client) -> Probe:
        """Measure with these connections to the churned tables and to the fresh ones."""
        sql(self.postgres, "SELECT pg_stat_statements_reset()")
        times_ms: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.samples):
            for client, times in zip((old, new), times_ms, strict=True):
                with suppress(BusyError):
                    times.append(sample_ms(client))
        rows = [line.split("\x1f") for line in sql(self.postgres, PAGES).split("\x1e") if line]
        pages = {
            name: (pages_of(rows, "postgres", text), pages_of(rows, "fresh", text))
            for name, text in STATEMENTS.items()
        }
        sizes = json.loads(sql(self.postgres, SIZES))
        return Probe(
            self.done / self.messages, held, sizes, pages, (median(times_ms[0]), median(times_ms[1]))
        )


def sample_ms(client: Client) -> float:
    """Send, pop, receive and acknowledge single messages, and return how long the pop took."""
    client.ask("POST", "/v1/queues/q0/messages", BODY)
    began = time.monotonic()
    client.ask("POST", "/v1/queues/q0/messages:pop")
    taken_ms = (time.monotonic() - began) * 1000
    _, reply = client.ask("POST", "/v1/queues/q0/messages:receive")
    client.ask("POST", f"/v1/leases/{reply.getheader('waystage-lease-token')}/acknowledge")
    client.ask("POST", "/v1/queues/q0/messages", BODY)
    return taken_ms


def pages_of(rows: list[list[str]], database: str, text: str) -> float:
    """Return the mean pages of the statement with this text in this database."""
    return sum(float(pages) for found, query, pages in rows if found == database and text in query)


def sql(postgres: Postgres, text: str, database: str = "postgres") -> str:
    """Run statements, and return their rows with unit and record separators."""
    done = subprocess.run(
        [*psql(postgres, database), "-c", text], capture_output=True, text=True, check=True, **postgres.user
    )
    return str(done.stdout).strip("\n")


def psql(postgres: Postgres, database: str) -> list[str]:
    """Return the command of a session."""
    words = ["-X", "-q", "-A", "-t", "-F", "\x1f", "-R", "\x1e", "-v", "ON_ERROR_STOP=1", "-U", "waystage"]
    # The folder may have links to some programs only.
    program = (postgres.programs / "initdb").resolve().with_name("psql")
    return [str(program), *words, "-h", str(postgres.folder), "-d", database]


def hold(stack: ExitStack, postgres: Postgres, statement: str) -> None:
    """Keep a transaction open until the stack is closed."""
    session = subprocess.Popen(
        psql(postgres, "postgres"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **postgres.user
    )
    stack.callback(session.communicate)
    assert session.stdin is not None and session.stdout is not None
    session.stdin.write(statement)
    session.stdin.flush()
    # It has answered when the transaction has its snapshot or its id.
    session.stdout.read(1)


def run(messages: int, folder: Path, samples: int = SAMPLES) -> list[Probe]:
    """Run it, and return what was measured."""
    with ExitStack() as stack:
        postgres = ChurnPostgres(folder / "postgres")
        stack.callback(postgres.end)
        sql(postgres, "CREATE EXTENSION pg_stat_statements")
        sql(postgres, "CREATE DATABASE fresh")
        services = (Service(postgres, "postgres", folder), Service(postgres, "fresh", folder))
        for service in services:
            stack.callback(service.end)
        churn = Churn(messages, postgres, services, samples)
        churn.prepare()
        probes = [churn.probe("")]
        print(probes[-1].line(), flush=True)
        held = stack.enter_context(ExitStack())
        for step in range(1, PROBES + 1):
            begin = (step - 1) / PROBES
            name = {SNAPSHOT[0]: "snapshot", WRITER[0]: "writer"}.get(begin)
            if name:
                hold(held, postgres, HOLD_SNAPSHOT if name == "snapshot" else HOLD_ID)
            churn.run_until(messages * step // PROBES)
            held_now = next(
                (
                    label
                    for label, part in (("snapshot", SNAPSHOT), ("writer", WRITER))
                    if is_within(begin, part)
                ),
                "",
            )
            probes.append(churn.probe(held_now))
            print(probes[-1].line(), flush=True)
            if step / PROBES in (SNAPSHOT[1], WRITER[1]):
                held.close()
        return probes


def is_within(begin: float, part: tuple[float, float]) -> bool:
    """Return whether a step that begins there is in this part of the run."""
    return part[0] <= begin < part[1]


def failures(probes: list[Probe], while_writing: float = RATIO_MAX) -> list[str]:
    """Return what is wrong. `while_writing` is the largest ratio while a transaction with an id is open."""
    return [
        f"{probe.part:.0%}: a pop reads {probe.ratio:.2f} times the pages of a fresh table"
        for probe in probes
        if probe.ratio > (while_writing if probe.held == "writer" else RATIO_MAX)
    ]


def main() -> None:
    """Run it, and exit with 1 if pops have become slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waystage-churn-", dir="/tmp") as name:
        wrong = failures(run(arguments.messages, Path(name)))
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
