"""Clients that do everything a client should not. Each function is one client: it connects, misbehaves and disconnects.

A function receives a `Place` and a random source. It returns None, or one line if the proxy has answered wrongly.
"""

import random
import socket
import ssl
import struct
import time
from dataclasses import dataclass

# How long the proxy may take to answer or to close a connection. Longer than every timeout of the configuration.
PATIENCE_S = 20.0
# The pool of the hostile servers has the keys with this prefix.
WILD = b"w:"
# The lengths of their values. One that does not fit the proxy's usual read buffer of 32 KiB has a buffer of its own.
WILD_BYTES = [3, 300, 5000] * 5 + [32_000, 40_000, 150_000]
# Lines of the values that a client sends although its listener does not allow it; the largest value exceeds value-max.
FORBIDDEN_LINES = [1] * 8 + [100] * 8 + [8000] * 3 + [320_000]
LARGE_KEYS = [b"large:%d" % number for number in range(8)]
LARGE_BYTES = 100_000
FRAGMENTS = [
    *(
        b"get ",
        b"gets ",
        b"gat 0 ",
        b"set ",
        b"cas ",
        b"ms ",
        b"mg ",
        b"md ",
        b"ma ",
        b"mn",
        b"incr ",
        b"touch ",
    ),
    *(
        b"delete ",
        b"flush_all -1",
        b"verbosity ",
        b"stats ",
        b"version",
        b"slabs ",
        b"noreply",
        b"k ",
        b"w:k ",
    ),
    *(
        b"0 ",
        b"-1 ",
        b"4294967296 ",
        b"5 ",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"v ",
        b"q ",
        b"O9 ",
        b"\xff\xfe",
    ),
    *(b"hello\r\n", b"k" * 250, b"k" * 251, b" " * 90, b"a" * 2000, b"VALUE k 0 5\r\n", b"END\r\n"),
]


@dataclass
class Place:
    """Where a client connects."""

    port: int
    tls_port: int
    # For clients behind a load balancer.
    relayed_port: int
    metrics_port: int
    # Of the listener that allows reads only.
    reading_port: int
    control: str

    def connect(self, port=None):
        """Connect to the proxy, by default to its plain port."""
        host = "127.0.0.3" if port == self.relayed_port else "127.0.0.1"
        return socket.create_connection((host, port or self.port), timeout=PATIENCE_S)

    def connect_reader(self):
        """Connect to the listener that allows reads only."""
        return socket.create_connection(("127.0.0.2", self.reading_port), timeout=PATIENCE_S)


def reset(stream):
    """Disconnect with a reset instead of an orderly end."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def leave(stream, source):
    """Disconnect in one of several ways."""
    if source.random() < 0.4:
        return reset(stream)
    if source.random() < 0.3:
        stream.shutdown(socket.SHUT_WR)
    return stream.close()


def end_of(stream):
    """Read until the proxy closes the connection; return what it sent, or None if it does not close."""
    received = b""
    try:
        while piece := stream.recv(65536):
            received += piece
    except ConnectionError:
        return received
    except TimeoutError:
        return None
    return received


def expect_end(stream, what):
    """Expect that the proxy closes the connection."""
    return None if end_of(stream) is not None else f"{what}: the connection stays open"


def slow_sender(place, source):
    """Send valid requests byte by byte."""
    key = b"slow:%d" % source.randrange(10**9)
    text = b"set %s 0 0 5\r\nhello\r\nget %s\r\n" % (key, key)
    expected = b"STORED\r\nVALUE %s 0 5\r\nhello\r\nEND\r\n" % key
    with place.connect() as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in text:
            stream.sendall(bytes([byte]))
            time.sleep(source.random() * 0.005)
        received = stream.makefile("rb").read(len(expected))
    return None if received == expected else f"slow sender: {received!r}"


def never_reader(place, source):
    """Send requests for large values and read nothing."""
    with place.connect() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(0.3)
        try:
            for _ in range(20):
                stream.sendall(b"get %s\r\n" % b" ".join(source.choices(LARGE_KEYS, k=16)))
        except TimeoutError:
            pass
        time.sleep(source.random())
        leave(stream, source)


def slow_reader(place, source):
    """Send one request for large values and read the reply in small pieces."""
    keys = source.choices(LARGE_KEYS, k=4)
    with place.connect() as stream:
        stream.sendall(b"get %s\r\n" % b" ".join(keys))
        received = 0
        for key in keys:
            received += len(b"VALUE %s 0 %d\r\n\r\n" % (key, LARGE_BYTES)) + LARGE_BYTES
        missing = received + len(b"END\r\n")
        while missing:
            piece = stream.recv(min(missing, 20_000))
            if not piece:
                return f"slow reader: {missing} bytes of the reply are missing"
            missing -= len(piece)
            time.sleep(source.random() * 0.01)
    return None


def half_close(place, source):
    """Close the sending side after some requests; all of them must be answered."""
    count = source.randrange(1, 50)
    with place.connect() as stream:
        stream.sendall(b"mn\r\n" * count + b"get half"[: source.randrange(8)])
        stream.shutdown(socket.SHUT_WR)
        received = end_of(stream)
    return None if received == b"MN\r\n" * count else f"half-close: {received!r} for {count} requests"


def scanner(place, source):
    """Connect and disconnect at once, many times, on every port."""
    for _ in range(source.randrange(5, 40)):
        stream = place.connect(source.choice([place.port, place.tls_port, place.metrics_port]))
        leave(stream, source)


def tls_on_the_plain_port(place, source):
    """Start a TLS handshake where none is spoken."""
    with place.connect() as stream:
        stream.sendall(bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + source.randbytes(501) + b"\r\n\r\n")
        stream.sendall(b"x" * 1100)
        return expect_end(stream, "TLS on the plain port")


def plain_on_the_tls_port(place, source):
    """Send requests, or nothing, or random bytes to the TLS port; each connection must be closed."""
    with place.connect(place.tls_port) as stream:
        sent = source.choice(
            [b"get a\r\n", b"\x16\x03\x01", b"", source.randbytes(300), b"GET / HTTP/1.1\r\n\r\n"]
        )
        try:
            stream.sendall(sent)
            if source.random() < 0.2:
                return leave(stream, source)
            return expect_end(stream, "plain bytes on the TLS port")
        except ConnectionError:
            return None


def tls_then_garbage(place, source):
    """Break off a TLS session in the middle of a record."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = place.connect(place.tls_port)
    with context.wrap_socket(plain) as stream:
        stream.sendall(b"mn\r\nset half 0 0 100\r\nabc")
        if stream.recv(100) != b"MN\r\n":
            return "TLS: no reply"
        raw = socket.socket(fileno=stream.detach())
        raw.settimeout(PATIENCE_S)
        raw.sendall(source.randbytes(100))
        leave(raw, source)
    return None


def web_browser(place, source):
    """Send an HTTP request: the connection must be closed without a reply."""
    with place.connect() as stream:
        stream.sendall(b"%s / HTTP/1.1\r\nHost: x\r\n\r\n" % source.choice([b"GET", b"POST"]))
        received = end_of(stream)
    return None if received == b"" else f"HTTP: {received!r}"


def binary_protocol(place, source):
    """Send a request of memcached's binary protocol: it must be refused in this protocol."""
    with place.connect() as stream:
        opcode, opaque = source.randrange(0x30), source.randrange(1 << 32)
        stream.sendall(struct.pack(">BBHBBHIIQ", 0x80, opcode, 3, 0, 0, 0, 3, opaque, 0) + b"key")
        received = end_of(stream)
    if not received:
        return f"binary protocol: {received!r}"
    refused = struct.pack(">BBHBBHIIQ", 0x81, opcode, 0, 0, 0, 0x83, max(len(received) - 24, 0), opaque, 0)
    return None if received.startswith(refused) else f"binary protocol: {received!r}"


def behind_a_load_balancer(place, source):
    """Send a header of the PROXY protocol in pieces: a valid one, a part of one, or a damaged one."""
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    fields = bytes(source.randrange(256) for _ in range(source.choice([0, 0, 7, 3000])))
    header = source.choice(
        [
            b"PROXY TCP4 192.0.2.%d 192.0.2.2 4711 11211\r\n" % source.randrange(256),
            b"PROXY TCP6 2001:db8::%x ::1 4711 11211\r\n" % source.randrange(65536),
            b"PROXY UNKNOWN\r\n",
            signature + b"\x20\0" + struct.pack(">H", len(fields)) + fields,
            signature + b"\x21\x11" + struct.pack(">H", 12 + len(fields)) + b"\xc0\0\2\1" * 3 + fields,
        ]
    )
    mood = source.choice(["valid", "valid", "cut", "damaged"])
    if mood == "damaged":
        # In the first bytes of both versions, so that the header is not valid in any case.
        place_of_damage = source.randrange(5)
        header = header[:place_of_damage] + b"\x7f" + header[place_of_damage + 1 :]
    sent = header if mood != "cut" else header[: source.randrange(len(header))]
    with place.connect(place.relayed_port) as stream:
        for piece in (sent[: (cut := source.randrange(len(sent) + 1))], sent[cut:]):
            try:
                stream.sendall(piece)
            except ConnectionError:
                return None if mood == "damaged" else f"a {mood} header was refused: {header[:60]!r}"
            time.sleep(source.choice([0, 0.01]))
        if mood != "valid":
            return expect_end(stream, f"a {mood} header {header[:60]!r}")
        stream.sendall(b"mn\r\n")
        line = stream.makefile("rb").readline()
    return None if line == b"MN\r\n" else f"behind a load balancer: {line!r} after {header[:60]!r}"


def half_value(place, source):
    """Announce a value and leave before its end, or stay silent for a while."""
    announced = source.choice([10, 1000, 2_000_000, 9_000_000, 1_000_000_000])
    key = source.choice([b"half", WILD + b"half"])
    with place.connect() as stream:
        stream.sendall(b"set %s 0 0 %d\r\n" % (key, announced))
        stream.sendall(b"x" * source.randrange(min(announced, 200_000)))
        time.sleep(source.random() * 0.5)
        leave(stream, source)


def writer_that_may_only_read(place, source):
    """Send commands that the listener does not allow. Each has one error, and its value is not read as commands."""
    forbidden = [
        b"delete large:1\r\n",
        b"md large:1 q\r\n",
        b"flush_all\r\n",
        b"stats\r\n",
        b"incr large:1 1\r\n",
    ]
    forbidden += [
        b"touch large:1 1\r\n",
        b"gat 1 large:1 large:2\r\n",
        b"mg large:1 T1 q\r\n",
        b"mg w:x N9 v\r\n",
    ]
    with place.connect_reader() as stream:
        sent, expected = [], []
        for _ in range(source.randrange(1, 30)):
            text = source.choice(forbidden)
            if source.random() < 0.5:
                value = b"flush_all\r\ndelete large:1\r\n" * source.choice(FORBIDDEN_LINES)
                name = source.choice(
                    [b"set large:1 0 0 %d", b"add new 0 0 %d", b"ms large:1 %d q", b"cas a 0 0 %d 1"]
                )
                text = name % len(value) + b"\r\n" + value + b"\r\n"
            sent.append(text + b"mn\r\n")
            expected.append(b"CLIENT_ERROR %s" % text.split()[0])
        whole = b"".join(sent)
        if source.random() < 0.2:
            stream.sendall(whole[: source.randrange(len(whole))])
            return leave(stream, source)
        stream.sendall(whole)
        lines = stream.makefile("rb")
        for start in expected:
            line, end = lines.readline(), lines.readline()
            if (
                not line.startswith(start)
                or b"is not allowed on this listener" not in line
                or end != b"MN\r\n"
            ):
                return f"a writer that may only read: {line!r} and {end!r} instead of {start!r}"
    return None


def reset_in_the_middle(place, source):
    """Pipeline requests to both pools and reset the connection before the replies arrive."""
    with place.connect() as stream:
        keys = [b"a", b"large:1", WILD + b"a", WILD + b"b"]
        stream.sendall(b"".join(b"get %s\r\n" % source.choice(keys) for _ in range(source.randrange(1, 200))))
        time.sleep(source.random() * 0.05)
        reset(stream)


def endless_line(place, source):
    """Send a line without an end until the proxy closes the connection."""
    start = source.choice([b"get ", b"gets ", b"set ", b"x", b" ", b"mg "])
    piece = source.choice([b"k" * 1000, b"k ", b" " * 500]) * 100
    with place.connect() as stream:
        try:
            stream.sendall(start)
            for _ in range(200):
                stream.sendall(piece)
        except (ConnectionError, TimeoutError):
            return None
        leave(stream, source)


def random_bytes(place, source):
    """Send random pieces of requests in random portions."""
    text = b"".join(source.choices(FRAGMENTS, k=source.randrange(1, 60)))
    with place.connect() as stream:
        try:
            while text:
                count = source.randrange(1, 200)
                stream.sendall(text[:count])
                text = text[count:]
                time.sleep(source.choice([0, 0, 0.002]))
            leave(stream, source)
        except ConnectionError:
            return


def scraper(place, source):
    """Abuse the metrics: half a request, many without reading, or something else."""
    whole = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    with place.connect(place.metrics_port) as stream:
        try:
            stream.sendall(source.choice([whole[:20], whole * 40, b"\0" * 100, b"GET " + b"x" * 70_000]))
            time.sleep(source.random() * 0.5)
            leave(stream, source)
        except ConnectionError:
            return


def stranger_at_the_control_socket(place, source):
    """Send messages that no successor sends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stream:
        stream.settimeout(1)
        try:
            stream.connect(place.control)
            for _ in range(source.randrange(3)):
                stream.send(source.choice([b"serving", b"take-over 9", b"", b"\xff", source.randbytes(2000)]))
        except OSError:
            # The proxy serves one process at a time.
            return


def read_value(lines, wanted):
    """Read one reply to a `get`; return an error line, None for a correct reply, or raise an error."""
    while True:
        line = lines.readline()
        if line == b"END\r\n":
            return None
        if not line.startswith(b"VALUE "):
            return line
        _, key, _, length = line.split()
        data = lines.read(int(length) + 2)
        assert key in wanted, f"asked for {wanted}, received {line!r}"
        assert data.startswith(key + b"=") and data.endswith(b"\r\n"), f"{key!r} has the value {data[:100]!r}"


def client_of_the_wild_pool(place, source):
    """Pipeline requests to the hostile servers: each has exactly one reply, in order, with no other client's key."""
    own = WILD + b"%d:" % source.randrange(10**9)
    requests = []
    for _ in range(source.randrange(1, 30)):
        keys = [own + b"%d" % source.randrange(20) for _ in range(source.choice([1, 1, 3]))]
        requests.append((source.choice([b"get", b"set", b"delete", b"incr"]), keys))
    with place.connect() as stream:
        for name, keys in requests:
            value = keys[0] + b"=" + b"v" * source.choice(WILD_BYTES)
            stream.sendall(
                {
                    b"get": b"get %s\r\n" % b" ".join(keys),
                    b"set": b"set %s 0 0 %d\r\n%s\r\n" % (keys[0], len(value), value),
                    b"delete": b"delete %s\r\n" % keys[0],
                    b"incr": b"incr %s 1\r\n" % keys[0],
                }[name]
            )
        stream.sendall(b"mn\r\n")
        lines = stream.makefile("rb")
        for name, keys in requests:
            line = read_value(lines, keys) if name == b"get" else lines.readline()
            if line is not None and not line.endswith(b"\r\n"):
                return f"wild pool: {line!r} is the reply to {name!r}"
        line = lines.readline()
    return None if line == b"MN\r\n" else f"wild pool: {line!r} instead of MN"


ALL = [
    slow_sender,
    never_reader,
    slow_reader,
    half_close,
    scanner,
    tls_on_the_plain_port,
    plain_on_the_tls_port,
    tls_then_garbage,
    web_browser,
    binary_protocol,
    behind_a_load_balancer,
    half_value,
    writer_that_may_only_read,
    reset_in_the_middle,
    endless_line,
    random_bytes,
    scraper,
    stranger_at_the_control_socket,
    *[client_of_the_wild_pool] * 6,
]


def misbehave(place, until, seed, problems):
    """Be one client after another until this moment of time.monotonic()."""
    source = random.Random(seed)
    while time.monotonic() < until:
        kind, own = source.choice(ALL), source.getrandbits(64)
        try:
            problem = kind(place, random.Random(own))
        except (TimeoutError, ConnectionRefusedError, AssertionError) as error:
            problem = f"{error!r}"
        except OSError:
            # The proxy may close or reset the connection at any time, as the client does.
            problem = None
        if problem:
            problems.append(f"{kind.__name__} (seed {own}): {problem}")
