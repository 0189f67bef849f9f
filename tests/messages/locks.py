"""Locks tables and rows of the message services, as other programs do, and checks the services meanwhile and after."""

import http.client
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kill_run import Service

TABLES = ("message", "invisible_message", "queue", "idempotency_key", "lost_lease")
# That of CREATE INDEX, and that of VACUUM FULL.
MODES = ("SHARE", "ACCESS EXCLUSIVE")
HELD_S = (1.0, 12.0)
# "upgrade awaited": another program waits for the lock that all connections of the services share, so new connections
# wait behind it.
EVENTS = ("table locked", "queue locked", "upgrade awaited")
# A statement that waits for a lock fails after 5 s. So a longer lock shows whether sends wait for it.
REVEALING_S = 6.0
# Everything works again within this time after the lock (docs/messages-database.md).
NORMAL_WITHIN_S = 10.0
# Within this time the services have recovered from the event before, and the lock is taken.
PATIENCE_S = 60.0
# Of one request, outside locks.
REPLY_S = 5.0


@dataclass(frozen=True)
class Lock:
    """A lock of another program."""

    name: str
    statement: str
    # Whether sends without a key, or other requests of their lane, can wait for it.
    stops_sends: bool = False
    # Whether the program waits for the lock, and gives up.
    is_awaited: bool = False

    def script(self, seconds: float) -> str:
        """Return the input of psql that holds or awaits the lock for this long. It prints `locked` first."""
        if self.is_awaited:
            timeout = f"SET LOCAL lock_timeout = {seconds * 1000:.0f}"
            return f"BEGIN;\n{timeout};\nSELECT 'locked';\n{self.statement};\n"
        return f"BEGIN;\n{self.statement};\nSELECT 'locked';\nSELECT pg_sleep({seconds:.3f});\nROLLBACK;\n"


def draw(event: str, chance: random.Random) -> Lock:
    """Return a random lock for an event."""
    if event == "table locked":
        table, mode = chance.choice(TABLES), chance.choice(MODES)
        # The load uses no keys, so no lane of messages needs their table.
        return Lock(f"{table} {mode}", f"LOCK TABLE {table} IN {mode} MODE", table != "idempotency_key")
    if event == "queue locked":
        rows = f"WHERE deleted_at IS NULL ORDER BY random() LIMIT {chance.randint(1, 2)}"
        return Lock("rows of queues", f"SELECT name FROM queue {rows} FOR UPDATE")
    step = "(SELECT max(step) FROM waystage_schema)"
    schema = "(SELECT relnamespace::integer FROM pg_class WHERE oid = 'waystage_schema'::regclass)"
    return Lock("fence", f"SELECT pg_advisory_xact_lock(1463877632 + {step}, {schema})", is_awaited=True)


def request(
    service: Service, method: str, path: str, body: str = "", timeout_s: float = REPLY_S, key: str = ""
) -> int:
    """Send a request to a service. Returns the status, or 0 if there is no reply in time."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=timeout_s)
    headers = {"Waystage-Sender": "probe", "Connection": "close"} | ({"Idempotency-Key": key} if key else {})
    try:
        connection.request(method, path, body.encode() or None, headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def is_true_before(until: float, is_true: Callable[[], bool]) -> bool:
    """Try until it is true, at least once; return whether it was before this time."""
    while not is_true():
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True


class Probe:
    """Requests about a queue of its own, which show whether the services work."""

    def __init__(self, services: list[Service], queue: str) -> None:
        self.services, self.queue, self.keys = services, f"/v1/queues/{queue}", 0

    def begin(self) -> None:
        """Wait until all services work, and lease a message for a second."""
        first, until = self.services[0], time.monotonic() + PATIENCE_S
        is_true_before(until, lambda: request(first, "PUT", self.queue) in (201, 204))
        for service in self.services:
            is_true_before(until, partial(self.is_served, service))
        is_true_before(until, partial(self.sends, first, "lease"))
        request(first, "POST", f"{self.queue}/messages:receive?for=lease&lease=1s")

    def sends(self, service: Service, receiver: str, timeout_s: float = REPLY_S) -> bool:
        """Return whether a service stores a message."""
        return request(service, "POST", f"{self.queue}/messages?to={receiver}", "probe", timeout_s) == 201

    def is_served(self, service: Service) -> bool:
        """Return whether a service is ready, and every kind of lane serves it."""
        self.keys += 1
        keyed = partial(request, service, "POST", f"{self.queue}/messages?to=nobody", "probe")
        return (
            request(service, "GET", self.queue) == 200
            and self.sends(service, "nobody")
            and keyed(key=f"{service.port}-{self.keys}") == 201
            and request(service, "GET", "/readyz") == 204
        )

    def without_sends(self, until: float) -> list[int]:
        """Return the ports of the services that store no message before this time."""
        return [service.port for service in self.services if not self.is_sending(service, until)]

    def is_sending(self, service: Service, until: float) -> bool:
        """Return whether a service stores a message before this time."""
        left = max(until - time.monotonic(), 0.1)
        return is_true_before(until, partial(self.sends, service, "nobody", left))

    def end(self, until: float) -> list[str]:
        """Wait until all services work and the leased message is back. Returns what is missing at this time."""
        first, broken = self.services[0], []
        receive = f"{self.queue}/messages:receive?for=lease&lease=1h&wait=1s"
        if not is_true_before(until, lambda: request(first, "POST", receive) == 200):
            broken.append("a message did not return after its lease")
        for service in self.services:
            if not is_true_before(until, partial(self.is_served, service)):
                broken.append(f"port {service.port} is not ready, or does not serve every request")
        request(first, "DELETE", self.queue)
        return broken


def disturb(
    psql: list[str | Path], services: list[Service], event: str, number: int, chance: random.Random
) -> tuple[str, list[str]]:
    """Lock something for a while, and sometimes restart a service meanwhile.

    Returns what happened, and what did not work although it should.
    """
    lock, seconds = draw(event, chance), chance.uniform(*HELD_S)
    restarted = chance.choice(services) if chance.random() < 0.5 else None
    what = f"{lock.name} for {seconds:.1f} s"
    if restarted is not None:
        what += f", port {restarted.port} restarted"
    probe = Probe(services, f"probe-{number}")
    probe.begin()
    pipe = subprocess.PIPE
    with subprocess.Popen(psql, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        holder.stdin.write(lock.script(seconds))
        holder.stdin.close()
        if "locked" not in map(str.strip, iter(holder.stdout.readline, "")):
            return what, [f"{what}: the lock was not granted"]
        stopped = [] if lock.stops_sends else probe.without_sends(time.monotonic() + seconds)
        if restarted is not None:
            # It may have to wait for the end of the lock.
            restarted.kill(0.0)
        holder.wait(PATIENCE_S)
    broken = probe.end(time.monotonic() + NORMAL_WITHIN_S)
    if seconds >= REVEALING_S:
        broken += [f"port {port} stored no message meanwhile" for port in stopped]
    return what, [f"{what}: {reason}" for reason in broken]
