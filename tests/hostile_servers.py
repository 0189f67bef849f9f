"""Servers that do everything a server should not, for a pool of the proxy.

A server stores values as a real one would, so that its correct replies can be checked. Every value begins with its key.
"""

import random
import socket
import struct
import threading
import time
from contextlib import suppress
from itertools import pairwise

# The most values that a server keeps.
STORED_MAX = 1000
GARBAGE = [
    *(
        b"HELLO\r\n",
        b"\0\n",
        b"VALUE\r\n",
        b"VALUE k 0 -1\r\n",
        b"VALUE k 0 99999999999\r\n",
        b"\r\n",
        b"\n",
        b"END",
    ),
    *(
        b"RESET\r\n",
        b"VALUE k 0 5\r\nhello",
        b"VALUE k 0 2\r\nhelloEND\r\n",
        b"ERROR\r\n",
        b"SERVER_ERROR\r\n",
    ),
    *(
        b"CLIENT_ERROR " + b"x" * 3000 + b"\r\n",
        b"STAT a b\r\n",
        b"VA -3\r\n",
        b"HD" * 500 + b"\r\n",
        bytes(range(256)),
    ),
]


class OverError(Exception):
    """The connection is at its end."""


class Connection:
    """One connection of the proxy."""

    def __init__(self, server, stream, source):
        self.server, self.stream, self.source = server, stream, source
        self.lines = stream.makefile("rb")

    def serve(self):
        """Answer requests, rarely as a server should, until the connection ends."""
        if self.server.is_calm:
            moods = [Connection.correct]
        else:
            # A connection has few moods, so that each has its effect.
            moods = [Connection.correct] * 20 + self.source.choices(MOODS, k=3)
            if self.source.random() < 0.1:
                moods = [self.source.choice(MOODS)]
        try:
            while True:
                request = self.request()
                # Most connections answer the login and the probe; the others never come into use.
                is_opening = request[0] == b"version" or request[:2] == [b"set", b"auth"]
                is_probe = is_opening and self.source.random() < 0.95
                mood = Connection.correct if is_probe or self.server.is_calm else self.source.choice(moods)
                mood(self, request)
        except (OSError, OverError, ValueError, IndexError):
            pass
        finally:
            self.lines.close()
            self.stream.close()

    def request(self):
        """Read one request; return its words and its value."""
        line = self.lines.readline()
        if not line.endswith(b"\r\n"):
            raise OverError
        words = line.split()
        if words[0] in (b"set", b"add"):
            words.append(self.lines.read(int(words[4]) + 2)[:-2])
        return words

    def reply(self, words):
        """The reply of a correct server."""
        name, store = words[0], self.server.store
        if name == b"get":
            found = [(key, store[key]) for key in words[1:] if key in store]
            return (
                b"".join(b"VALUE %s 0 %d\r\n%s\r\n" % (key, len(value), value) for key, value in found)
                + b"END\r\n"
            )
        if name == b"set":
            store[words[1]] = words[-1]
            # A long run stores gigabytes.
            with suppress(KeyError, StopIteration, RuntimeError):
                while len(store) > STORED_MAX:
                    del store[next(iter(store))]
            return b"STORED\r\n"
        if name == b"delete":
            return b"DELETED\r\n" if store.pop(words[1], None) else b"NOT_FOUND\r\n"
        if name == b"incr":
            text = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
            return text if words[1] in store else b"NOT_FOUND\r\n"
        return b"VERSION 1.6.18\r\n" if name == b"version" else b"ERROR\r\n"

    def correct(self, words):
        """Answer correctly."""
        self.stream.sendall(self.reply(words))

    def late(self, words):
        """Answer after about the proxy's timeout."""
        time.sleep(self.source.random() * 2 * self.server.timeout_s)
        self.correct(words)

    def split(self, words):
        """Send each byte in its own packet."""
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reply = self.reply(words)
        for byte in reply[:200]:
            self.stream.sendall(bytes([byte]))
        self.stream.sendall(reply[200:])

    def pieces(self, words):
        """Send the reply in a few pieces that end anywhere, also within the line end of a value."""
        reply = self.reply(words)
        ends = sorted(self.source.randrange(len(reply)) for _ in range(self.source.randrange(1, 8)))
        for start, end in pairwise([0, *ends, max(len(reply) - 6, *ends), len(reply)]):
            self.stream.sendall(reply[start:end])
            time.sleep(self.source.choice([0, 0.001, 0.01]))

    def error_within(self, words):
        """Send an error within the reply, as a server without memory does, and then the rest."""
        reply = self.reply(words)
        at = self.source.randrange(len(reply))
        self.stream.sendall(reply[:at] + b"SERVER_ERROR out of memory writing get response\r\n" + reply[at:])

    def garbage(self, _):
        """Answer with something that is no reply."""
        self.stream.sendall(self.source.choice(GARBAGE))

    def close_in_the_middle(self, words):
        """Send a part of the reply and close, or reset, the connection."""
        reply = self.reply(words)
        self.stream.sendall(reply[: self.source.randrange(len(reply))])
        if self.source.random() < 0.5:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise OverError

    def other_key(self, _):
        """Answer with the value of a key that nobody asked for on this connection."""
        key, value = b"w:secret", b"w:secret=1"
        self.stream.sendall(b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value))

    def twice(self, words):
        """Answer twice."""
        self.stream.sendall(self.reply(words) * 2)

    def swapped(self, words):
        """Answer the next request first."""
        first = self.reply(words)
        self.stream.settimeout(self.server.timeout_s / 2)
        try:
            second = self.reply(self.request())
        except TimeoutError:
            second = b""
        self.stream.settimeout(None)
        self.stream.sendall(second + first)

    def endless_line(self, _):
        """Send a line without an end."""
        for _ in range(100):
            self.stream.sendall(b"VALUE " + b"k" * 10_000)

    def endless_value(self, words):
        """Announce a value of a gigabyte and begin to send it."""
        self.stream.sendall(b"VALUE %s 0 1000000000\r\n" % words[1 if len(words) > 1 else 0])
        for _ in range(100):
            self.stream.sendall(b"x" * 100_000)
            time.sleep(0.005)

    def silent(self, _):
        """Read no further, and answer nothing until the proxy gives up or the run ends."""
        while not self.server.is_calm:
            time.sleep(0.05)
        raise OverError


MOODS = [
    Connection.late,
    Connection.split,
    Connection.pieces,
    Connection.error_within,
    Connection.garbage,
    Connection.close_in_the_middle,
    Connection.other_key,
    Connection.twice,
    Connection.swapped,
    Connection.endless_line,
    Connection.endless_value,
    Connection.silent,
]


class HostileServer:
    """A listening socket and the threads of its connections."""

    def __init__(self, seed, timeout_s):
        self.timeout_s, self.is_calm, self.store = timeout_s, False, {}
        self.source = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def accept(self):
        """Accept connections; some are closed or ignored at once."""
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            own = random.Random(self.source.getrandbits(64))
            if not self.is_calm and own.random() < 0.1:
                stream.close()
                continue
            threading.Thread(target=Connection(self, stream, own).serve, daemon=True).start()

    def calm_down(self):
        """Answer correctly from now on."""
        self.is_calm = True

    def end(self):
        """Stop listening."""
        self.is_calm = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
