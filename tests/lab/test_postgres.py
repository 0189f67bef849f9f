"""The lab's own PostgreSQL: created, queried, emptied, and removed after any failure. Uses the real programs."""

import dataclasses
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from postgres_peer import postgres_or_skip

from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.spec import Database as DatabaseSettings
from waylab.spec import Load, Messages, Spec, System
from waylab.testbed import RunDatabase, Testbed, TestbedError, programs_of
from waylab.testbed.hosts import Host
from waylab.testbed.postgres import PostgresServer, find_postgres, programs


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("waylab-*-postgres"))


def a_trial(**parts):
    system = System(kind="messages", messages=Messages(dispatch="pool", connections=4), **parts)
    return make_plan(Spec(name="x", system=system, load=Load(clients=4))).trials[0]


@pytest.fixture
def server(tmp_path):
    made = PostgresServer(postgres_or_skip(), tmp_path / "logs")
    try:
        made.create()
        made.start(Host(), (), 20)
        yield made
    finally:
        made.remove()


def test_the_server_runs_and_removes_its_folder(tmp_path):
    before = folders()
    made = PostgresServer(postgres_or_skip(), tmp_path / "logs")
    try:
        made.create()
        made.start(Host(), ("work_mem=7MB",), 20)
        pid = made.process.pid
        with made.connect() as connection:
            assert connection.query("SELECT 1 + 1, NULL, 'é'") == [["2", None, "é"]]
            assert connection.query("SHOW work_mem") == [["7MB"]]
            assert connection.query("SHOW listen_addresses") == [[""]]
            assert connection.query("SHOW fsync") == [["on"]]
        assert made.facts().version.startswith("postgres (PostgreSQL)")
        assert folders() - before and made.facts().file_system
    finally:
        made.remove()
    assert folders() <= before and not psutil.pid_exists(pid)


def test_an_error_in_a_statement_raises_one_line(server):
    with server.connect() as connection:
        with pytest.raises(TestbedError, match='database postgres: ERROR: relation "nothing" does not exist'):
            connection.query("SELECT * FROM nothing")
        assert connection.query("SELECT 'goes on'") == [["goes on"]]
    with pytest.raises(TestbedError, match='FATAL: database "none" does not exist'):
        server.connect("none")


def test_invalid_settings_raise_the_servers_last_error(tmp_path):
    made = PostgresServer(postgres_or_skip(), tmp_path / "logs")
    try:
        made.create()
        with pytest.raises(
            TestbedError, match=r"database: ended with 1 before it was ready: .*no_such_thing"
        ):
            made.start(Host(), ("no_such_thing=1",), 20)
    finally:
        made.remove()


def test_every_trial_has_a_fresh_database(tmp_path):
    postgres_or_skip()
    trial = a_trial()
    without = a_trial(database=DatabaseSettings(further_index=False, settings=("synchronous_commit=off",)))
    indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = 'message'"
    with RunDatabase(Testbed(), programs_of((trial,)), (trial, without), tmp_path) as database:
        assert "dbname=waystage_trial" in database.prepare(trial)
        before = database.counters()
        database.query("INSERT INTO queue (name) VALUES ('one')")
        pid, (((with_it,),), commits) = (
            database.process.pid,
            (database.query(indexes), database.counters()["commits"]),
        )
        assert commits > before["commits"] and database.counters()["wal_written_to_bytes"] > 0
        database.prepare(trial)
        assert database.process.pid == pid, "the same server for the whole run"
        assert database.query("SELECT count(*) FROM queue") == [["0"]]
        database.prepare(without)
        assert database.query("SHOW synchronous_commit") == [["off"]]
        assert int(database.query(indexes)[0][0]) == int(with_it) - 1
        # A server that has exited is started again.
        os.kill(database.process.pid, signal.SIGKILL)
        database.process.wait(10)
        with pytest.raises(TestbedError):
            database.counters()
        database.prepare(trial)
        assert database.query("SELECT count(*) FROM queue") == [["0"]]


def test_final_counters_include_the_last_transactions_of_every_client(tmp_path):
    """The client ends while its server process works; the process counts its transactions when it ends."""
    postgres_or_skip()
    trial = a_trial()
    with RunDatabase(Testbed(), programs_of((trial,)), (trial,), tmp_path) as database:
        database.prepare(trial)
        before = database.counters()["commits"]
        client = database._server.connect("waystage_trial")
        for _ in range(100):
            client.query("SELECT 1")
        text = b"SELECT pg_sleep(0.5)\0"
        client._socket.sendall(b"Q" + struct.pack("!I", 4 + len(text)) + text)
        client.close()
        assert database.final_counters()["commits"] >= before + 100


def test_the_server_of_a_killed_lab_exits_and_the_next_lab_removes_its_folder(tmp_path):
    """The kernel kills the server; the next lab removes its folder."""
    postgres_or_skip()
    code = (
        "import sys, time; from pathlib import Path; from waylab.testbed.hosts import Host\n"
        "from waylab.testbed.postgres import PostgresServer, find_postgres\n"
        "s = PostgresServer(find_postgres(), Path(sys.argv[1])); s.create(); s.start(Host(), (), 20)\n"
        "print(s.process.pid, s.connection_string('x').split()[0].partition('=')[2], flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout
        try:
            pid, folder = lab.stdout.readline().split()
        finally:
            lab.kill()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid)) and Path(folder).is_dir()
    made = PostgresServer(find_postgres(), tmp_path / "logs")
    made.create()
    made.remove()
    assert not Path(folder).exists()


def test_without_postgres_the_error_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "WHEEL", "nowhere")
    monkeypatch.delenv(programs.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "DEBIAN", str(tmp_path))
    with pytest.raises(LabError) as caught:
        find_postgres()
    assert "initdb and postgres not found on PATH" in str(caught.value) and "\n" not in str(caught.value)


def test_postgres_is_found_by_the_variable_or_in_the_python_package(monkeypatch, tmp_path):
    said, wheel = tmp_path / "said", tmp_path / programs.WHEEL
    for folder in (said, wheel):
        folder.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            (folder / name).write_text('#!/bin/sh\necho "postgres (PostgreSQL) 17.1"\n')
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "DEBIAN", str(tmp_path / "nowhere"))
    monkeypatch.setattr(programs.sysconfig, "get_path", {"purelib": str(tmp_path)}.get)
    monkeypatch.delenv(programs.VARIABLE, raising=False)
    assert find_postgres().folder == wheel
    monkeypatch.setenv(programs.VARIABLE, str(said))
    assert find_postgres().folder == said
    monkeypatch.setenv(programs.VARIABLE, str(tmp_path))
    with pytest.raises(LabError, match="initdb and postgres are not in it"):
        find_postgres()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("postgres (PostgreSQL) 12.4", "14 or newer is needed"),
        ("postgres (PostgreSQL) 17.1", "pgbench: not found"),
    ],
)
def test_an_old_postgres_and_a_missing_pgbench_are_refused(monkeypatch, tmp_path, version, message):
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{version}"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.delenv(programs.VARIABLE, raising=False)
    with pytest.raises(LabError, match=message):
        find_postgres(pgbench=True)


def test_a_plan_without_a_database_needs_none(monkeypatch, fake):
    monkeypatch.setattr(programs, "_folder", lambda: None)
    trial = a_trial()
    none = dataclasses.replace(trial.system, messages=Messages(dispatch="none"))
    assert programs_of((dataclasses.replace(trial, system=none),)).postgres is None
    with pytest.raises(LabError, match="PostgreSQL"):
        programs_of((trial,))
