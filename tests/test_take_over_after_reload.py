"""A take-over and a reload at the same time: earlier clients are served, and a SIGHUP ends no process."""

import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from programs import WAYSTAGE
from proxies import PATIENCE_S, Lines, ask


class SlowBackend:
    """A server that answers `get slow` when it is released, and everything else at once."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.released, self.waiting = threading.Event(), threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        with stream, stream.makefile("rb") as lines:
            try:
                for line in lines:
                    if line == b"get slow\r\n":
                        self.waiting.release()
                        self.released.wait(PATIENCE_S)
                    stream.sendall(b"VERSION 1.6.0\r\n" if line == b"version\r\n" else b"END\r\n")
            except OSError:
                pass


def start(*arguments):
    command = [str(WAYSTAGE), "proxy", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = Lines(process.stdout)
    return process, said, re.search(r"ready on (\S+) and unix:(\S+)", said.wait_for("ready on"))


@pytest.mark.parametrize("reloads", [0, 1, 2])
def test_a_client_in_the_middle_of_a_request_is_served_on(tmp_path, reloads):
    backend = SlowBackend()
    control, unix = tmp_path / "control", tmp_path / "clients"
    file = tmp_path / "proxy.toml"
    timeouts = "timeouts = { connect = '15s', read = '15s', write = '15s' }"
    pool = f'[[pools]]\nservers = ["127.0.0.1:{backend.port}"]\n{timeouts}\n'
    file.write_text(f'listen = ["127.0.0.1:0", "unix:{unix}"]\nloops = 2\n{pool}')
    arguments = ("--config", str(file), "--control", str(control), "--hand-over-wait", "20s")
    old, said, ready = start(*arguments)
    processes = [old]
    try:
        host, port = ready.group(1).rsplit(":", 1)
        clients = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(5)]
        for _ in range(5):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].settimeout(PATIENCE_S)
            clients[-1].connect(str(unix))
        for client in clients:
            client.sendall(b"get slow\r\n")
        assert backend.waiting.acquire(timeout=PATIENCE_S)
        for _ in range(reloads):
            old.send_signal(signal.SIGHUP)
            said.wait_for("reloaded on")
        new, _, _ = start(*arguments, "--take-over", str(control))
        processes.append(new)
        said.wait_for("is taken over")
        backend.released.set()
        for client in clients:
            ask(client, b"", b"END\r\n")
        # The hand-over wait is not over.
        for client in clients:
            ask(client, b"get other\r\n", b"END\r\n")
            client.close()
        assert old.wait(timeout=PATIENCE_S) == 0
        new.send_signal(signal.SIGTERM)
        assert new.wait(timeout=PATIENCE_S) == 0
        assert not control.exists() and not unix.exists()
    finally:
        backend.released.set()
        for process in processes:
            process.kill()
            process.wait()
        backend.listener.close()


def test_a_signal_does_not_end_a_process_that_waits_for_the_sockets(tmp_path):
    control, file = tmp_path / "control", tmp_path / "proxy.toml"
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    file.write_text(f'listen = "{address}"\n[[pools]]\nservers = ["127.0.0.1:1"]\n')
    # The old process.
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    waiting.bind(str(control))
    waiting.listen()
    waiting.settimeout(PATIENCE_S)
    command = [str(WAYSTAGE), "proxy", "--config", str(file), "--take-over", str(control)]
    new = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, log = Lines(new.stdout), Lines(new.stderr)
    try:
        with waiting, listener:
            channel, _ = waiting.accept()
            with channel:
                channel.settimeout(PATIENCE_S)
                assert channel.recv(100) == b"take-over 1"
                # Long enough for the new process to wait for the reply, and for the signal to interrupt it.
                time.sleep(0.2)
                new.send_signal(signal.SIGHUP)
                time.sleep(0.2)
                socket.send_fds(channel, [f"{address}\n".encode()], [listener.fileno()])
                assert channel.recv(100) == b"serving"
                time.sleep(0.2)
                new.send_signal(signal.SIGHUP)
                time.sleep(0.2)
                channel.sendall(b"stopped")
                said.wait_for("ready on")
        # The reload that the signals have requested follows.
        said.wait_for("reloaded on")
        new.send_signal(signal.SIGTERM)
        assert new.wait(timeout=PATIENCE_S) == 0
        assert not [line for line in log.lines if "take over" in line or "did not confirm" in line]
    finally:
        new.kill()
        new.wait()
