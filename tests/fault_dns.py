"""The DNS server of fault_run.py: it has SRV records for the servers of a pool, and at times no usable answer."""

import random
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

NAME = "_memcached._tcp.cache.test"
HOST = "127.0.0.1"
SRV, INTERNET, TTL_S = 33, 1, 1
REPLY, CUT_OFF = 0x8180, 0x0200
SERVER_FAILURE, NO_NAME = 2, 3
HEADER_BYTES = 12
# How long a client has to send its query over TCP, and how often the thread looks whether it ends.
PATIENCE_S, POLL_S = 5.0, 0.1
PORTS_TRIED = 20
# A record as priority, weight, port and host.
Record = tuple[int, int, int, str]


def weight(number: int) -> int:
    """Return the weight of the server with this number in its pool."""
    return 1 + (number == 1)


class Dns:
    """A server for one name, over UDP and TCP. Each true answer has the records in another form."""

    def __init__(self, ports: Sequence[int], seed: int):
        self.ports = ports
        self.source = random.Random(seed)
        # None: the truth.
        self.lie: str | None = None
        self.answers: dict[str, int] = {}
        self.is_over = threading.Event()
        self.udp, self.tcp = _sockets()
        self.address = "{}:{}".format(*self.udp.getsockname())
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Stop answering."""
        self.is_over.set()
        self.thread.join()
        self.udp.close()
        self.tcp.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self.udp, selectors.EVENT_READ)
            ready.register(self.tcp, selectors.EVENT_READ)
            while not self.is_over.is_set():
                for key, _ in ready.select(POLL_S):
                    # A client that has ended is no fault.
                    with suppress(OSError):
                        (self._over_udp if key.fileobj is self.udp else self._over_tcp)()

    def _over_udp(self) -> None:
        query, client = self.udp.recvfrom(4096)
        lie = self.lie
        name = lie or "the truth"
        self.answers[name] = self.answers.get(name, 0) + 1
        reply = LIES[lie](self, query) if lie else self._truth(query)
        if reply is not None:
            self.udp.sendto(reply, client)

    def _over_tcp(self) -> None:
        stream, _ = self.tcp.accept()
        with stream:
            stream.settimeout(PATIENCE_S)
            query = _exactly(stream, struct.unpack("!H", _exactly(stream, 2))[0])
            if self.lie is None:
                reply = message(query, self._records())
                stream.sendall(struct.pack("!H", len(reply)) + reply)

    def _truth(self, query: bytes) -> bytes:
        # The proxy then asks over TCP.
        return cut_off(query) if self.source.random() < 0.2 else message(query, self._records())

    def _records(self) -> list[Record]:
        """Return the records in any order, with weights of the same ratios, and some that are no servers."""
        factor = self.source.choice((1, 7, 100))
        records = [(3, factor * weight(number), port, HOST) for number, port in enumerate(self.ports)]
        if self.source.random() < 0.5:
            records += [(3, 0, 9, "no-keys.test"), (4, 1, 9, "not-reached.test")]
        self.source.shuffle(records)
        return records


def message(query: bytes, records: Sequence[Record] = (), flags: int = 0) -> bytes:
    """Return the reply to a query with these records."""
    question = query[HEADER_BYTES : query.index(b"\0", HEADER_BYTES) + 5]
    head = query[:2] + struct.pack("!HHHHH", REPLY | flags, 1, len(records), 0, 0)
    return head + question + b"".join(map(_record, records))


def cut_off(query: bytes) -> bytes:
    """Return a reply without records that says that there are more."""
    return message(query, flags=CUT_OFF)


def _record(record: Record) -> bytes:
    *numbers, host = record
    labels = b"".join(bytes([len(label)]) + label.encode() for label in host.split("."))
    data = struct.pack("!HHH", *numbers) + labels + b"\0"
    # The owner is the name in the question, in its compressed form.
    return struct.pack("!HHHIH", 0xC000 | HEADER_BYTES, SRV, INTERNET, TTL_S, len(data)) + data


# What the server does when it has no usable answer. The proxy must keep the last servers.
LIES: dict[str, Callable[[Dns, bytes], bytes | None]] = {
    "silence": lambda _dns, _query: None,
    "failure": lambda _dns, query: message(query, flags=SERVER_FAILURE),
    "no name": lambda _dns, query: message(query, flags=NO_NAME),
    "no records": lambda _dns, query: message(query),
    "garbage": lambda _dns, query: query[:2] + struct.pack("!H", REPLY) + b"\xff" * 30,
    "cut off, and nothing over TCP": lambda _dns, query: cut_off(query),
    "fewer servers than replicas": lambda dns, query: message(query, [(0, 1, dns.ports[0], HOST)]),
    "one server twice": lambda dns, query: message(
        query, [(0, 1, port, HOST) for port in (*dns.ports, *dns.ports)]
    ),
    "a server without a port": lambda _dns, query: message(query, [(0, 1, 0, HOST)]),
}


def _exactly(stream: socket.socket, length: int) -> bytes:
    got = b""
    while len(got) < length:
        piece = stream.recv(length - len(got))
        if not piece:
            raise ConnectionError("the client closed the connection")
        got += piece
    return got


def _sockets() -> tuple[socket.socket, socket.socket]:
    """Return sockets for UDP and TCP with the same port."""
    for _ in range(PORTS_TRIED):
        tcp = socket.create_server((HOST, 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            udp.bind(tcp.getsockname())
            return udp, tcp
        udp.close()
        tcp.close()
    raise OSError("no port is free for both UDP and TCP")
