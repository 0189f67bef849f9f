"""What a new user sees: help in groups, the first steps at a terminal, and output that fits its terminal."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ

import pytest
from programs import ROOT, WAYSTAGE

GROUPS = {
    "proxy": (
        ["--config", "--check", "--watch", "--server", "--replicas", "--listen", "--metrics", "--help"],
        ["Keys", "Dispatch", "Measurement", "Limits", "Log", "Names and restarts", "TLS"],
    ),
    "load": (
        ["--server", "--rate", "--clients", "--threads", "--ratio", "--data-size", "--test-time"],
        ["Load", "Keys", "Traces", "Message services", "Output", "Validity of the run", "Agents"],
    ),
    "messages": (
        ["--config", "--check", "--embedded", "--database", "--listen", "--insecure", "--help"],
        ["Dispatch", "Measurement", "Limits", "TLS"],
    ),
}
COLOUR = re.compile(r"\x1b\[(3[0-7]|9[0-7]|4[0-7]|38|48)")


def environment(**more):
    given = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    return given | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | more


def at_a_terminal(command, columns=80, until=None, **more):
    """Run a command at a terminal of this width; return what it prints until it exits, or until a text comes."""
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment(**more),
    )
    os.close(follower)
    printed, deadline = b"", time.monotonic() + 30
    try:
        while time.monotonic() < deadline and not (until and until in printed):
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    printed += os.read(leader, 65536)
                except OSError:
                    break
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", GROUPS)
def test_help_has_the_common_options_first_and_the_others_in_groups(command):
    text = subprocess.run([WAYSTAGE, command, "--help"], capture_output=True, text=True, check=True).stdout
    common, groups = GROUPS[command]
    headings = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    places = [headings.index(heading) for heading in ["Options", *groups]]
    assert places == sorted(places)
    first = text.split("\nOptions:\n")[1].split(f"\n{groups[0]}:\n")[0]
    assert set(common) <= set(re.findall(r"^ {2,6}(?:-\w, )?(--[\w-]+)", first, re.MULTILINE))
    # One screen.
    assert len(re.findall(r"^ {2,6}(?:-\w, )?(--[\w-]+)", first, re.MULTILINE)) <= 10


def test_the_proxy_shows_the_first_steps_at_a_terminal_only(tmp_path):
    proxy = [WAYSTAGE, "proxy", "--server", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    shown = at_a_terminal(proxy, until=b"Ctrl-C")
    port = re.search(r"ready on 127.0.0.1:(\d+)", shown).group(1)
    for words in (
        "forwards  to 127.0.0.1:1\n",
        "metrics   none; start with --metrics",
        f"| nc 127.0.0.1 {port}",
    ):
        assert words in shown, shown
    shown = at_a_terminal([*proxy, "--metrics", "127.0.0.1:0"], until=b"Ctrl-C")
    assert re.search(r"metrics   http://127.0.0.1:\d+/metrics\n", shown), shown
    process = subprocess.Popen(list(map(str, proxy)), stdout=subprocess.PIPE, text=True)
    assert "ready on" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "forwards" not in process.communicate(timeout=20)[0]
    # A configuration file is for those who know the proxy.
    (tmp_path / "proxy.toml").write_text(
        "listen = ['127.0.0.1:0']\n[[pools]]\nname='a'\nservers=['127.0.0.1:1']\n"
    )
    shown = at_a_terminal([WAYSTAGE, "proxy", "--config", tmp_path / "proxy.toml"], until=b"listening on")
    assert "ready on" in shown and "forwards" not in shown


COMMANDS = {
    "proxy --help": [WAYSTAGE, "proxy", "--help"],
    "load -h": [WAYSTAGE, "load", "-h"],
    "mistake": [WAYSTAGE, "proxy", "--serve", "x"],
    "doctor": [sys.executable, "-m", "waylab", "doctor"],
    "model": [sys.executable, "-m", "waylab", "model", "mm1", "--arrivals", "250", "--service-time", "2ms"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_color_switches_colours_off_and_a_pipe_has_no_escape_codes(name):
    assert not COLOUR.search(at_a_terminal(COMMANDS[name], NO_COLOR="1"))
    done = subprocess.run(
        list(map(str, COMMANDS[name])), capture_output=True, text=True, env=environment(), check=False
    )
    assert "\x1b" not in done.stdout + done.stderr and done.stdout + done.stderr


@pytest.mark.parametrize("name", ["proxy --help", "load -h", "doctor", "model"])
def test_output_fits_a_narrow_terminal(name):
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", at_a_terminal(COMMANDS[name], columns=60))
    # Single words, such as a flag with its values, cannot be broken.
    long = [line for line in shown.splitlines() if len(line.rstrip()) > 60 and len(line.split()) > 3]
    assert long == [], long


def test_the_table_of_stages_is_turned_at_a_narrow_terminal(tmp_path):
    shutil.copy(ROOT / "tests/golden/proxy-v1.way", tmp_path / "proxy-0.way")
    stages = [sys.executable, "-m", "waylab", "stages", tmp_path]
    wide, narrow = (
        re.sub(r"\x1b\[[0-9;]*m", "", at_a_terminal(stages, columns=columns)) for columns in (300, 100)
    )
    assert wide.splitlines()[1].split()[:3] == ["operation", "requests", "parse"], wide
    rows = narrow.splitlines()[1:]
    assert [line.split()[0] for line in rows[:3]] == ["operation", "requests", "parse"], narrow
    assert max(map(len, rows)) <= 100
    # The same numbers in both; a pipe has the wide table.
    words = list(map(str, stages))
    piped = subprocess.run(words, capture_output=True, text=True, env=environment(), check=True).stdout
    assert sorted(wide.split()) == sorted(narrow.split()) == sorted(piped.split())
    assert [line.rstrip() for line in wide.splitlines()] == [line.rstrip() for line in piped.splitlines()]
