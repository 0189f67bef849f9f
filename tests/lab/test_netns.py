"""Emulated hosts, with real ones where the machine permits: created, measured, removed, and cleaned up after a SIGKILL.

Otherwise (no root, no kernel feature) the tests check the refusal: one line that says what to do.
"""

import csv
import ctypes
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_run import processes_of, wait_for

from waylab.cli import main
from waylab.errors import LabError
from waylab.run import create_run
from waylab.runfolder.files import read_run, read_trial
from waylab.spec import Assignment, HostSettings, Load, System, TestbedSettings
from waylab.testbed import Machine, check_requirements, open_testbed
from waylab.testbed.netns import cgroups, link_processes, links, namespaces
from waylab.testbed.netns.owner import Owner, owner_of, this_process

SPEC = """
name = "emulated"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[system.backends]
count = 2
server = "embedded"
[testbed]
kind = "netns"
oversubscribe = true
[testbed.hosts]
client = { up_mbit = 40, cores = 2 }
server = { up_mbit = 20, down_mbit = 30, cores = 1 }
[assignment]
load = ["client", "client"]
proxy = ["client"]
backends = ["server"]
[load]
test_time_s = 0.6
warm_up_s = 0.1
[design]
blocks = 1
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
link_error_max = 0.3
reason = "a test on a machine that may be busy"
"""
# Slow links and a loose limit, so that the tests pass on a busy machine.
LIMIT = 0.3
KERNEL = {name for name, feature in Machine().network.items() if feature.able}
NEITHER = 'set testbed.kind = "local"'


class ATrial:
    """The parts of a trial that the testbed reads."""

    def __init__(self, *hosts):
        self.assignment = Assignment(load=hosts[:1], proxy=(), backends=hosts[1:])
        self.system, self.load = System(kind="direct"), Load()


def hosts(**described) -> TestbedSettings:
    return TestbedSettings(kind="netns", oversubscribe=True, hosts=described)


def can_emulate(settings: TestbedSettings) -> bool:
    """Return whether this machine can emulate hosts; if it cannot, check the refusal."""
    try:
        check_requirements(settings, (ATrial(*settings.hosts),), Machine())
    except LabError as error:
        assert NEITHER in str(error) and str(error).startswith("testbed.") and "\n" not in str(error)
        return False
    return True


def left() -> set[str]:
    """Return everything in the kernel that has the name of a lab process."""
    hierarchy = cgroups.find_hierarchy()
    groups = [group.name for group in hierarchy.groups()] if hierarchy else []
    return {name for name in [*namespaces.names(), *groups] if owner_of(name)}


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    monkeypatch.setattr(links, "SECONDS", 0.1)
    before, groups = left(), Path("/proc/self/cgroup").read_text()
    interfaces = set(psutil.net_if_addrs())
    yield
    assert Path("/proc/self/cgroup").read_text() == groups
    assert left() - before == set() and set(psutil.net_if_addrs()) == interfaces


def emulated(settings, tmp_path):
    return open_testbed(settings, (ATrial(*settings.hosts),), tmp_path / "links", LIMIT)


def test_links_are_as_described_and_the_measurement_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SECONDS", 0.25)
    settings = hosts(client=HostSettings(up_mbit=40.0), server=HostSettings(up_mbit=20.0, down_mbit=30.0))
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        facts = testbed.facts()
        assert facts.kind == "netns" and set(facts.links) == {"client", "server"}
        counted = {row.host: row for row in testbed.counters()}
        assert testbed.host("client").address != testbed.host("server").address
    measured = {
        (name, check.name): (check.asked, check.expected, check.measured)
        for name, link in facts.links.items()
        for check in link.checks
    }
    assert set(measured) == {("client", "up_mbit"), ("server", "up_mbit"), ("server", "down_mbit")}
    for asked, expected, got in measured.values():
        assert expected == pytest.approx(asked * 1448 / 1514) and abs(got / expected - 1) <= LIMIT
    assert facts.links["client"].round_trip_median_ms > 0
    # The shaper has counted the measured payload, with its headers.
    assert counted["server"].sent_bytes > 20e6 / 8 * 0.2 * 0.5 and counted["server"].sent_dropped == 0
    assert counted["client"].throttled_s == 0.0


def test_a_host_has_its_own_network_and_no_more_cpu_than_its_share(tmp_path):
    settings = hosts(one=HostSettings(cores=0.3), two=HostSettings())
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        burn = (
            "import time\nend = time.time() + 0.5\nwhile time.time() < end: pass\nprint(time.process_time())"
        )
        start = time.monotonic()
        process = testbed.host("one").start("burn", [sys.executable, "-IS", "-c", burn], tmp_path)
        inside = os.stat(f"/proc/{process.pid}/ns/net").st_ino
        assert inside != os.stat("/proc/self/ns/net").st_ino
        groups, mine = (Path(f"/proc/{pid}/cgroup").read_text() for pid in (process.pid, "self"))
        assert re.search(r":/waylab-\d+-\d+-\d+-[0-9a-f]+/lab$", mine, re.MULTILINE)
        assert re.search(r":/waylab-\d+-\d+-\d+-[0-9a-f]+/one$", groups, re.MULTILINE)
        assert process.wait(30)
        elapsed_s = time.monotonic() - start
        # In addition to its share it may use up its last slice: some milliseconds for each core.
        assert float(process.stdout.read_text()) < 0.3 * elapsed_s + 0.1
        throttled_s = {row.host: row.throttled_s for row in testbed.counters()}
        # The number of throttled periods depends on how much CPU time a busy machine gave it.
        assert throttled_s["one"] >= 0.0 and throttled_s["two"] == 0.0
        process.stop()


def test_pinned_hosts_share_no_core(tmp_path):
    described = {"one": HostSettings(cores=0.5), "two": HostSettings(cores=1.0)}
    settings = TestbedSettings(kind="netns", pinning="apart", oversubscribe=True, hosts=described)
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        given = []
        for name in described:
            process = testbed.host(name).start(name, ["sleep", "60"], tmp_path)
            given.append(os.sched_getaffinity(process.pid))
            process.stop()
    assert [len(cores) for cores in given] == [1, 1] and not given[0] & given[1]


def test_a_delay_is_emulated_with_or_without_netem(tmp_path):
    settings = hosts(far=HostSettings(delay_ms=5.0, up_mbit=50.0), near=HostSettings())
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        assert 10.0 <= testbed.facts().links["far"].round_trip_min_ms < 12.0
        assert testbed.facts().links["far"].process or "netem" in KERNEL


def test_a_program_emulates_a_whole_link_and_ends_with_the_testbed(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SECONDS", 0.4)
    far = HostSettings(delay_ms=20.0, up_mbit=8.0, down_mbit=4.0, cores=1.0)
    settings = dataclasses.replace(hosts(far=far, near=HostSettings()), links="process")
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        facts = testbed.facts().links
        assert facts["far"].process and not facts["near"].process
        assert {check.name for check in facts["far"].checks} == {"up_mbit", "down_mbit", "delay_ms"}
        assert all(abs(check.error) <= LIMIT for check in facts["far"].checks)
        counted = {row.host: row for row in testbed.counters()}
        assert counted["far"].sent_packets > 100 and counted["near"].late_packets == 0
        assert (
            0 <= counted["far"].late_packets <= counted["far"].sent_packets + counted["far"].received_packets
        )
        (process,) = link_programs(tmp_path)
        process.kill()
        wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(
            LabError, match=r"link-far: the program that emulates the link of far ended with -9"
        ):
            testbed.counters()
    assert link_programs(tmp_path) == []


def test_a_program_without_links_is_refused(tmp_path, monkeypatch):
    without = tmp_path / "waystage"
    without.write_text("#!/bin/sh\necho \"error: unrecognized subcommand 'link'\" >&2\nexit 2\n")
    without.chmod(0o755)
    settings = dataclasses.replace(hosts(far=HostSettings(delay_ms=5.0)), links="process")
    if not can_emulate(settings):
        return
    monkeypatch.setattr(link_processes, "find_waystage", lambda: without)
    message = r"link-far: the program that emulates the link of far ended with 2: error: unrecognized subcommand 'link'"
    with pytest.raises(LabError, match=message), emulated(settings, tmp_path):
        pass


def link_programs(tmp_path):
    """Return the programs that emulate links: their counters are in the folder of the test."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        found += [process] if str(tmp_path) in command and "waystage link" in command else []
    return found


def test_hosts_at_a_time_scale(tmp_path):
    described = {
        "far": HostSettings(up_mbit=200.0, cores=1.0),
        "near": HostSettings(cores=2.0, core_speed=0.1),
    }
    settings = TestbedSettings(kind="netns", time_scale=20.0, hosts=described)
    if not can_emulate(settings):
        return
    with emulated(settings, tmp_path) as testbed:
        facts = testbed.facts()
        assert (
            facts.time_scale == 20 and facts.links["far"].cores == 0.05 and facts.links["near"].cores == 0.01
        )
        (check,) = facts.links["far"].checks
        assert check.asked == 10.0 and abs(check.error) <= LIMIT
        assert testbed.filling_host("far").name == "meter"
        # Without a longer time-out, TCP would send the data in a long queue again.
        listener = testbed.host("near").inside(
            lambda: socket.create_server((testbed.host("near").address, 0))
        )
        address = listener.getsockname()
        with listener, testbed.host("far").inside(lambda: socket.create_connection(address)) as client:
            state = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 16)
            assert int.from_bytes(state[8:12], sys.byteorder) >= 20 * 200_000
        quota = [
            Path(f"{group}/near/{name}").read_text().split()
            for group in cgroups.find_hierarchy().groups()
            for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
            if Path(f"{group}/near/{name}").is_file()
        ]
        assert [number for words in quota for number in words] == ["1000", "100000"]


def test_a_link_that_differs_from_its_settings_ends_the_run(tmp_path, monkeypatch):
    settings = hosts(client=HostSettings(up_mbit=40.0), server=HostSettings())
    if not can_emulate(settings):
        return
    monkeypatch.setattr(links, "FRAME_BYTES", 700)
    monkeypatch.setattr(links, "ATTEMPTS", 2)
    message = (
        r"a link differs from its settings in 2 measurements: client.up_mbit = 40: measured .* limit 30 %"
    )
    with pytest.raises(LabError, match=message), emulated(settings, tmp_path):
        pass


# Imports little, because the test is about its end.
HOLD = """
import signal, sys, time
from pathlib import Path
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed.netns import NetnsTestbed, links
links.SECONDS = 0.05
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
settings = TestbedSettings(kind="netns", hosts={"a": HostSettings(cores=1.0), "b": HostSettings()})
with NetnsTestbed(settings, ["a", "b"], Path(sys.argv[1]), 0.3) as testbed:
    testbed.host("a").start("sleeper", ["sleep", "600"], Path(sys.argv[1]))
    print("up", flush=True)
    time.sleep(600)
"""


def holding(tmp_path):
    """A process that has created hosts, prints `up`, and keeps them."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_our_path())


def with_our_path():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_remains_of_killed_runs_are_removed_and_running_ones_are_not_touched(tmp_path):
    settings = hosts(a=HostSettings(cores=1.0), b=HostSettings())
    if not can_emulate(settings):
        return
    before = left()
    with emulated(settings, tmp_path / "living") as living:
        mine = left() - before
        with holding(tmp_path) as process:
            assert process.stdout.readline() == "up\n"
            theirs = left() - before - mine
            assert {owner_of(name).pid for name in theirs} == {process.pid}
            assert not {name for name in theirs if owner_of(name).gone()}
            namespaces.remove_leftovers()
            cgroups.remove_leftovers(cgroups.find_hierarchy())
            assert left() - before == mine | theirs, (
                "the cleanup must not touch the hosts of a running process"
            )
            process.kill()
        wait_for(lambda: not processes_of(tmp_path))
        assert theirs <= left(), "a run that is killed cannot clean up"
        with emulated(settings, tmp_path / "next"):
            assert not theirs & left() and mine <= left()
        assert (
            living.host("a").inside(lambda: Path("/proc/thread-self/net/dev").read_text()).count("eth0") == 1
        )


def test_a_run_on_emulated_hosts_records_the_host_of_every_process(fake, tmp_path, monkeypatch):
    path = tmp_path / "emulated.toml"
    path.write_text(SPEC)
    if not can_emulate(
        hosts(client=HostSettings(up_mbit=40.0, cores=2.0), server=HostSettings(down_mbit=1.0))
    ):
        with pytest.raises(LabError, match=NEITHER):
            create_run(path, tmp_path / "results")
        assert not (tmp_path / "results").exists()
        return
    campaign = create_run(path, tmp_path / "results")
    campaign.run(lambda step: None)
    (planned,) = read_run(campaign.directory).plan
    trial = campaign.directory / "trials" / planned.id
    result = read_trial(campaign.directory, planned.id)
    assert result.status == "measured", result.reason
    where = {process.name: process.host for process in result.processes}
    assert where == {
        **{"backend-0": "server", "backend-1": "server", "proxy": "client"},
        **{"fill-0": "client", "fill-1": "client", "load-0": "client", "load-1": "client"},
        "load-merge": "here",
    }
    assert set(result.testbed.links) == {"client", "server"} and result.testbed.cores_usable >= 1
    listened = {process.name: process.command for process in result.processes}["backend-0"]
    assert re.fullmatch(r"10\.77\.0\.\d+:0", listened[listened.index("--listen") + 1])
    assert (trial / "hosts.csv").read_text().startswith("clock_ns,host,sent_bytes")
    merged = json.loads((trial / "load.json").read_text())
    assert [part["name"] for part in merged["parts"]] == [
        str(trial / name) for name in ("load-0.json", "load-1.json")
    ]
    assert 0 < result.generators_overlap <= 1


@pytest.mark.parametrize(("proxies", "factor"), [(1, "25"), (2, "50")])
def test_the_proxies_of_a_paced_host_slow_themselves_down(fake, tmp_path, proxies, factor):
    paced = SPEC.replace(
        "client = { up_mbit = 40, cores = 2 }", "client = {}\nslow = { cores = 0.2, paced = true }"
    )
    paced = paced.replace('proxy = ["client"]', 'proxy = ["slow"]').replace(
        "[testbed]", f"[system.proxy]\ncount = {proxies}\n[testbed]\ntime_scale = 5"
    )
    path = tmp_path / "paced.toml"
    path.write_text(paced)
    if not can_emulate(hosts(client=HostSettings(), server=HostSettings(down_mbit=1.0, cores=1.0))):
        return
    campaign = create_run(path, tmp_path / "results")
    campaign.run(lambda step: None)
    (planned,) = read_run(campaign.directory).plan
    result = read_trial(campaign.directory, planned.id)
    commands = {process.name: process.command for process in result.processes}
    found = [commands[name] for name in commands if name.startswith("proxy")]
    # Their loops share a twenty-fifth of a core.
    assert [command[command.index("--slow-down") + 1] for command in found] == [factor] * proxies
    assert result.testbed.links["slow"].paced and not result.testbed.links["server"].paced
    rows = csv.DictReader((campaign.directory / "trials" / planned.id / "hosts.csv").read_text().splitlines())
    assert all(float(row["throttled_s"]) == 0 for row in rows if row["host"] == "slow"), "no quota stops it"


REFUSAL = (
    r'testbed\.kind = "netns": needs root; this is user \d+ without CAP_NET_ADMIN, CAP_SYS_ADMIN; '
    r'set testbed\.kind = "local", which runs everything on this machine without limits\n'
)
REFUSED = """
from waylab.spec import HostSettings, TestbedSettings
from waylab.testbed import Machine
from waylab.testbed.requirements import check_kernel
try:
    check_kernel({"a": HostSettings()}, Machine())
except Exception as error:
    print(error)
"""


def test_missing_privileges_are_refused_in_one_line():
    libc = ctypes.CDLL(None)

    def drop():
        # PR_CAPBSET_DROP of CAP_NET_ADMIN and CAP_SYS_ADMIN: root without these capabilities, from the next exec on.
        for capability in (12, 21):
            libc.prctl(24, capability, 0, 0, 0)

    command = [sys.executable, "-c", REFUSED]
    done = subprocess.run(
        command, capture_output=True, text=True, env=with_our_path(), preexec_fn=drop, check=False
    )
    assert re.fullmatch(REFUSAL, done.stdout), done.stdout + done.stderr


def test_the_plan_is_printed_before_the_run_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Machine, "missing_capabilities", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"])
    path = tmp_path / "emulated.toml"
    path.write_text(SPEC)
    assert main(["plan", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "1 trials" in out and re.fullmatch(f"waylab: {REFUSAL}", err), err
    assert main(["run", str(path), "--results", str(tmp_path / "results")]) == 2
    assert re.fullmatch(f"waylab: {REFUSAL}", capsys.readouterr().err) and not (tmp_path / "results").exists()


def test_a_run_cleans_up_when_a_stop_is_requested(tmp_path):
    if not can_emulate(hosts(a=HostSettings(cores=1.0), b=HostSettings())):
        return
    with holding(tmp_path) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3
    # Removing the host has killed the sleeper.
    wait_for(lambda: not processes_of(tmp_path))


def test_an_owner_is_identified_by_process_id_and_start_time():
    me = this_process()
    assert owner_of(me.name("client-1")) == me and owner_of(str(me)) == me and not me.gone()
    assert Owner(me.pid_namespace, me.pid, me.started_ticks - 1, "ab").gone(), "the process id was reused"
    assert Owner(me.pid_namespace, 2**22 + 1, me.started_ticks, "ab").gone()
    assert not Owner(me.pid_namespace + 1, 2**22 + 1, 1, "ab").gone(), "it cannot be seen from here"
    assert this_process() != me, "two testbeds of one process have different names"
    for name in ("client", "waylab", "waylab-client", "waylab-1-2-x-ab-host", "xwaylab-1-2-3-ab-host"):
        assert owner_of(name) is None
