"""`waystage proxy` reports its state to a service manager: sd_notify(3), with a datagram socket as systemd's double."""

import ctypes
import os
import re
import signal
import socket
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import connect, free_ports
from proxies import PATIENCE_S, running_proxy

PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000


class Manager:
    """The socket of a service manager."""

    def __init__(self, name):
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self.socket.settimeout(PATIENCE_S)

    def receive(self):
        """Return the assignments of the next report; signs of life are left out."""
        while True:
            lines = self.socket.recv(4096).decode().split("\n")
            if lines != ["WATCHDOG=1"]:
                return dict(line.split("=", 1) for line in lines)

    def signs_in(self, seconds):
        """Return the number of signs of life that arrive in this time."""
        end, signs = time.monotonic() + seconds, 0
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                signs += self.socket.recv(4096) == b"WATCHDOG=1"
            except TimeoutError:
                break
        self.socket.settimeout(PATIENCE_S)
        return signs


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    name = (
        str(tmp_path / "notify")
        if request.param == "path"
        else f"@waystage-test-{os.getpid()}-{tmp_path.name}"
    )
    with socket_of(name) as double:
        yield double


@contextmanager
def socket_of(name):
    double = Manager(str(name))
    with double.socket:
        yield double


def write(file: Path, port, more=""):
    # No server listens at this address: the proxy is ready without one.
    file.write_text(f'listen = "127.0.0.1:{port}"\n{more}[[pools]]\nservers = ["127.0.0.1:1"]\n')
    return file


def test_the_start_each_reload_and_the_end_are_reported(manager, tmp_path):
    (port,) = free_ports(1)
    file = write(tmp_path / "proxy.toml", port)
    with running_proxy(file, NOTIFY_SOCKET=manager.name) as (process, log):
        assert manager.receive() == {"READY": "1", "STATUS": f"listening on 127.0.0.1:{port}"}
        connect(port).close()
        for more, status in [
            ("client-window = 7\n", ""),
            ("client-windows = 7\n", "; the last reload failed: .*client-windows.*"),
            ("", ""),
        ]:
            write(file, port, more)
            begun_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            process.send_signal(signal.SIGHUP)
            reloading = manager.receive()
            assert reloading.pop("RELOADING") == "1"
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            assert begun_us <= int(reloading.pop("MONOTONIC_USEC")) <= now_us and reloading == {}
            ready = manager.receive()
            assert ready["READY"] == "1"
            assert re.fullmatch(f"listening on 127.0.0.1:{port}{status}", ready["STATUS"]), ready
        process.send_signal(signal.SIGTERM)
        assert manager.receive() == {"STOPPING": "1"}
    assert not any("service manager" in line for line in log.lines)


def test_nothing_is_reported_without_a_service_manager(tmp_path):
    file = write(tmp_path / "proxy.toml", 0)
    for environment in ({}, {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "soon"}):
        with running_proxy(file, **environment) as (_, log):
            pass
        assert not [line for line in log.lines if " warn " in line and "backend" not in line]


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        (
            {"NOTIFY_SOCKET": "/nowhere/notify"},
            "cannot report READY=1 to the service manager at /nowhere/notify: No such",
        ),
        (
            {"NOTIFY_SOCKET": "@nobody-listens-here"},
            "cannot report READY=1 to the service manager at @nobody",
        ),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, 'NOTIFY_SOCKET is "vsock:2:1234", which is neither a path nor'),
        ({"NOTIFY_SOCKET": "/" + "x" * 200}, "the state is not reported"),
    ],
)
def test_a_service_manager_that_cannot_be_reached_is_one_line_of_the_log(tmp_path, environment, warning):
    (port,) = free_ports(1)
    file = write(tmp_path / "proxy.toml", port)
    with running_proxy(file, WATCHDOG_USEC="100000", **environment) as (process, log):
        assert " warn " in log.wait_for(warning)
        process.send_signal(signal.SIGHUP)
        log.wait_for("reloaded")
        connect(port).close()
    assert not any("manager" in line or "NOTIFY" in line for line in log.lines), log.lines


def test_a_service_manager_that_does_not_read_delays_the_start_by_a_moment(tmp_path):
    (port,) = free_ports(1)
    file = write(tmp_path / "proxy.toml", port)
    with socket_of(tmp_path / "notify") as manager:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, pytest.raises(BlockingIOError):
            other.setblocking(False)
            while True:
                other.sendto(b"X=1", manager.name)
        with running_proxy(file, NOTIFY_SOCKET=manager.name, WATCHDOG_USEC="100000") as (_, log):
            assert "Resource temporarily unavailable" in log.wait_for("cannot report READY=1")
            connect(port).close()


def test_a_signal_does_not_discard_a_report_that_waits(tmp_path):
    (port,) = free_ports(1)
    file = write(tmp_path / "proxy.toml", port)
    with socket_of(tmp_path / "notify") as manager:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, pytest.raises(BlockingIOError):
            other.setblocking(False)
            while True:
                other.sendto(b"X=1", manager.name)
        with running_proxy(file, NOTIFY_SOCKET=manager.name) as (process, log):
            # The proxy serves, and its report waits for a second at most.
            time.sleep(0.2)
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            reports = (report for _ in range(1000) if "X" not in (report := manager.receive()))
            assert next(reports)["READY"] == "1"
            assert "RELOADING" in next(reports)
            assert next(reports)["READY"] == "1"
        assert not any("cannot report" in line for line in log.lines)


def test_signs_of_life_are_sent_by_an_idle_proxy_also_after_a_reload(manager, tmp_path):
    file = write(tmp_path / "proxy.toml", 0)
    with running_proxy(file, "--loops", "2", NOTIFY_SOCKET=manager.name, WATCHDOG_USEC="800000") as (
        process,
        _,
    ):
        assert manager.signs_in(3) >= 5
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            while "READY" not in manager.receive():
                pass
            # One set of event loops sends them, and not the earlier one as well.
            assert 5 <= manager.signs_in(3) <= 20


def test_signs_of_life_need_a_watchdog_for_this_process(tmp_path):
    file = write(tmp_path / "proxy.toml", 0)
    name = tmp_path / "notify"
    for variables, warning in [
        ({"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, 'WATCHDOG_USEC is "soon", which is not a time in microseconds'),
        (
            {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "me"},
            'WATCHDOG_PID is "me", which is not a process ID',
        ),
    ]:
        with (
            socket_of(name) as manager,
            running_proxy(file, NOTIFY_SOCKET=str(name), **variables) as (_, log),
        ):
            assert manager.receive()["READY"] == "1"
            assert manager.signs_in(0.5) == 0
            if warning:
                assert " warn " in log.wait_for(warning)
        name.unlink()


@contextmanager
def frozen(process, thread):
    """Stop one thread of a process, as a debugger does."""
    tasks = Path(f"/proc/{process.pid}/task")
    (number,) = (int(task.name) for task in tasks.iterdir() if (task / "comm").read_text() == f"{thread}\n")
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(PTRACE_ATTACH, number, None, None) != 0:
        pytest.skip(f"no thread can be stopped here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(number, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, number, None, None)


@pytest.mark.parametrize("thread", ["loop-0", "loop-1"])
def test_the_signs_of_life_end_if_one_event_loop_hangs(tmp_path, thread):
    file = write(tmp_path / "proxy.toml", 0)
    with socket_of(tmp_path / "notify") as manager:
        environment = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "400000"}
        with running_proxy(file, "--loops", "2", **environment) as (process, _):
            assert manager.signs_in(2) >= 5
            with frozen(process, thread):
                manager.signs_in(0.5)
                assert manager.signs_in(2) == 0
            assert manager.signs_in(2) >= 5
