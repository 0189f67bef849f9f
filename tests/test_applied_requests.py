"""However a proxy ends, its clients receive a reply to every request that a server has applied."""

import signal
import socket
import subprocess
import threading
import time

import pytest
from programs import WAYSTAGE, connect, free_ports
from proxies import PATIENCE_S, ask, cache_servers

CLIENTS = 8
PIPELINED = 50


class Client(threading.Thread):
    """Increments a counter of its own until the proxy ends. Every other client half-closes after each batch."""

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.port, self.number, self.replies, self.ends = port, number, [], threading.Event()

    def run(self):
        try:
            while not self.ends.is_set():
                with (
                    socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as stream,
                    stream.makefile("rb") as lines,
                ):
                    self.use(stream, lines)
        except OSError:
            pass

    def use(self, stream, lines):
        while True:
            stream.sendall(b"incr c%d 1\r\n" % self.number * PIPELINED)
            if self.number % 2:
                stream.shutdown(socket.SHUT_WR)
            for _ in range(PIPELINED):
                line = lines.readline()
                if not line.endswith(b"\n"):
                    return self.ends.set()
                self.replies.append(line)
            if self.number % 2:
                return None


@pytest.mark.parametrize("way", ["signal", "reloads and signal", "take-over"])
def test_every_applied_request_is_answered(tmp_path, way):
    file, control = tmp_path / "proxy.toml", tmp_path / "control"
    (port,) = free_ports(1)
    with cache_servers(2) as servers:
        addresses = ", ".join(f'"127.0.0.1:{server}"' for server in servers)
        file.write_text(
            f'listen = "127.0.0.1:{port}"\nloops = 2\nhand-over-wait = "1s"\n[[pools]]\nservers = [{addresses}]\n'
        )
        command = [str(WAYSTAGE), "proxy", "--config", str(file), "--control", str(control)]
        processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL)]
        try:
            with connect(port) as stream:
                for number in range(CLIENTS):
                    ask(stream, b"set c%d 0 0 1\r\n0\r\n" % number, b"STORED\r\n")
            clients = [Client(port, number) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(0.3)
            if way == "reloads and signal":
                for _ in range(5):
                    processes[0].send_signal(signal.SIGHUP)
                    time.sleep(0.05)
            if way == "take-over":
                processes.append(
                    subprocess.Popen([*command, "--take-over", str(control)], stdout=subprocess.DEVNULL)
                )
                assert processes[0].wait(timeout=PATIENCE_S) == 0
            processes[-1].send_signal(signal.SIGTERM)
            assert processes[-1].wait(timeout=PATIENCE_S) == 0
            for client in clients:
                client.join(PATIENCE_S)
                assert not client.is_alive()
                expected = [b"%d\r\n" % count for count in range(1, len(client.replies) + 1)]
                assert client.replies == expected and client.replies
                assert applied(servers, client.number) == len(client.replies)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def applied(servers, number):
    """Return the value of a client's counter."""
    for server in servers:
        with connect(server) as stream, stream.makefile("rb") as lines:
            stream.sendall(b"get c%d\r\n" % number)
            if lines.readline().startswith(b"VALUE"):
                return int(lines.readline())
    return None
