"""`system.kind = "command"`: programs start as described, are ready, and end in every case with all descendants."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from own_system import Described, role, web

from waylab.errors import LabError
from waylab.run.process_tree import tree_row
from waylab.run.scrape import Scraper, samples
from waylab.testbed import kept, role_folder

ROOT = Path(__file__).parents[2]
# Runs a system until it is killed.
LAB = """
import sys, time
from pathlib import Path
from own_system import Described
described = Described(Path(sys.argv[1]))
described.mark = sys.argv[2]
system = described.system(Path(sys.argv[3]).read_text())
with system:
    system.start_servers()
    print("started", system._folder, flush=True)
    time.sleep(600)
"""
# Every process of the chain lives for about a millisecond. The chain ends when its file is gone.
HOPS = """
import os, time
from pathlib import Path
steps = Path("{steps}")
steps.write_text("x")
if os.fork():
    while steps.stat().st_size < 20:
        time.sleep(0.01)
    print("up", flush=True)
    time.sleep(600)
while steps.exists():
    with steps.open("a") as file:
        file.write("x")
    if os.fork():
        os._exit(0)
    {each}
"""


@pytest.fixture
def described(fake, tmp_path):
    made = Described(tmp_path)
    yield made
    assert made.left() == []


def folders():
    return set(Path(role_folder.tempfile.gettempdir()).glob(f"waylab-*-{os.getpid()}-*-roles"))


def fails(described, text, message):
    """The start fails with one line, and leaves no process and no folder."""
    before = folders()
    with pytest.raises(LabError, match=message) as error, described.system(text) as system:
        system.start_servers()
    assert "\n" not in str(error.value)
    assert described.left() == [] and folders() == before


def test_a_program_that_never_becomes_ready(described):
    text = role("/bin/sh", "-c 'sleep 600 & echo waiting >&2; wait'", "ready = { within_s = 1.0 }")
    fails(described, text, r"^cache: not ready within 1 s(: waiting| \(its output is in .*\))$")


def test_a_program_that_dies(described):
    text = role("/bin/sh", "-c 'echo out of luck >&2; exit 3'")
    fails(described, text, r"^cache: ended with 3 before it was ready: out of luck$")


def test_a_program_that_is_ended_by_a_signal(described):
    text = role("/bin/sh", "-c 'kill -SEGV $$'")
    fails(described, text, r"^cache: ended with 139 before it was ready: was ended by SIGSEGV$")


def test_a_program_that_prints_gigabytes(described, monkeypatch):
    monkeypatch.setattr(kept, "OUTPUT_BYTES", 2 << 20)
    fails(described, role("/usr/bin/yes", ""), r"^cache: .* printed more than 2 MiB, and was killed$")
    assert (described.folder / "trial/logs/cache.stdout").stat().st_size <= 2 << 20


def test_a_file_that_is_no_program(described):
    program = described.folder / "text"
    program.write_text("neither a script nor a binary")
    program.chmod(0o755)
    fails(
        described, role(str(program), ""), r"^cache: ended with 127 .*cannot be started: Exec format error$"
    )


def test_a_port_that_is_in_use(described):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = (
            rf"^system\.roles\.cache\.port = {port}: another program listens on it; stop that program, or"
        )
        fails(described, web(f"port = {port}"), message)


def test_a_command_that_prepares_and_fails(described):
    text = web("prepare = [\"sh -c 'echo no space >&2; exit 4'\"]")
    fails(described, text, r"^fill-cache-prepare0: ended with 4: no space$")


def test_a_user_that_does_not_exist(described):
    fails(
        described,
        web('user = "nobody-of-that-name"'),
        r"^system\.roles\.cache\.user = .*: there is no such user$",
    )


@pytest.mark.parametrize(
    ("program", "problem"), [("no-such-program", "not found on PATH"), ("/no/such", "is not there")]
)
def test_a_program_that_is_not_there(described, program, problem):
    with pytest.raises(LabError, match=rf"^system\.roles\.cache\.program = '{program}': .*{problem}"):
        described.system(role(program, ""))


def test_a_daemon_of_the_program_ends_with_it(described):
    with described.system(web(daemon=True)) as system:
        system.start_servers()
        assert len(described.left()) == 2
        (process,) = system.processes
    assert process.exit_code == 0 and not process.killed


@pytest.mark.parametrize("each", ["pass", "os.setsid()"])
def test_a_process_that_forks_and_exits_again_and_again_ends(described, each):
    """It has another number whenever somebody looks, so it counts its steps in a file."""
    script, steps = described.folder / "hop.py", described.folder / "steps"
    script.write_text(HOPS.format(each=each, steps=str(steps)))
    with described.system(role("PYTHON", str(script), 'ready = { line = "^up$", within_s = 300 }')) as system:
        system.start_servers()
    before = steps.stat().st_size
    time.sleep(1.0)
    after = steps.stat().st_size
    # A failed test must not leave it behind.
    steps.rename(steps.with_name("over"))
    assert before >= 20 and after == before


def test_a_killed_lab_leaves_neither_programs_nor_their_folder(fake, tmp_path):
    inside = tmp_path / "lab"
    inside.mkdir()
    described = Described(tmp_path)
    text = tmp_path / "text.toml"
    text.write_text(web(daemon=True))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/lab'}"}
    command = [sys.executable, "-c", LAB, str(inside), described.mark, str(text)]
    lab = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        word, folder = lab.stdout.readline().split()
        assert word == "started" and Path(folder).is_dir() and len(described.left()) == 2
    finally:
        lab.send_signal(signal.SIGKILL)
        lab.wait()
        lab.stdout.close()
    deadline = time.monotonic() + 60
    while (described.left() or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert described.left() == [] and not Path(folder).exists()


@pytest.mark.parametrize(
    ("trap", "code", "line"),
    [
        ("exit 143", 0, ""),
        ("exit 5", 5, ""),
        ("", 1, "did not stop within 0.5 s of SIGTERM, and was killed"),
    ],
)
def test_the_exit_code_says_whether_a_program_stopped(described, trap, code, line):
    # In a shell an empty trap ignores the signal.
    script = f'trap "{trap}" TERM; echo up; while :; do sleep 0.05; done'
    text = role(
        "/bin/sh", f"-c '{script}'", 'ready = { line = "^up$", within_s = 300 }\nstop = { within_s = 0.5 }'
    )
    with described.system(text) as system:
        system.start_servers()
        (process,) = system.processes
    assert process.exit_code == code
    assert line in process.stderr.read_text()


def test_another_signal_stops_a_program(described):
    script = 'trap "exit 0" QUIT; trap "exit 9" TERM; echo up; while :; do sleep 0.05; done'
    text = role(
        "/bin/sh", f"-c '{script}'", 'ready = { line = "up", within_s = 300 }\nstop = { signal = "QUIT" }'
    )
    with described.system(text) as system:
        system.start_servers()
        (process,) = system.processes
    assert process.exit_code == 0


def test_a_program_is_ready_when_its_page_has_the_status(described):
    with described.system(web('ready = { http = "/health", status = 200, within_s = 300 }')) as system:
        (address,) = system.start_servers()
        assert urllib.request.urlopen(f"http://{address}/health").status == 200


def test_roles_see_those_above_them(described):
    text = """
[system]
kind = "command"
target = "front"
[system.roles.store]
program = "PYTHON"
arguments = "SERVER {address} {port}"
ready = { within_s = 300 }
count = 2
MARKED
[system.roles.front]
program = "/bin/sh"
arguments = 'SCRIPT {store.endpoints} --to={store.each} {port.other} {{port}}'
ready = { line = "--to", within_s = 300 }
environment = { OF = "{word}-{store.port}" }
files = { "names.conf" = "server { listen {port}; }" }
set = { word = "a b" }
"""
    script = described.folder / "front.sh"
    script.write_text('cat names.conf\necho "$OF"\necho "$@"\nexec sleep 600\n')
    with described.system(text.replace("SCRIPT", str(script))) as system:
        system.start_servers()
        first, second, front = system.processes
        assert [first.name, second.name, front.name] == ["store-0", "store-1", "front"]
        lines = front.stdout.read_text().splitlines()
        stores = [process.command[2:] for process in (first, second)]
    endpoints = [":".join(place) for place in stores]
    assert re.fullmatch(r"server \{ listen \d+; \}", lines[0])
    assert lines[1] == f"a b-{stores[0][1]}"
    listed, *to, other, text = lines[2].split()
    assert listed == ",".join(endpoints) and to == [f"--to={one}" for one in endpoints]
    assert other.isdecimal() and text == "{port}"


def test_cpu_time_includes_descendants_that_have_ended_and_that_run(described):
    burn = described.folder / "burn.sh"
    burn.write_text(f"{sys.executable} -c 'sum(range(10**7))'\nsleep 600 &\necho burnt\nwait\n")
    text = role("/bin/sh", str(burn), 'ready = { line = "burnt", within_s = 300 }')
    with described.system(text) as system:
        system.start_servers()
        (process,) = system.processes
        alone = sum(psutil.Process(process.pid).cpu_times()[:2])
        _, name, pid, user_s, system_s, _, threads = tree_row(process, 1)
    # The keeper, the shell and `sleep`.
    assert (name, pid, threads) == ("cache", process.pid, 3)
    assert user_s + system_s > alone + 0.05


def test_metrics_are_kept_as_series(described, tmp_path):
    with described.system(web('metrics = "http://{address}:{port}/metrics"')) as system:
        system.start_servers()
        directory = tmp_path / "trial"
        with Scraper(directory, system.metrics):
            time.sleep(0.1)
        rows = [line.split(",", 3) for line in (directory / "metrics.csv").read_text().splitlines()]
    assert rows[0] == ["clock_ns", "process", "series", "value"]
    assert [row[1] for row in rows[1:3]] == ["cache", "cache"] and rows[1][2:] == ["up", "1"]
    with Scraper(directory, system.metrics):
        time.sleep(0.1)
    assert ",cache,up,0" in (directory / "metrics.csv").read_text()


def test_samples_of_a_page():
    page = '# TYPE a counter\na 1\nb{x="1 }\\" 2",y=""} 2.5e3 1700000000\nc NaN\nd +Inf\nnothing\n'
    assert list(samples(page)) == [("a", 1.0), ('b{x="1 }\\" 2",y=""}', 2500.0), ("d", float("inf"))]


def test_an_external_system_is_neither_started_nor_stopped(fake, tmp_path):
    described = Described(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        text = f'[system]\nkind = "external"\naddresses = ["{address}"]\n'
        with described.system(text) as system:
            assert system.start_servers() == [address] and system.processes == []
        assert server.fileno() >= 0
        socket.create_connection(server.getsockname()).close()
    (tmp_path / "trial/records").rmdir()
    (tmp_path / "trial/logs").rmdir()
    (tmp_path / "trial").rmdir()
    with (
        pytest.raises(
            LabError, match=rf"system\.addresses: {address} accepts no connection; start its program"
        ),
        described.system(text) as system,
    ):
        system.start_servers()
