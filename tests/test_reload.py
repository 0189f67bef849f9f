"""`waystage proxy` reloads its configuration on SIGHUP, or when the file changes; an invalid one changes nothing."""

import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from programs import WAYSTAGE, connect, free_ports

PATIENCE_S = 20.0


class Lines:
    """The output of a running process, line by line."""

    def __init__(self, stream):
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.reader.start()

    def _read(self, stream):
        with stream:
            for line in stream:
                with self.changed:
                    self.lines.append(line.rstrip("\n"))
                    self.changed.notify_all()

    def wait_for(self, text):
        """Return the next line with this text; drop it and the lines before it."""
        with self.changed:
            found = self.changed.wait_for(lambda: any(text in line for line in self.lines), PATIENCE_S)
            assert found, f"{text!r} is not among {self.lines}"
            at = next(index for index, line in enumerate(self.lines) if text in line)
            line = self.lines[at]
            del self.lines[: at + 1]
            return line


class Proxy:
    def __init__(self, file, *arguments):
        command = [str(WAYSTAGE), "proxy", "--config", str(file), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said, self.complained = Lines(self.process.stdout), Lines(self.process.stderr)
        self.port = int(re.search(r"ready on \S+:(\d+)", self.said.wait_for("ready on")).group(1))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=PATIENCE_S)
        last = self.said.wait_for("stopped after")
        return code, last


@pytest.fixture
def servers():
    processes, ports = [], free_ports(2)
    for port in ports:
        command = [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{port}"]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        connect(port).close()
    yield ports
    for process in processes:
        process.kill()
        process.wait()


def ask(stream, request, reply):
    stream.sendall(request)
    got = b""
    while len(got) < len(reply):
        piece = stream.recv(4096)
        assert piece, f"closed after {got!r}"
        got += piece
    assert got == reply


def write(file, port, more=""):
    # Renamed, as an editor does, so that the proxy never reads half a file.
    new = file.with_suffix(".new")
    new.write_text(f'listen = "127.0.0.1:0"\n{more}[[pools]]\nservers = ["127.0.0.1:{port}"]\n')
    os.replace(new, file)


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_reload_applies_the_new_configuration_and_keeps_clients(servers, tmp_path, is_watched):
    file = tmp_path / "proxy.toml"
    write(file, servers[0])
    proxy = Proxy(file, "--loops", "2", *(["--watch"] if is_watched else []))
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
            ask(client, b"set k 0 0 3\r\none\r\n", b"STORED\r\n")
            for turn, (port, more, reply) in enumerate(
                [
                    (servers[1], "", b"END\r\n"),
                    (servers[0], "client-window = 7\n", b"VALUE k 0 3\r\none\r\nEND\r\n"),
                ]
            ):
                write(file, port, more)
                if not is_watched:
                    proxy.process.send_signal(signal.SIGHUP)
                line = proxy.said.wait_for("reloaded on")
                assert f":{proxy.port} " in line, "the same socket"
                ask(client, b"get k\r\n", reply)
                with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as other:
                    ask(other, b"get k\r\n", reply)
                # An invalid configuration prints one line and changes nothing.
                write(file, port, more + f"clients-maximum = {turn}\n")
                if not is_watched:
                    proxy.process.send_signal(signal.SIGHUP)
                line = proxy.complained.wait_for("the configuration stays as it was")
                assert "clients-maximum" in line and "clients-max" in line and str(file) in line
                ask(client, b"get k\r\n", reply)
        code, last = proxy.end()
        assert code == 0
        assert last.endswith(" 7 requests, 0 lost"), last
    finally:
        proxy.process.kill()
        proxy.process.wait()
        proxy.said.reader.join()
        proxy.complained.reader.join()
