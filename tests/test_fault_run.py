"""The short form of fault_run.py, and the table of what it uses: docs/test-coverage.md."""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from fault_clients import FORMS, MS_FORMS, OTHERS, Counts, History, Lost, Write
from fault_policies import POLICIES, Spelling, proxy_file, settings_of, toml
from fault_proxy import EVENTS
from fault_report import MEMORY_MIB, Report, judge, lines
from fault_run import ejections, run
from fault_servers import FAULTS, PortTakenError, Server, Servers
from programs import ROOT, connect, free_ports

SECONDS = 13
COVERAGE = (ROOT / "docs/test-coverage.md").read_text()
REFERENCE = tomllib.loads((ROOT / "examples/proxy/reference.toml").read_text())


def table(name, column):
    """The cells of a column of a table of the page, by the first cell of their row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in COVERAGE.splitlines()]
    start = next(place for place, row in enumerate(rows) if row[0] == name)
    place = rows[start].index(column)
    end = next((at for at in range(start, len(rows)) if len(rows[at]) < 2), len(rows))
    return {row[0].strip("`"): row[place] for row in rows[start + 2 : end]}


def check_rows(name, used):
    """Compare the rows that say `drawn` with what is used; all others must have a reason."""
    cells = table(name, "fault run")
    assert {row for row, cell in cells.items() if cell == "drawn"} == used & set(cells)
    assert not [row for row, cell in cells.items() if cell != "drawn" and not re.match(r"no: .{10}", cell)]


def test_no_policy_breaks_its_guarantees_under_faults(tmp_path):
    reports = [Report(policy) for policy in POLICIES]
    stalls = run(SECONDS, 1, tmp_path, reports)
    output = "\n".join(["\n".join(lines(report)) for report in reports] + [str(stalls)])
    assert not [report for report in reports if report.broken or report.undecided], output
    assert ejections(reports), output
    # A short run does not draw every form of the lists that it draws from.
    events = set().union(
        FORMS, *(report.events for report in reports), *({form} for form, _ in MS_FORMS if form)
    )
    commands = set().union(*(report.clients.commands for report in reports))
    check_rows("event", events)
    # A short run does not draw every command of the list that it draws from.
    check_rows("command", commands | set(OTHERS) | {"gets", "gat", "gats", "stats", "quit"})
    assert set(FAULTS) | set(EVENTS.values()) <= set(table("event", "fault run"))


def processes_with(variable):
    """The command lines of processes whose environment has this variable, by their numbers."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            # It has ended, or belongs to another user.
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_its_report_and_leaves_no_process(tmp_path, number):
    # All processes of the run inherit this variable.
    name, value = "WAYSTAGE_TEST_OF_A_SIGNAL", str(tmp_path)
    command = [
        sys.executable,
        str(ROOT / "tests/fault_run.py"),
        "--seconds",
        "3600",
        "--folder",
        str(tmp_path),
    ]
    command += ["--policy", "two-proxies"]
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, name: value},
    )
    try:
        deadline = time.monotonic() + 120
        # The load generator is the last one that starts.
        while not any(" load " in line for line in processes_with(f"{name}={value}").values()):
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        # The servers, two proxies, the load generator and the run.
        assert len(processes_with(f"{name}={value}")) > 5
        time.sleep(2.0)
        # As Ctrl-C does: to all processes of the terminal's group.
        os.killpg(run.pid, number)
        output, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
        left = processes_with(f"{name}={value}")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not left
    assert run.returncode == 128 + number, output
    assert output.startswith("two-proxies: ") and "as promised" in output
    assert re.search(rf"\nstopped by {number.name} after \d+ s\n$", output), output


def test_the_proxies_use_the_settings_that_the_table_names():
    used = set()
    for policy in POLICIES:
        own = policy.own_servers()
        ports = policy.all_ports({name: list(range(1000, 1000 + count)) for name, count in own.items()})
        document = proxy_file(policy, ports, Spelling(), "folder")
        assert tomllib.loads(toml(document)) == {key: value for key, value in document.items() if value != []}
        found = settings_of(document)
        # Values that are names, where a proxy has the default.
        found |= {
            row for row in defaults() if not any(known.startswith(row.split(" = ")[0]) for known in found)
        }
        used |= found
    check_rows("setting", used)


def defaults():
    """The rows of the table that name the default of a key."""
    pool = {f"pools.{key}": value for key, value in REFERENCE["pools"][0].items()}
    values = {**REFERENCE, **pool}
    return {row for row in table("setting", "fault run") if values.get(row.split(" = ")[0]) in row.split('"')}


def test_a_server_never_takes_the_port_of_another(monkeypatch):
    first = Server()
    try:
        monkeypatch.setattr("fault_servers.free_ports", lambda count: [first.port, *free_ports(count - 1)])
        second = Server()
        second.end()
        assert second.port != first.port
        second.port = first.port
        with pytest.raises(PortTakenError, match=f"process {first.process.pid} listens on port"):
            second.spawn()
        assert second.process.poll() is not None
    finally:
        first.end()
    assert len(set(free_ports(50) + free_ports(50))) == 100


def is_served(port):
    """Whether a server answers on this port."""
    with connect(port) as stream:
        try:
            stream.sendall(b"version\r\n")
            return stream.recv(100).startswith(b"VERSION ")
        except ConnectionError:
            return False


def test_a_server_can_be_unreachable_for_one_of_two_proxies():
    servers = Servers({"main": 1}, 2)
    try:
        ports = [servers.ports(proxy)["main"][0] for proxy in (0, 1)]
        assert [is_served(port) for port in ports] == [True, True]
        servers.relays["main"][1].is_away = True
        assert [is_served(port) for port in ports] == [True, False]
        servers.relays["main"][1].leave(0.1)
        assert [is_served(port) for port in ports] == [True, True]
    finally:
        servers.end()


def test_the_page_names_files_that_exist():
    named = set(re.findall(r"`([a-z_]+\.(?:rs|py))`", COVERAGE))
    files = {path.name for folder in ("crates", "tests") for path in Path(ROOT, folder).rglob("*.*")}
    assert named and named <= files, named - files


def test_broken_guarantees_are_reported():
    for policy in POLICIES:
        report = Report(policy, events={"reload": 1}, proxy={"ejections": 3}, peak_mib=MEMORY_MIB + 1)
        report.before, report.after = {"threads": 5}, {"threads": 6}
        report.clients = Counts(lost=[Lost("one", 10.0, 35.0)], wrong=["two", "three"])
        verification = {"checked": 9, "wrong": 0, "torn": 2, "stale": 1, "unexpected_reply": 0}
        totals = {"requests_sent": 9, "requests_answered": 8}
        report.load = {"totals": totals, "verification": verification, "errors": {"ERROR": 1}}
        judge(report, [], 0.0)
        stale = [] if policy.may_be_late else ["1 stale"]
        expected = [
            "2 torn",
            *stale,
            "9 sent, 8 answered",
            "an error of another kind: ERROR",
            "1 lost, the first: one",
            "2 wrong, the first: two",
            f"{MEMORY_MIB + 1} MiB of memory, more than {MEMORY_MIB}",
            "6 threads, 5 at the start",
        ]
        assert report.broken == expected
        assert lines(report)[-1] == f"  BROKEN: {'; '.join(expected)}"


def test_a_writer_knows_which_versions_it_may_read():
    policies = {policy.name: policy for policy in POLICIES}

    def history(name):
        """Version 1 is acknowledged at 10 s, 2 has failed, 3 is acknowledged at 20 s, 4 has failed."""
        found = History(policies[name])
        found.writes += [Write(1, False, 10.0), Write(2, False), Write(3, False, 20.0, 3), Write(4, False)]
        return found

    def allowed(name, sent):
        return [version for version in range(6) if history(name).is_allowed(version, sent)]

    assert allowed("all-any", 20.1) == [3, 4]
    # The only replica may still apply a failed write.
    assert allowed("plain-shared", 20.1) == [2, 3, 4]
    # Another proxy does not know which replica may have the value of a failed write.
    assert allowed("two-proxies", 20.1) == [2, 3, 4]
    assert allowed("majority-failover", 20.1) == [1, 2, 3, 4]
    assert allowed("majority-failover", 40.0) == [3, 4]
    # The same if the client itself has overwritten the value, on the connection that it reads from.
    assert not history("majority-failover").is_allowed(1, 20.1, connection=3)
    # A write that was acknowledged after the read was sent may have come later.
    assert allowed("all-any", 19.9) == [1, 2, 3, 4]
    # The value of the warm-up pool was overwritten at 10 s.
    assert (allowed("warm-up-routed", 10.1), allowed("warm-up-routed", 20.1)) == ([1, 2, 3, 4], [3, 4])
    deleted = History(policies["all-any"])
    deleted.writes += [Write(1, False, 10.0), Write(2, True, 20.0)]
    assert [version for version in range(3) if deleted.is_allowed(version, 30.0)] == []
