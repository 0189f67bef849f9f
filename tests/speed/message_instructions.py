"""Instructions of the message service per operation, for `instructions.py --messages`.

A second service of the same binary brings PostgreSQL and stays idle; the one under valgrind connects to it. Bodies have
200 bytes. Connections are kept alive, and each sends its next request when it has its reply.
"""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import callgrind
from callgrind import Counts

READY_WITHIN_S = 120.0
BODY = b"x" * 200
QUEUE = "/v1/queues/q"
IDLE_S = 10
# So long after they were sent, all long polls wait.
SETTLE_S = 20.0
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
LEASE = re.compile(rb"\r\nwaystage-lease-token: ([^\r]+)\r\n", re.IGNORECASE)
BATCHES = re.compile(
    r"^(waystage_messages_batches_total|waystage_messages_batched_requests_total) (\d+)", re.MULTILINE
)


@dataclass(frozen=True)
class MessageWorkload:
    """An operation, and how many connections do it. `idle`: these many long polls wait, counted per second."""

    operation: str
    connections: int


WORKLOADS = {
    f"{operation}-{connections}": MessageWorkload(operation, connections)
    for operation in ("send", "pop", "receive")
    for connections in (1, 16)
} | {f"idle-{polls}": MessageWorkload("idle", polls) for polls in (0, 1000)}


class Client:
    """A connection to the service, which is kept alive."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=READY_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, path: str, body: bytes = b"", method: str = "POST") -> None:
        """Send a request and return at once."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nwaystage-sender: s\r\n"
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def reply(self) -> bytes:
        """Return the whole reply; its status must be one of success."""
        text = b""
        while b"\r\n\r\n" not in text or len(text) < whole(text):
            more = self._socket.recv(65536)
            if not more:
                break
            text += more
        if not text.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"the service replied {text.decode(errors='replace')!r}")
        return text

    def call(self, path: str, body: bytes = b"", method: str = "POST") -> bytes:
        """Send a request and return its reply."""
        self.send(path, body, method)
        return self.reply()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def whole(text: bytes) -> int:
    """Return the number of bytes of a reply whose head is complete."""
    length = LENGTH.search(text)
    return text.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)


def do(client: Client, operation: str, number: int) -> list[int]:
    """Do an operation this many times; return how long each took, in nanoseconds.

    A receive is followed by its acknowledgement, which counts.
    """
    times_ns = []
    for _ in range(number):
        began_ns = time.perf_counter_ns()
        if operation == "send":
            client.call(f"{QUEUE}/messages", BODY)
        elif operation == "pop":
            if not client.call(f"{QUEUE}/messages:pop").startswith(b"HTTP/1.1 200"):
                raise RuntimeError("a pop found no message")
        else:
            lease = LEASE.search(client.call(f"{QUEUE}/messages:receive"))
            if lease is None:
                raise RuntimeError("a receive found no message")
            client.call(f"/v1/leases/{lease[1].decode()}/acknowledge")
        times_ns.append(time.perf_counter_ns() - began_ns)
    return times_ns


class MessageBench:
    """The two services of one binary."""

    def __init__(self, stack: ExitStack, program: str, folder: Path) -> None:
        # PostgreSQL runs as another user, who must get through.
        folder.chmod(0o755)
        self._program, self._folder = program, folder
        _, self._idle = stack.enter_context(started([program, "messages", "--embedded"], folder))
        client = Client(self._idle)
        client.call(QUEUE, method="PUT")
        client.close()

    def instructions(self, workload: MessageWorkload, operations: int) -> tuple[Counts, float]:
        """Return the instructions per operation, and the requests per statement."""
        database = f"host='{self._folder}/.waystage/postgres' user=waystage dbname=postgres"
        service = ["messages", "--threads", "1", "--database", database]
        with started(callgrind.command(self._folder, [self._program, *service]), self._folder) as (
            pid,
            address,
        ):
            if workload.operation == "idle":
                return self._idle_instructions(pid, address, workload.connections), 0.0
            self._run(address, workload, max(operations // 10, workload.connections))
            if workload.operation != "send":
                do_with(self._idle, "send", 16, operations)
            before = batches(address)
            with callgrind.counted(pid, self._folder, operations) as found:
                do_with(address, workload.operation, workload.connections, operations)
            after = batches(address)
            if workload.operation == "send":
                do_with(self._idle, "pop", 16, operations)
        return found[0], (after[1] - before[1]) / (after[0] - before[0])

    def _run(self, address: str, workload: MessageWorkload, operations: int) -> None:
        """Do so many operations that are not counted, and leave the queue empty."""
        if workload.operation != "send":
            do_with(self._idle, "send", 16, operations)
        do_with(address, workload.operation, workload.connections, operations)
        if workload.operation == "send":
            do_with(self._idle, "pop", 16, operations)

    def _idle_instructions(self, pid: int, address: str, polls: int) -> Counts:
        clients = [Client(address) for _ in range(polls)]
        for client in clients:
            client.send(f"{QUEUE}/messages:pop?wait=60s")
        time.sleep(SETTLE_S)
        with callgrind.counted(pid, self._folder, IDLE_S) as found:
            time.sleep(IDLE_S)
        for client in clients:
            client.close()
        return found[0]


def do_with(address: str, operation: str, connections: int, operations: int) -> list[int]:
    """Do so many operations over these many connections; return how long each took, in nanoseconds."""
    clients = [Client(address) for _ in range(connections)]
    share, rest = divmod(operations, connections)
    with ThreadPoolExecutor(connections) as pool:
        numbers = [share + (index < rest) for index in range(connections)]
        times_ns = list(pool.map(do, clients, [operation] * connections, numbers))
    for client in clients:
        client.close()
    return [time_ns for of_one in times_ns for time_ns in of_one]


def batches(address: str) -> tuple[float, float]:
    """Return the numbers of batches and of requests in them, from the service's metrics."""
    client = Client(address)
    found = dict(BATCHES.findall(client.call("/metrics", method="GET").decode()))
    client.close()
    return float(found["waystage_messages_batches_total"]), float(
        found["waystage_messages_batched_requests_total"]
    )


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[tuple[int, str]]:
    """Run a service; yield its process id and address."""
    command = [*command, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            line = next((line for line in process.stdout if " ready on " in line), "")
            if not line:
                raise RuntimeError(f"{command[0]} did not start")
            yield process.pid, line.split()[4]
        finally:
            process.terminate()
            process.wait()
