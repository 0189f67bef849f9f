"""A minimal message service as a program: it answers each request with constant bytes and stores nothing.

It serves to measure the CPU time of the load generator alone. It is run by its path and imports no module of the lab.
"""

import select
import signal
import socket
import sys

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_READ_BYTES = 1 << 16
_BACKLOG = 4096


def _reply(status: str, body: bytes) -> bytes:
    kind = b"content-type: application/json\r\n" if body else b""
    return f"HTTP/1.1 {status}\r\n".encode() + kind + b"content-length: %d\r\n\r\n%s" % (len(body), body)


_SENT = _reply("201 Created", b'{"id":1}')
_CREATED = _reply("201 Created", b"")
_WAITING = _reply("200 OK", b'{"queues":[]}')
_NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"


def answer(request: bytes) -> bytes:
    """Return the reply to a request, chosen by its first line: sent, created, no waiting queue, or empty."""
    if request.startswith(b"PUT"):
        return _CREATED
    if request.startswith(b"GET /v1/receivers"):
        return _WAITING
    line = request[: request.find(b"\r\n")]
    return _SENT if line.startswith(b"POST") and b":pop" not in line else _NOTHING


def requests_in(waiting: bytes) -> tuple[list[bytes], bytes]:
    """Split the received bytes into complete requests and the rest."""
    found: list[bytes] = []
    while True:
        end = waiting.find(_HEAD_END)
        if end < 0:
            return found, waiting
        end += len(_HEAD_END)
        head = waiting[:end].lower()
        place = head.find(_LENGTH)
        if place >= 0:
            end += int(head[place + len(_LENGTH) : head.find(b"\r\n", place)])
        if len(waiting) < end:
            return found, waiting
        found.append(waiting[:end])
        waiting = waiting[end:]


def serve(address: str) -> None:
    """Serve until the process receives a signal."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port)), backlog=_BACKLOG) as listener:
        listener.setblocking(False)
        print(f"canned ready on {host}:{listener.getsockname()[1]}", flush=True)
        poll = select.epoll()
        poll.register(listener, select.EPOLLIN)
        connections: dict[int, socket.socket] = {}
        rests: dict[int, bytes] = {}
        while True:
            for number, _ in poll.poll():
                if number == listener.fileno():
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    poll.register(connection, select.EPOLLIN)
                    connections[connection.fileno()] = connection
                    rests[connection.fileno()] = b""
                elif not _serve_one(connections[number], rests):
                    poll.unregister(number)
                    connections.pop(number).close()
                    del rests[number]


def _serve_one(connection: socket.socket, rests: dict[int, bytes]) -> bool:
    """Answer the requests that have arrived; false if the connection is closed."""
    number = connection.fileno()
    try:
        read = connection.recv(_READ_BYTES)
        found, rests[number] = requests_in(rests[number] + read)
        if found:
            connection.sendall(b"".join(answer(one) for one in found))
    except OSError:
        return False
    return bool(read)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(sys.argv[1])
