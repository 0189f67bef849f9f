"""The clients of fault_run.py, besides `waystage load`.

A `Writer` is the only one that writes its keys, so it knows which values a reply may contain, also after failures. A
`Hostile` client does what careless programs do: it does not read, half-closes, or vanishes. It checks that every
reply arrives.
"""

import itertools
import random
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fault_end import End
from fault_policies import REPLY_TIMEOUT_S, Policy

# How long a reply may take. A longer wait counts as a lost reply.
PATIENCE_S = 25.0
THINK_S = 0.01
# A process that has handed over closes its clients after 30 s. A writer reconnects sooner, even on a busy machine.
STAYS_S = 10.0
KEYS = 6
# More than the proxy sends as one request.
MANY = 300
SIZES = (10, 10, 100, 1000, 20_000)
LARGE = 400_000
# Errors that a failing server, or a limit of the proxy, may cause.
ERRORS = (
    b"SERVER_ERROR backend ",
    b"SERVER_ERROR out of memory",
    b"SERVER_ERROR too ",
    b"SERVER_ERROR proxy ",
    b"SERVER_ERROR pool ",
)
# The rate limit of a pool has refused a request: nothing was sent to any server.
RATE_LIMITED = b"SERVER_ERROR pool "
# The proxies of some policies do not allow this command.
DENIED = b"CLIENT_ERROR flush_all is not allowed on this listener"


class LostError(Exception):
    """A reply that was awaited since a time of the monotonic clock did not arrive."""

    def __init__(self, text: str, since: float):
        super().__init__(text)
        self.since, self.until = since, time.monotonic()


class WrongError(Exception):
    """A reply does not belong to its request."""


@dataclass(frozen=True)
class Lost:
    """A reply that did not arrive, and between which times of the monotonic clock it was awaited."""

    text: str
    since: float
    until: float


@dataclass
class Counts:
    """What the clients of one policy have seen."""

    answered: int = 0
    failed: int = 0
    checked: int = 0
    lost: list[Lost] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)
    events: dict[str, int] = field(default_factory=dict)

    def lose(self, who: str, error: LostError) -> None:
        """Record a reply that did not arrive."""
        self.lost.append(Lost(f"{who}: {error}", error.since, error.until))


@contextmanager
def awaited(request: str = "") -> Iterator[None]:
    """Turn a failure of the connection into a lost reply."""
    since = time.monotonic()
    try:
        yield
    except OSError as error:
        raise LostError(f"{error!r}{request}", since) from error


class Connection:
    """A connection that reads lines and blocks."""

    NUMBERS = itertools.count()

    def __init__(self, port: int):
        self.number = next(self.NUMBERS)
        with awaited(" while connecting"):
            self.stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.file = self.stream.makefile("rb")

    def send(self, request: bytes) -> None:
        """Send bytes."""
        with awaited(f" while sending {request[:30]!r}"):
            self.stream.sendall(request)

    def line(self) -> bytes:
        """Return the next line without its end."""
        since = time.monotonic()
        with awaited():
            line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise LostError("the connection was closed", since)
        return line[:-2]

    def block(self, length: int) -> bytes:
        """Return a value of this length."""
        since = time.monotonic()
        with awaited():
            value = self.file.read(length + 2)
        if len(value) < length + 2:
            raise LostError("the connection was closed inside a value", since)
        return value[:-2]

    def values(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the keys and values of a reply to `get` and its like, and the last line."""
        found = []
        while (line := self.line()).startswith(b"VALUE "):
            words = line.split()
            found.append((words[1], self.block(int(words[3]))))
        return found, line

    def half_close(self) -> None:
        """Send no more requests."""
        with awaited(" while half-closing"):
            self.stream.shutdown(socket.SHUT_WR)

    def is_at_end(self) -> bool:
        """Whether the proxy closes the connection without another byte."""
        with awaited(" before the end of the connection"):
            return self.file.read(1) == b""

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.stream.close()


def value(key: str, version: int, length: int) -> bytes:
    """Return the value of a version; it begins with both and a checksum of the rest."""
    rest = (f"{key}.{version}." * (length // 10 + 1)).encode()[:length]
    return f"{key} {version} {zlib.crc32(rest)} ".encode() + rest


def version_of(key: str, data: bytes) -> int:
    """Return the version of a value of this key."""
    name, version, checksum, rest = data.split(b" ", 3)
    if name.decode() != key or zlib.crc32(rest) != int(checksum):
        raise WrongError(f"a value of {key} is torn or another key's: {data[:60]!r}")
    return int(version)


@dataclass
class Write:
    """One write: its version, or the deletion that has this number."""

    version: int
    is_delete: bool
    acknowledged: float | None = None
    # The number of the connection on which it was sent.
    connection: int | None = None


class History:
    """The writes of one key, in order."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.writes = [Write(0, is_delete=not policy.has_old_values, acknowledged=0.0)]

    def is_allowed(self, version: int, sent: float, connection: int = -1) -> bool:
        """Whether a read that was sent at this time, on the connection with this number, may return this version."""
        # A reader sees the history while its writer adds to it.
        writes = list(self.writes)
        places = [place for place, write in enumerate(writes) if write.version == version]
        if not places or writes[places[0]].is_delete:
            return False
        write, later = writes[places[0]], writes[places[0] + 1 :]
        if write.acknowledged is None and not self.policy.mends:
            return True
        acknowledged = [other for other in later if other.acknowledged is not None]
        # Every policy keeps the requests of one connection in order, also if they are pipelined.
        if any(other.connection == connection for other in acknowledged):
            return False
        overwritten = [other.acknowledged for other in acknowledged if (other.acknowledged or 0.0) < sent]
        if not overwritten:
            return True
        # A read that the proxy sent in time is answered a little later.
        return self.policy.may_be_late and sent < (overwritten[0] or 0.0) + REPLY_TIMEOUT_S + 0.5


class Writer(threading.Thread):
    """The only client that writes its keys."""

    def __init__(self, policy: Policy, number: int, ports: list[int], counts: Counts, end: End):
        super().__init__(daemon=True)
        self.ports, self.counts, self.end = ports, counts, end
        self.is_flush_denied = policy.denies_flush
        self.label, self.number = f"writer {number}", number
        self.source = random.Random(f"{policy.name}{number}")
        self.histories = {key: History(policy) for key in own_keys(number)}
        # One to each proxy.
        self.connections: list[Connection] = []
        self.version = 0
        self.token = b"1"

    def run(self) -> None:
        """Send requests until the end."""
        opened = 0.0
        while not self.end.is_reached():
            try:
                age_s = time.monotonic() - opened
                if not self.connections or age_s > STAYS_S or (age_s > 1 and self.source.random() < 0.01):
                    self.reconnect()
                    opened = time.monotonic()
                self.step()
            except LostError as error:
                self.counts.lose(self.label, error)
                self.connections = []
            except (WrongError, ValueError) as error:
                self.counts.wrong.append(f"{self.label}: {error}")
                self.connections = []
            time.sleep(self.source.expovariate(1 / THINK_S))
        for connection in self.connections:
            connection.close()

    def reconnect(self) -> None:
        """Leave with `quit`, and connect again: after a hand-over, to the new process."""
        while self.connections:
            connection = self.connections.pop()
            connection.send(b"quit\r\n")
            self.counts.commands.add("quit")
            if not connection.is_at_end():
                raise WrongError("a reply to quit")
            connection.close()
        self.connections = [Connection(port) for port in self.ports]

    def step(self) -> None:
        """Send one request, and check the reply."""
        key = self.source.choice(list(self.histories))
        chance = self.source.random()
        if chance < 0.35:
            self.get("get", [key])
        elif chance < 0.45:
            many = MANY if self.source.random() < 0.1 else 8
            self.get("get", [self.source.choice(list(self.histories)) for _ in range(many)])
        elif chance < 0.60:
            self.write(key, "set")
        elif chance < 0.65:
            self.write(key, "set", is_followed=True)
        elif chance < 0.70:
            self.write(key, "delete")
        elif chance < 0.74:
            self.meta_write(key)
        elif chance < 0.78:
            self.write(key, "md")
        elif chance < 0.88:
            self.meta_get(key)
        else:
            self.other(key)

    def request(self, command: str, text: bytes, through: Connection | None = None) -> Connection:
        """Send one request through one of the proxies."""
        connection = through or self.source.choice(self.connections)
        self.counts.commands.add(command)
        connection.send(text)
        return connection

    def ended(self, line: bytes, *expected: bytes) -> bool:
        """Whether a line is one of the expected replies; an error that a failure may cause is not."""
        if line.startswith(expected):
            self.counts.answered += 1
            return True
        if not line.startswith(ERRORS):
            raise WrongError(f"{line[:80]!r} instead of {expected}")
        self.counts.failed += 1
        return False

    def get(self, command: str, keys: list[str], through: Connection | None = None) -> None:
        """Read keys with `get` or one of its like."""
        sent = time.monotonic()
        expiry = "600 " if command.startswith("gat") else ""
        if len(keys) > 128:
            self.counts.events["a multi-get of more than 128 keys"] = 1
        connection = self.request(command, f"{command} {expiry}{' '.join(keys)}\r\n".encode(), through)
        self.check_values(connection, keys, sent)

    def check_values(self, connection: Connection, keys: list[str], sent: float) -> None:
        """Check the reply to a read of these keys."""
        found, last = connection.values()
        self.ended(last, b"END")
        place = 0
        for key, data in found:
            if key.decode() not in keys[place:]:
                raise WrongError(f"{key!r} was not requested, or is out of order")
            place = keys.index(key.decode(), place) + 1
            self.check(key.decode(), data, sent, connection)

    def check(self, key: str, data: bytes, sent: float, connection: Connection) -> None:
        """Check one value."""
        version, history = version_of(key, data), self.histories[key]
        self.counts.checked += 1
        if not history.is_allowed(version, sent, connection.number):
            last = [(write.version, write.is_delete, write.acknowledged) for write in history.writes[-4:]]
            self.counts.stale.append(
                f"{self.label}: {key} version {version}, read at {sent:.3f}, after {last}"
            )

    def meta_get(self, key: str) -> None:
        """Read a key with `mg`."""
        sent = time.monotonic()
        connection = self.request("mg", f"mg {key} v\r\n".encode())
        line = connection.line()
        if line.startswith(b"VA "):
            self.check(key, connection.block(int(line.split()[1])), sent, connection)
        self.ended(line, b"VA ", b"EN")

    def meta_write(self, key: str) -> None:
        """Write a key with `ms` and the flags of one of its forms."""
        form, flags = self.source.choice(MS_FORMS)
        if form == MS_CAS:
            token = self.token_of(key)
            if token is None:
                return
            flags = f" C{token}"
        if form:
            self.counts.events[form] = self.counts.events.get(form, 0) + 1
        self.write(key, "ms", flags)

    def token_of(self, key: str) -> int | None:
        """Return the cas token of a key, or none if there is none."""
        sent = time.monotonic()
        connection = self.request("mg", f"mg {key} c v\r\n".encode())
        line = connection.line()
        if not line.startswith(b"VA "):
            self.ended(line, b"EN")
            return None
        words = line.split()
        self.check(key, connection.block(int(words[1])), sent, connection)
        self.counts.answered += 1
        return int(words[2].removeprefix(b"c"))

    def write(self, key: str, command: str, flags: str = "", is_followed: bool = False) -> None:
        """Write a key, and record whether the write was acknowledged.

        If it is followed, a read of the key is pipelined after it.
        """
        self.version += 1
        removes = command in ("delete", "md")
        # A value that has expired is missing.
        is_delete = removes or flags == EXPIRED
        write = Write(self.version, is_delete)
        self.histories[key].writes.append(write)
        if len(self.histories[key].writes) > 400:
            del self.histories[key].writes[1:100]
        if removes:
            text = f"{command} {key}\r\n".encode()
        else:
            is_large = self.source.random() < 0.01
            data = value(key, self.version, LARGE if is_large else self.source.choice(SIZES))
            zeros = "" if command == "ms" else "0 0 "
            text = f"{command} {key} {zeros}{len(data)}{flags}\r\n".encode() + data + b"\r\n"
        sent = time.monotonic()
        connection = self.request(command, text + (f"get {key}\r\n".encode() if is_followed else b""))
        write.connection, line = connection.number, connection.line()
        expected = (b"DELETED", b"NOT_FOUND", b"HD", b"NF") if removes else (b"STORED", b"HD")
        refused = (b"NS", b"EX", b"NF") if flags.startswith((" M", " C")) else ()
        if self.ended(line, *expected, *refused):
            if line.startswith(refused or (b"never",)):
                self.histories[key].writes.remove(write)
            write.acknowledged = time.monotonic()
        elif line.startswith(RATE_LIMITED):
            self.histories[key].writes.remove(write)
        if is_followed:
            self.check_values(connection, [key], sent)
        others = [other for other in self.connections if other is not connection]
        if others and self.source.random() < 0.5:
            # Another proxy does not know which servers have missed the write.
            self.get("get", [key], self.source.choice(others))

    def other(self, key: str) -> None:
        """Send one of the other commands. Those that write have keys of their own."""
        own = f"other{self.number}"
        if self.is_flush_denied and self.source.random() < 0.2:
            return self.flush()
        command = self.source.choice([*OTHERS, *FORMS, "gets", "gat", "gats", "stats"])
        if command in ("gets", "gat", "gats"):
            return self.get(command, [key])
        if command == "stats":
            connection = self.request(command, b"stats\r\n")
            while (line := connection.line()) != b"END":
                if not line.startswith(b"STAT "):
                    raise WrongError(f"{line!r} in statistics")
            self.counts.answered += 1
            return None
        if command in FORMS:
            self.counts.events[command] = self.counts.events.get(command, 0) + 1
        text, expected = {**OTHERS, **FORMS}[command]
        connection = self.request(text.split()[0].decode(), text.replace(b"KEY", own.encode()))
        line = connection.line()
        if line.startswith(b"VA "):
            connection.block(int(line.split()[1]))
        self.ended(line, *expected)
        return None

    def flush(self) -> None:
        """Send a `flush_all`, which the listener does not allow. It must not take anything from the servers."""
        connection = self.source.choice(self.connections)
        connection.send(b"flush_all\r\n")
        self.counts.events["a command that the listener does not allow"] = 1
        self.ended(connection.line(), DENIED)


class Reader(Writer):
    """Reads the keys of the writers, at the same time, on connections of its own."""

    def __init__(self, policy: Policy, writers: list[Writer], ports: list[int], counts: Counts, end: End):
        super().__init__(policy, len(writers), ports, counts, end)
        self.label = "reader"
        self.histories = {key: one for writer in writers for key, one in writer.histories.items()}

    def step(self) -> None:
        """Read one key or several."""
        keys, chance = list(self.histories), self.source.random()
        if chance < 0.1:
            self.get("get", self.source.choices(keys, k=8))
        elif chance < 0.3:
            self.meta_get(self.source.choice(keys))
        else:
            self.get("get", [self.source.choice(keys)])


# Commands whose effect is not followed, with the replies that they may have.
STORED = (b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND")
NUMBER = (b"NOT_FOUND", b"CLIENT_ERROR cannot", *(str(digit).encode() for digit in range(10)))
OTHERS = {
    "add": (b"add KEY 0 60 1\r\n1\r\n", STORED),
    "replace": (b"replace KEY 0 60 1\r\n2\r\n", STORED),
    "append": (b"append KEY 0 60 1\r\n3\r\n", STORED),
    "prepend": (b"prepend KEY 0 60 1\r\n4\r\n", STORED),
    "cas": (b"cas KEY 0 60 1 7\r\n5\r\n", STORED),
    "incr": (b"incr KEY 1\r\n", NUMBER),
    "decr": (b"decr KEY 1\r\n", NUMBER),
    "touch": (b"touch KEY 60\r\n", (b"TOUCHED", b"NOT_FOUND")),
    "ma": (b"ma KEY v\r\n", (b"VA ", b"NF", b"CLIENT_ERROR cannot")),
    "me": (b"me KEY\r\n", (b"ME ", b"EN")),
    "mn": (b"mn\r\n", (b"MN",)),
    "version": (b"version\r\n", (b"VERSION ",)),
    "verbosity": (b"verbosity 1\r\n", (b"OK",)),
}
# Requests and possible replies of forms of commands.
MA_REPLIES = (b"VA ", b"NF", b"CLIENT_ERROR cannot")
FORMS = {
    "ms with a mode": (b"ms KEY 1 MA T60\r\n1\r\n", (b"HD", b"NS")),
    "ma that decrements": (b"ma KEY MD D2 v\r\n", MA_REPLIES),
    "ma that creates the value": (b"ma KEY N60 J7 D2 v\r\n", MA_REPLIES),
}
# Forms of `ms` for keys whose values are checked: the name of the event, which can be empty, and the flags.
EXPIRED = " T-1"
MS_CAS = "ms with a cas token"
MS_FORMS = (
    ("", ""),
    ("ms with an expiry time", " T600"),
    ("ms of a value that has expired", EXPIRED),
    ("ms that returns a cas token", " c"),
    ("ms with a mode", " MR"),
    ("ms with a mode", " ME"),
    (MS_CAS, ""),
)


def own_keys(number: int) -> list[str]:
    """Return the keys of a writer."""
    return [f"w{number}k{place}" for place in range(KEYS)]


class Hostile(threading.Thread):
    """A client that pipelines large multi-gets and reads slowly, half-closes or vanishes, again and again."""

    VALUE = b"h" * 700_000
    KEYS = 8
    PIPELINED = 12

    def __init__(self, policy: Policy, port: int, counts: Counts, end: End):
        super().__init__(daemon=True)
        self.port, self.counts, self.end = port, counts, end
        self.source = random.Random(f"{policy.name}hostile")
        self.keys = [f"h{place}" for place in range(self.KEYS)]

    def run(self) -> None:
        """Behave badly until the end."""
        acts = (self.read_slowly, self.half_close, self.vanish, self.never_read)
        names = (
            "a client stops reading for a while",
            "a client half-closes",
            "a client vanishes",
            "a client never reads",
        )
        while self.end.left_s() > 3:
            place = self.source.randrange(len(acts))
            self.counts.events[names[place]] = self.counts.events.get(names[place], 0) + 1
            try:
                self.store_large()
                acts[place]()
            except LostError as error:
                self.counts.lose(names[place], error)
            except (WrongError, ValueError) as error:
                self.counts.wrong.append(f"{names[place]}: {error}")

    def store_large(self) -> None:
        """Store the large values. A failing server may refuse them."""
        connection = Connection(self.port)
        self.counts.events["large values"] = self.counts.events.get("large values", 0) + 1
        for key in self.keys[: 1 + self.source.randrange(self.KEYS)]:
            connection.send(f"set {key} 0 600 {len(self.VALUE)}\r\n".encode() + self.VALUE + b"\r\n")
            line = connection.line()
            if line != b"STORED" and not line.startswith(ERRORS):
                raise WrongError(f"{line!r} instead of STORED")
        connection.close()

    def pipeline(self, count: int) -> Connection:
        """Send this number of large multi-gets."""
        connection = Connection(self.port)
        connection.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(f"get {' '.join(self.keys)}\r\n".encode() * count)
        return connection

    def read_replies(self, connection: Connection, count: int) -> None:
        """Check replies; pause now and then."""
        for _ in range(count):
            found, last = connection.values()
            if any(data != self.VALUE for _, data in found):
                raise WrongError("a large value is torn")
            if last != b"END" and not last.startswith(ERRORS):
                raise WrongError(f"{last!r} instead of END")
            self.counts.answered += 1
            time.sleep(self.source.choice((0.0, 0.02, 0.2)))

    def read_slowly(self) -> None:
        """Read the replies after a while, with pauses."""
        connection = self.pipeline(self.PIPELINED)
        time.sleep(self.source.uniform(0.1, 1.5))
        self.read_replies(connection, self.PIPELINED)
        connection.close()

    def half_close(self) -> None:
        """Half-close at once: all replies must arrive, and then the end."""
        connection = self.pipeline(3)
        connection.half_close()
        self.read_replies(connection, 3)
        if not connection.is_at_end():
            raise WrongError("bytes after the last reply")
        connection.close()

    def vanish(self) -> None:
        """Leave with replies in flight, and inside a value."""
        connection = self.pipeline(self.PIPELINED)
        connection.send(b"set h0 0 600 700000\r\nhhh")
        time.sleep(0.05)
        connection.close()

    def never_read(self) -> None:
        """Stay for a while, and read nothing."""
        connection = self.pipeline(self.PIPELINED)
        time.sleep(self.source.uniform(0.5, 2.0))
        connection.close()
