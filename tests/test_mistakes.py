"""Common mistakes: each has one line that names the value and says what to do, and the documented exit code."""

import io
import os
import signal
import socket
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from programs import WAYSTAGE, free_ports

from waylab.cli import main

TABLE = tomllib.loads((Path(__file__).parent / "mistakes.toml").read_text())
LINE_MAX = 420
# Environment variables that would answer some of the questions.
UNSET = {"WAYSTAGE_DATABASE", "WAYSTAGE_AGENT_SECRET", "WAYSTAGE_BIN"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Run all mistakes at once in a folder with the files of the table; return the outcomes by command line."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in TABLE["files"].items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken, ThreadPoolExecutor(4) as threads:
        places = {"TAKEN": f"127.0.0.1:{taken.getsockname()[1]}", "CLOSED": f"127.0.0.1:{closed}"}

        def outcome(mistake):
            words = [filled(word, places) for word in mistake["run"]]
            answer = of_the_lab if words[0] == "waylab" else of_the_program
            return *answer(words[1:], folder, mistake.get("environment", {})), places

        programs = [mistake for mistake in TABLE["mistake"] if mistake["run"][0] == "waystage"]
        lab = [mistake for mistake in TABLE["mistake"] if mistake["run"][0] == "waylab"]
        found = threads.map(outcome, programs)
        # In this process, because starting Python and the lab takes longer than all of them.
        yield {name_of(mistake): outcome(mistake) for mistake in lab} | dict(
            zip(map(name_of, programs), found, strict=True)
        )


def of_the_program(words, folder, more):
    done = subprocess.run(
        [str(WAYSTAGE), *words],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key not in UNSET} | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def of_the_lab(words, folder, more):
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in {"WAYSTAGE_BIN": str(WAYSTAGE), **more}.items():
            patch.setenv(name, value)
        try:
            code = main(words)
        except SystemExit as error:
            code = error.code
    return code, out.getvalue(), err.getvalue()


def filled(text, places):
    for name, address in places.items():
        text = text.replace(name, address)
    return text


def name_of(mistake):
    return " ".join(mistake["run"]) + str(mistake.get("environment", ""))


@pytest.mark.parametrize("mistake", TABLE["mistake"], ids=name_of)
def test_a_mistake_has_one_line_and_the_exit_code(outcomes, mistake):
    code, out, err, places = outcomes[name_of(mistake)]
    assert code == mistake.get("code", 2), (code, out, err)
    lines = err.splitlines()
    assert len(lines) == 1 and len(lines[0]) <= LINE_MAX, err
    assert lines[0].startswith(f"{mistake['run'][0]}: "), err
    for words in mistake["says"]:
        assert filled(words, places) in lines[0], (words, err)
    assert out == "" and "panicked" not in err and "Traceback" not in err


def test_the_table_has_fifty_different_mistakes():
    names = [name_of(mistake) for mistake in TABLE["mistake"]]
    assert len(names) == len(set(names)) >= 50
    # A mistake whose line need not contain anything would be no test.
    assert all(mistake["says"] for mistake in TABLE["mistake"])


SERVERS = [
    ["proxy", "--server", "CLOSED", "--listen", "127.0.0.1:0"],
    ["cache", "--listen", "127.0.0.1:0"],
    ["messages", "--listen", "127.0.0.1:0", "--database", "postgres://CLOSED/x"],
    ["load", "agent", "--listen", "127.0.0.1:0"],
]


@pytest.mark.parametrize("command", SERVERS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_a_server_whose_output_has_no_reader_runs_until_it_is_stopped(command, stream):
    (closed,) = free_ports(1)
    words = [word.replace("CLOSED", f"127.0.0.1:{closed}") for word in command]
    reading, writing = os.pipe()
    os.close(reading)
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    given |= {name: writing for name in given if stream in (name, "both")}
    # Python ignores SIGPIPE, and so would the program.
    process = subprocess.Popen([str(WAYSTAGE), *words], restore_signals=True, **given)
    os.close(writing)
    try:
        # Long enough for the lines about a database that does not answer.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


ENDING = [
    ["load", "--server", "CLOSED", "--test-time", "1s"],
    ["load"],
    ["load", "saturate", "--server", "CLOSED", "--objective", "p99=1ms"],
    ["messages"],
    ["messages", "migrate", "--database", "postgres://CLOSED/x"],
    ["proxy", "--config", "none.toml"],
    ["proxy", "route", "key", "--server", "CLOSED"],
    ["variates", "exp:1"],
    ["memory", "none.csv"],
    ["records", "dump", "none.way"],
    ["simulate", "none.json"],
    ["health", "CLOSED"],
    ["top", "CLOSED", "--interval", "100ms"],
    ["completions", "bash"],
    ["--help"],
]


@pytest.mark.parametrize("command", ENDING, ids=" ".join)
def test_a_command_without_readers_ends_with_its_exit_code(command):
    (closed,) = free_ports(1)
    words = [str(WAYSTAGE), *(word.replace("CLOSED", f"127.0.0.1:{closed}") for word in command)]
    expected = subprocess.run(words, capture_output=True, timeout=60, check=False).returncode
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(words, stdout=writing, stderr=writing, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == expected
