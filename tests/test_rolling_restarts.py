"""Restarts under load, as docs/rolling-restarts.md describes them: no connection is refused."""

import signal
import socket
import threading
import time
from contextlib import ExitStack

from test_programs import backend
from test_transports import passing, proxy

CLIENTS = 4
# The requests that a client sends on one connection.
REQUESTS = 20
RESTARTS = 3


class Clients:
    """Clients that connect, send some requests one after the other, and connect again, until they are ended."""

    def __init__(self, port):
        self.refused, self.dropped, self.answered = [], [], []
        self._port = port
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Wait until each client has ended its connection."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive()

    def wait_for_more(self):
        """Wait until the clients have received more replies."""
        goal, deadline = len(self.answered) + 200, time.monotonic() + 20
        while len(self.answered) < goal:
            assert time.monotonic() < deadline, "the clients receive no replies"
            time.sleep(0.01)

    def _run(self):
        while not self._is_over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=20) as client:
                    self._ask(client)
            except ConnectionRefusedError as error:
                self.refused.append(error)

    def _ask(self, client):
        for _ in range(REQUESTS):
            try:
                client.sendall(b"get k\r\n")
                reply = client.recv(100)
            except ConnectionError:
                reply = b""
            if not reply:
                self.dropped.append(time.monotonic())
                return
            assert reply == b"END\r\n"
            self.answered.append(reply)


def test_a_restart_behind_a_socket_of_the_service_manager_refuses_no_connection():
    with backend() as servers, socket.create_server(("127.0.0.1", 0)) as tcp:
        options = passing([tcp], "cache")
        with Clients(tcp.getsockname()[1]) as clients:
            for _ in range(RESTARTS):
                with proxy("--server", servers[0], **options) as (_, process):
                    clients.wait_for_more()
                    process.send_signal(signal.SIGTERM)
            with proxy("--server", servers[0], **options) as (_, process):
                clients.wait_for_more()
                clients.end()
                process.send_signal(signal.SIGTERM)
    assert not clients.refused
    # A client can send one request to a process that has just stopped reading.
    assert len(clients.dropped) <= RESTARTS * CLIENTS


def test_a_take_over_refuses_no_connection_and_loses_no_request(tmp_path):
    control = tmp_path / "control"
    with backend() as servers, ExitStack() as processes:
        arguments = ("--server", servers[0], "--control", control)
        first, process = processes.enter_context(proxy("--listen", "127.0.0.1:0", *arguments))
        with Clients(int(first.rsplit(":", 1)[1])) as clients:
            for _ in range(RESTARTS):
                clients.wait_for_more()
                _, successor = processes.enter_context(proxy("--take-over", control, *arguments))
                assert process.wait(timeout=20) == 0
                process = successor
            clients.wait_for_more()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert not clients.refused
    assert not clients.dropped
