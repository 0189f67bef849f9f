"""`waystage top` in a real terminal: keys, sizes, targets that stop and start, and what it leaves of the terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import contextmanager

import pytest
from programs import ROOT, WAYSTAGE, connect, free_ports
from test_programs import run, serving

# Long, because test machines are slow: it limits only waits for what never comes.
PATIENCE_S = 120.0
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """A pseudo-terminal with a view in it."""

    def __init__(self, *arguments, size=(24, 80), **variables):
        self.master, slave = pty.openpty()
        self.process = None
        self.resize(*size)
        self.before = termios.tcgetattr(slave)
        environment = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
        }
        self.process = subprocess.Popen(
            [WAYSTAGE, "top", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment | {"TERM": "xterm-256color"} | variables,
            start_new_session=True,
        )
        self.slave = slave
        self.output = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # The kernel sends it only to the group that controls the terminal.
        if self.process:
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def until(self, pattern):
        """Read until a whole frame matches; return its text, without escape sequences."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # A program draws only what has changed, and everything in a terminal of another size.
            rows, columns = struct.unpack("HHHH", fcntl.ioctl(self.master, termios.TIOCGWINSZ, b"\0" * 8))[:2]
            self.resize(rows, columns + 1 if columns % 2 == 0 else columns - 1)
            text = plain(self.read(lambda text: "q quit" in text, 1.0))
            if re.search(pattern, text):
                return text
            assert self.process.poll() is None, f"ended: {self.output!r}"
            assert time.monotonic() < deadline, f"no {pattern!r} in {text!r}"

    def read(self, is_enough, wait_s):
        """Read for this time, or until it is enough; return what was read."""
        deadline, text = time.monotonic() + wait_s, ""
        while time.monotonic() < deadline and not is_enough(text):
            if select.select([self.master], [], [], 0.05)[0]:
                text += os.read(self.master, 65536).decode(errors="replace")
        self.output += text
        return text

    def end(self):
        """Wait for the end of the program; return its exit code. The terminal must be as it was."""
        self.read(lambda _: self.process.poll() is not None, PATIENCE_S)
        assert self.process.poll() is not None, "it does not end"
        self.read(lambda _: False, 0.2)
        assert termios.tcgetattr(self.slave) == self.before
        assert self.output.rfind(ENTER) < self.output.rfind(LEAVE) and ENTER in self.output
        assert self.output.rfind("\x1b[?25l") < self.output.rfind(SHOW_CURSOR)
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def plain(text):
    """The text without escape sequences; a jump of the cursor becomes a space."""
    text = re.sub(r"\x1b\[[\d;]*H", " ", text)
    return re.sub(r"\x1b(?:\[[?\d;]*[A-Za-z]|[=>])", "", text)


@contextmanager
def terminal(*arguments, **options):
    view = Terminal(*arguments, **options)
    try:
        yield view
    finally:
        view.close()


@contextmanager
def proxy(metrics=None):
    """A cache and a proxy; yields the address of the proxy's metrics, and the proxy's process."""
    metrics = metrics or f"127.0.0.1:{free_ports(1)[0]}"
    with (
        serving("cache", "--listen", "127.0.0.1:0") as (cache, _),
        serving("proxy", "--server", cache, "--listen", "127.0.0.1:0", "--metrics", metrics) as (_, process),
    ):
        yield metrics, process


@pytest.mark.parametrize("leave", ["q", "\x03", signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=repr)
def test_every_end_restores_the_terminal(leave):
    with proxy() as (metrics, _), terminal(metrics) as view:
        view.until(r"requests/s")
        if isinstance(leave, str):
            view.press(leave)
        else:
            view.process.send_signal(leave)
        assert view.end() == 0


@pytest.mark.parametrize("stop", ["\x1a", signal.SIGTSTP, signal.SIGSTOP], ids=repr)
def test_a_stopped_view_returns_the_terminal_and_takes_it_again(stop):
    with proxy() as (metrics, _), terminal(metrics) as view:
        view.until(r"requests/s")
        if isinstance(stop, str):
            view.press(stop)
        else:
            view.process.send_signal(stop)
        # WNOWAIT leaves the end of the process for its owner.
        os.waitid(os.P_PID, view.process.pid, os.WSTOPPED | os.WNOWAIT)
        if stop != signal.SIGSTOP:
            view.read(lambda _: False, 0.2)
            assert termios.tcgetattr(view.slave) == view.before
            assert view.output.rfind(ENTER) < view.output.rfind(LEAVE)
        # As a shell does that takes the terminal for its prompt.
        termios.tcsetattr(view.slave, termios.TCSANOW, view.before)
        view.process.send_signal(signal.SIGCONT)
        text = view.read(lambda text: "q quit" in plain(text), PATIENCE_S)
        assert ENTER in text and "requests/s" in plain(text), text
        view.press("q")
        assert view.end() == 0


def test_keys_switch_between_targets_and_their_sum():
    with proxy() as (first, _), proxy() as (second, _), terminal(first, second, size=(24, 110)) as view:
        shown = view.until(r"(?=.*s sum)(.*requests/s){2}")
        assert f"proxy {first}" in shown
        view.press("s")
        view.until(r"sum of 2.*requests/s.*s apart")
        view.press("s")
        view.until(rf"proxy {first}")
        view.press("x\x1b[A\x1b[B\x1b[C\x1b[D\x1b[5~\x1b[6~\x1b[H~")
        view.until(rf"proxy {second}")
        view.press("q")
        assert view.end() == 0


def test_a_terminal_of_any_size_shows_the_target():
    with proxy() as (metrics, _), terminal(metrics) as view:
        view.until(r"requests/s")
        for rows, columns in [(24, 40), (5, 20), (1, 1), (2, 200), (60, 200), (24, 80)]:
            view.resize(rows, columns)
            time.sleep(0.3)
        view.until(rf"proxy {metrics}.*requests/s")
        view.press("q")
        assert view.end() == 0


def test_a_target_that_goes_away_comes_back():
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    with terminal(metrics, "--interval", "200ms") as view:
        view.until(r"no figures for \d+ s: .*refused")
        with proxy(metrics):
            view.until(r"requests/s")
        view.until(r"no figures for \d+ s: .*refused")
        with proxy(metrics):
            view.until(r"requests/s")
            view.press("q")
            assert view.end() == 0


def test_a_frozen_target_is_silent_and_its_view_is_not():
    with (
        proxy() as (metrics, process),
        terminal(metrics, "--interval", "200ms", "--timeout", "500ms") as view,
    ):
        view.until(r"requests/s")
        process.send_signal(signal.SIGSTOP)
        try:
            view.until(r"no figures for \d+ s: no complete reply within 500ms")
        finally:
            process.send_signal(signal.SIGCONT)
        view.until(r"requests/s")
        view.press("q")
        assert view.end() == 0


def test_no_color_has_no_colours():
    colour = re.compile(r"\x1b\[(?:\d+;)*[34]8;5;\d+")
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    for variables, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with terminal(nowhere, **variables) as view:
            view.until(r"refused")
            view.press("q")
            assert view.end() == 0
            assert bool(colour.search(view.output)) == is_coloured


def test_without_a_screen_it_prints_one_frame():
    with proxy() as (metrics, _):
        with terminal(metrics, TERM="dumb", COLUMNS="60") as view:
            text = view.read(lambda _: view.process.poll() is not None, PATIENCE_S) + view.read(
                lambda _: False, 0.2
            )
            assert view.process.poll() == 0
        assert "\x1b" not in view.output and "q quit" not in text
        assert max(map(len, text.splitlines())) <= 60
        piped = subprocess.run(
            f"'{WAYSTAGE}' top {metrics} | head -1", shell=True, check=True, capture_output=True, text=True
        )
        assert piped.stdout.startswith(f"proxy {metrics}") and piped.stderr == ""


def test_a_terminal_that_is_gone_ends_the_view():
    with proxy() as (metrics, _):
        view = Terminal(metrics)
        view.until(r"requests/s")
        os.close(view.master)
        os.close(view.slave)
        # An error if it was drawing at that moment, but never a signal: standard error is gone, too.
        assert view.process.wait(PATIENCE_S) in (0, 1)


def names(frame):
    """The first cell of every line, without addresses, keys, and an error that the test does not cause."""
    cells = {re.split(r"  +|, | \d", line)[0] for line in frame.splitlines() if line}
    return {cell for cell in cells if not re.match(r"\d|key-|proxy |last|backend_lost", cell)}


def test_the_page_shows_a_frame_as_it_is():
    (shown,) = re.findall(r"^```text\n(proxy .*?)^```", (ROOT / "docs/top.md").read_text(), re.M | re.S)
    (closed,) = free_ports(1)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    settings = ["--listen", "127.0.0.1:0", "--metrics", metrics, "--hot-keys-metrics", "--replicas", 2]
    with (
        serving("cache", "--listen", "127.0.0.1:0") as (cache, _),
        serving(
            "proxy",
            "--server",
            cache,
            "--server",
            f"127.0.0.1:{closed}",
            *settings,
            "--dispatch",
            "per-backend",
        ) as (address, _),
        connect(int(address.rpartition(":")[2])) as client,
    ):
        reader = client.makefile("rb")
        for number in range(2000):
            client.sendall(b"set key-1 0 0 1\r\n1\r\n" if number % 10 == 0 else b"get key-1\r\n")
            line = reader.readline()
            while line.startswith(b"VALUE"):
                reader.readline()
                line = reader.readline()
        printed = run("top", metrics, "--once")
    assert printed.returncode == 0 and names(shown), printed
    assert names(shown) <= names(printed.stdout), (names(shown) - names(printed.stdout), printed.stdout)
