"""`waystage proxy` reloads its configuration on SIGHUP, or when the file changes; an invalid one changes nothing."""

import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from programs import WAYSTAGE
from proxies import PATIENCE_S, Lines, ask, cache_servers, until
from test_idle import raise_file_limit

# The long form: WAYSTAGE_RELOAD_CLIENTS=19000 pytest -s tests/test_reload.py
CLIENTS = int(os.environ.get("WAYSTAGE_RELOAD_CLIENTS", "6000"))
# A client that does not wait for other clients is answered within this time, also during a reload.
PAUSE_MAX_S = 5.0
# More keys than fit into the 1024 bytes of a command, so that the proxy has sent the first ones on.
HALF_LINE = b"get" + b" none" * 400


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
    with cache_servers(2) as ports:
        yield ports


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


def threads_of(process):
    return len(os.listdir(f"/proc/{process.pid}/task"))


@pytest.fixture
def stuck(servers, tmp_path):
    """A proxy, and a function that reloads it while a new client is in the middle of a line."""
    file = tmp_path / "proxy.toml"
    write(file, servers[0])
    clients = []

    def reload_beside(proxy):
        clients.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S))
        ask(clients[-1], b"mn\r\n" + HALF_LINE, b"MN\r\n")
        proxy.process.send_signal(signal.SIGHUP)
        proxy.said.wait_for("reloaded on")
        return clients[-1]

    proxies = []

    def start(hand_over_wait):
        proxies.append(Proxy(file, "--loops", "1", "--hand-over-wait", hand_over_wait))
        return proxies[-1]

    yield start, reload_beside
    for client in clients:
        client.close()
    for proxy in proxies:
        proxy.process.kill()
        proxy.process.wait()
        proxy.said.reader.join()
        proxy.complained.reader.join()


def clients_version(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
        client.sendall(b"version\r\n")
        return client.recv(100)


def test_a_client_in_the_middle_of_a_line_keeps_the_old_configuration_no_longer_than_the_hand_over(stuck):
    start, reload_beside = stuck
    proxy = start("1s")
    threads = threads_of(proxy.process)
    client = reload_beside(proxy)
    is_closed = threading.Event()

    def send_keys():
        try:
            while True:
                client.sendall(b" none" * 10)
                time.sleep(0.02)
        except OSError:
            is_closed.set()

    sending = threading.Thread(target=send_keys)
    sending.start()
    until("the threads of the old configuration end", lambda: threads_of(proxy.process) == threads)
    sending.join(PATIENCE_S)
    assert is_closed.is_set()
    assert clients_version(proxy).startswith(b"VERSION ")
    code, last = proxy.end()
    assert code == 0 and last.endswith(", 0 lost"), last


def test_a_reload_of_many_clients_closes_none(servers, tmp_path):
    count = min(CLIENTS, raise_file_limit(CLIENTS + 100) - 100)
    file = tmp_path / "proxy.toml"
    write(file, servers[0])
    proxy = Proxy(file, "--loops", "1", "--clients-max", str(count + 10))
    clients, pauses, is_over = [], [], threading.Event()

    def ask_all_the_time():
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
            while not is_over.is_set():
                before = time.monotonic()
                ask(client, b"get none\r\n", b"END\r\n")
                pauses.append(time.monotonic() - before)

    try:
        # Each with a reply, so that the backlog of the listening socket never overflows.
        for _ in range(count):
            clients.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S))
            ask(clients[-1], b"mn\r\n", b"MN\r\n")
        asking = threading.Thread(target=ask_all_the_time)
        asking.start()
        for turn in range(3):
            write(file, servers[turn % 2])
            proxy.process.send_signal(signal.SIGHUP)
            proxy.said.wait_for("reloaded on")
            for client in clients:
                client.sendall(b"mn\r\n")
            for client in clients:
                assert client.recv(100) == b"MN\r\n", f"closed in reload {turn}"
        is_over.set()
        asking.join()
        print(f"{count} clients, longest pause {max(pauses):.2f} s")
        assert max(pauses) < PAUSE_MAX_S
        code, last = proxy.end()
        assert code == 0 and last.endswith(", 0 lost"), last
    finally:
        is_over.set()
        for client in clients:
            client.close()
        proxy.process.kill()
        proxy.process.wait()
        proxy.said.reader.join()
        proxy.complained.reader.join()
