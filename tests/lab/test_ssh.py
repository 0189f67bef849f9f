"""The testbed `ssh` against real sshd's on this machine, one for each host, each with a clock of its own (as root).

The checks of a specification are tested everywhere; the rest needs openssh-server, which `.ci/run` installs.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from ssh_hosts import SshServers, can_run_hosts
from test_run import ignore, wait_for

from waylab.analysis import analyse
from waylab.cli import main
from waylab.errors import LabError
from waylab.program import find_waystage
from waylab.run import create_run, resume_run
from waylab.runfolder.files import read_trial
from waylab.spec import HostSettings, TestbedSettings, read_spec
from waylab.testbed.ssh import SshTestbed, testbed

SPEC = """
name = "three-hosts"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 1
server = "embedded"
[system.proxy]
sample = 1
[testbed]
kind = "ssh"
[testbed.hosts]
client = { ssh = "client", folder = "FOLDER/files-client" }
middle = { ssh = "middle", folder = "FOLDER/files-middle" }
server = { ssh = "server", folder = "FOLDER/files-server" }
[assignment]
load = ["client"]
proxy = ["middle"]
backends = ["server"]
[load]
clients = 4
think_time = "fixed:5ms"
sample = 1
test_time_s = 2.0
warm_up_s = 0.5
[design]
blocks = 1
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
generator_cpu_max = 1.5
interactive_law_max = 1.0
steady_state = false
reason = "a test on a machine that may be busy"
"""
NAMES = ["client", "middle", "server"]
RUN = "import sys; from waylab.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module", autouse=True)
def small_waystage(tmp_path_factory):
    """Use a copy of the program without its symbols, which is copied to the hosts in half the time."""
    strip = shutil.which("strip")
    if not strip or not can_run_hosts():
        yield
        return
    small = tmp_path_factory.mktemp("small") / "waystage"
    subprocess.run([strip, "-o", str(small), str(find_waystage())], check=True)
    before = os.environ.get("WAYSTAGE_BIN")
    os.environ["WAYSTAGE_BIN"] = str(small)
    yield
    if before is None:
        del os.environ["WAYSTAGE_BIN"]
    else:
        os.environ["WAYSTAGE_BIN"] = before


def specification(folder, text=SPEC, name="spec.toml"):
    path = folder / name
    path.write_text(text.replace("FOLDER", str(folder / "ssh")))
    return path


@pytest.fixture
def servers(tmp_path, monkeypatch):
    if not can_run_hosts():
        pytest.skip("openssh-server is not installed")
    started = SshServers(tmp_path / "ssh", NAMES)
    monkeypatch.setenv("PATH", f"{started.bin}:{os.environ['PATH']}")
    try:
        yield started
        assert {name: host.left() for name, host in started.hosts.items()} == {name: [] for name in NAMES}
        assert started_there(started) == []
    finally:
        started.end()


def started_there(servers) -> list[str]:
    """Return the command lines of programs that run from the hosts' folders."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if f"{servers.folder}/files-" in command and not command.startswith(
            ("ssh ", "sh -c", "/usr/bin/ssh ")
        ):
            found.append(command)
    return found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('ssh = "server", ', "", "testbed.hosts.server.ssh: is missing; it is the destination"),
        ('ssh = "server"', 'ssh = "-oProxyCommand=x"', "should be a destination for ssh"),
        ('ssh = "server"', 'ssh = "client"', "is the host client; use that name for both"),
        (
            'ssh = "server"',
            'ssh = "server", cores = 1',
            "testbed.hosts.server.cores: describes an emulated host",
        ),
        ('ssh = "server"', 'ssh = "server", address = "server"', "should be an IPv4 address"),
        ('kind = "ssh"', 'kind = "ssh"\ntime_scale = 2', "testbed.time_scale: is only for emulated hosts"),
        ('server = "embedded"', 'server = "auto"', 'system.backends.server: set it to "embedded"'),
        ("[system.proxy]", '[system]\nkind = "nutcracker"\n[system.proxy]', "system.kind = 'nutcracker'"),
        ("blocks = 1", 'blocks = 1\ncovariate = "machine_speed"', "design.covariate"),
        ('proxy = ["middle"]', "", "assignment.proxy: is missing"),
    ],
)
def test_a_specification_that_cannot_run_there_is_one_line(tmp_path, old, new, message):
    assert old in SPEC
    text = SPEC.replace(old, new)
    if "[system]" in text:
        text = text.replace("[system]\nkind", "kind").replace(
            "[system.backends]", "[system]\nKIND\n[system.backends]"
        )
        text = text.replace('kind = "nutcracker"\n', "").replace("KIND", 'kind = "nutcracker"')
    with pytest.raises(LabError) as error:
        read_spec(specification(tmp_path, text))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_three_hosts_give_a_run_that_the_analysis_accepts(servers, tmp_path):
    campaign = create_run(specification(tmp_path), tmp_path / "results")
    campaign.run(ignore)
    outcome = read_trial(campaign.directory, campaign.plan.trials[0].id)
    assert outcome.status == "measured", outcome.reason
    facts = outcome.testbed
    assert set(facts.hosts) == set(facts.clocks) == set(NAMES) and facts.clock_host == "client"
    assert {process.name: process.host for process in outcome.processes} == {
        "backend-0": "server",
        "proxy": "middle",
        "load": "client",
    }
    if os.geteuid() == 0:
        # The hosts' clocks are as far apart as their time namespaces, within the error that is reported.
        for index, name in enumerate(NAMES):
            clock = facts.clocks[name]
            assert abs(clock.offset_ns - 40_000 * (index + 1) * 1_000_000_000) <= clock.error_ns
    (trial,) = analyse(campaign.directory).trials
    assert trial.used, [gate for gate in trial.gates if not gate.passed]
    numbers = trial.numbers
    assert {"waylab", "proxy", "backends", "load"} <= set(numbers.cpu.cpu_s)
    # Both ends of the connections are joined although their clocks differ by hours.
    assert numbers.proxy_view.joined > 100 and numbers.proxy_view.unmatched <= numbers.proxy_view.joined / 10
    assert abs(numbers.proxy_view.before_mean_ns) < 1e9


def test_two_generators_start_at_one_instant_and_are_merged(servers, tmp_path):
    text = SPEC.replace('load = ["client"]', 'load = ["client", "server"]').replace(
        "test_time_s = 2.0", "test_time_s = 5.0"
    )
    # On a busy machine, a keeper may learn the common instant after it. The gate `generators` refuses such a trial.
    for attempt in range(3):
        campaign = create_run(specification(tmp_path, text), tmp_path / f"results-{attempt}")
        campaign.run(ignore)
        outcome = read_trial(campaign.directory, campaign.plan.trials[0].id)
        assert outcome.status == "measured", outcome.reason
        # Their clocks differ by hours, so the windows overlap only if times were converted.
        assert outcome.generators_overlap > 0.5
        (trial,) = analyse(campaign.directory).trials
        failed = [gate for gate in trial.gates if gate.passed is False]
        if not failed:
            break
    assert failed == []
    assert trial.numbers.proxy_view.joined > 100


def run_in_background(servers, spec, results):
    """Start `waylab run` as a program of its own, with the hosts of the test."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "run", str(spec), "--results", str(results)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_kill_9_of_the_lab_leaves_nothing_and_the_run_resumes(servers, tmp_path):
    spec = specification(tmp_path, SPEC.replace("test_time_s = 2.0", "test_time_s = 600.0"))
    lab = run_in_background(servers, spec, tmp_path / "results")
    try:
        wait_for(lambda: sum(" load " in command for command in started_there(servers)) > 0)
    finally:
        lab.send_signal(signal.SIGKILL)
        lab.wait()
    wait_for(lambda: started_there(servers) == [])
    wait_for(lambda: not any(host.left() for host in servers.hosts.values()))
    (directory,) = (tmp_path / "results").iterdir()
    # The same run with a shorter trial, because nobody waits for ten minutes.
    for path in (directory / "spec.toml", directory / "run.json"):
        path.write_text(path.read_text().replace("600.0", "2.0"))
    campaign = resume_run(directory)
    campaign.run(ignore)
    outcome = read_trial(directory, campaign.plan.trials[0].id)
    assert outcome.status == "measured", outcome.reason


def test_a_host_that_goes_away_fails_the_trial_and_the_run_resumes(servers, tmp_path):
    text = SPEC.replace("test_time_s = 2.0", "test_time_s = 30.0")
    campaign = create_run(specification(tmp_path, text), tmp_path / "results")

    def end_a_host():
        wait_for(lambda: sum(" load " in command for command in started_there(servers)) > 0)
        time.sleep(1.0)
        servers.hosts["middle"].end()

    ending = threading.Thread(target=end_a_host)
    ending.start()
    campaign.run(ignore)
    ending.join()
    outcome = read_trial(campaign.directory, campaign.plan.trials[0].id)
    assert outcome.status == "failed" and "host middle" in outcome.reason and "\n" not in outcome.reason
    wait_for(lambda: started_there(servers) == [])
    servers.start("middle", NAMES.index("middle"))
    for path in (campaign.directory / "spec.toml", campaign.directory / "run.json"):
        path.write_text(path.read_text().replace("30.0", "2.0"))
    resumed = resume_run(campaign.directory)
    resumed.run(ignore)
    outcome = read_trial(campaign.directory, resumed.plan.trials[0].id)
    assert outcome.status == "measured", outcome.reason


def opened(servers, waystage=None, **changed):
    """Open the testbed with two hosts, of which the second is changed; the error is one line."""
    folders = {name: str(servers.folder / f"files-{name}") for name in NAMES}
    hosts = {name: HostSettings(ssh=name, folder=folders[name]) for name in ("client", "server")}
    values = {"ssh": "server", "folder": folders["server"]} | changed
    hosts["server"] = HostSettings(**values)
    settings = TestbedSettings(kind="ssh", hosts=hosts)
    with pytest.raises(LabError) as error, SshTestbed(settings, list(hosts), waystage or find_waystage()):
        raise AssertionError("the testbed was opened")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_hosts_that_cannot_be_used_are_one_line_before_anything_is_measured(servers, tmp_path, monkeypatch):
    # Another machine's program, and one that is no program: neither runs there.
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho nonsense\n")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF" + bytes(60))
    for program in (script, broken):
        line = opened(servers, program)
        assert "testbed.hosts.client: waystage does not run there" in line, line
    line = opened(servers, ssh="no-such-host.invalid")
    assert "host server (no-such-host.invalid)" in line and "resolve hostname" in line, line
    line = opened(servers, folder=f"{servers.folder}/absent")
    assert "host server" in line and "No such file" in line, line
    line = opened(servers, address="203.0.113.7")
    assert "testbed.hosts.server: programs there cannot listen on 203.0.113.7" in line, line
    with monkeypatch.context() as changed:
        changed.setattr(testbed, "_SPACE_BYTES", 1 << 60)
        line = opened(servers)
    assert "MiB are free" in line and "set folder" in line, line
    with monkeypatch.context() as changed:
        now = time.time
        changed.setattr(testbed.time, "time", lambda: now() + 3600)
        line = opened(servers)
    assert "its wall clock is -3600 s" in line, line
    servers.hosts["server"].end()
    line = opened(servers)
    assert "host server" in line and "refused" in line, line
    servers.start("server", NAMES.index("server"))


def test_the_command_reports_an_unreachable_host_in_one_line(servers, tmp_path, capsys):
    servers.hosts["server"].end()
    spec = specification(tmp_path)
    assert main(["run", str(spec), "--results", str(tmp_path / "results")]) != 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "host server" in line]
    assert len(lines) == 1 and "refused" in lines[0]
    servers.start("server", NAMES.index("server"))
