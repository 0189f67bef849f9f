"""The machine's features that a testbed requires, and its calls to the kernel; tested without root."""

import dataclasses
from functools import cached_property

import pytest

from waylab.cli import main
from waylab.errors import LabError
from waylab.runfolder.trial import TestbedFacts
from waylab.spec import Assignment, HostSettings, Load, System, TestbedSettings
from waylab.testbed import Feature, Testbed, check_requirements, open_testbed
from waylab.testbed.machine import Machine
from waylab.testbed.netns import cgroups
from waylab.testbed.netns.link_process import Direction
from waylab.testbed.netns.link_processes import Parts, directions, parts_of
from waylab.testbed.netns.links import SECONDS, Measurement, checks, measuring_s
from waylab.testbed.netns.network import FRAME_BYTES, _shape, burst_bytes
from waylab.testbed.netns.owner import this_process

NEEDED = ("namespaces", "veth", "bridge", "tbf", "netem", "tun")


class AMachine(Machine):
    """A machine with every feature except the named ones."""

    def __init__(self, cores=2, without=()):
        self.__dict__["cores"] = cores
        self._without = without

    def _finding(self, name):
        return Feature(name, name not in self._without, f"no {name}" if name in self._without else "yes")

    @cached_property
    def privileged(self):
        return self._finding("root")

    @cached_property
    def network(self):
        return {name: self._finding(name) for name in NEEDED}

    @cached_property
    def quotas(self):
        return self._finding("quotas")


class ATrial:
    def __init__(self, load=("a",), proxy=(), backends=("b",), kind="direct"):
        self.assignment = Assignment(load=load, proxy=proxy, backends=backends)
        self.system, self.load = System(kind=kind), Load()


def settings(a=None, b=None, **rest):
    described = {"a": HostSettings(**(a or {})), "b": HostSettings(**(b or {}))}
    return TestbedSettings(kind="netns", hosts=described, **rest)


def refusal(testbed, machine, *trials):
    with pytest.raises(LabError) as caught:
        check_requirements(testbed, trials or (ATrial(),), machine)
    line = str(caught.value)
    assert "\n" not in line and 'set testbed.kind = "local"' in line
    return line


def test_the_local_testbed_needs_nothing(tmp_path):
    local = TestbedSettings()
    nothing = AMachine(1, ("root", "quotas", *NEEDED))
    check_requirements(local, (ATrial(),), nothing)
    with open_testbed(local, (ATrial(),), tmp_path / "links", 0.05) as testbed:
        assert type(testbed) is Testbed and testbed.facts() == TestbedFacts() and testbed.counters() == []
        assert testbed.host("anything").address == "127.0.0.1"
    assert not (tmp_path / "links").exists()


@pytest.mark.parametrize(
    ("host", "needs"),
    [
        ({}, ("root", "namespaces", "veth", "bridge")),
        ({"up_mbit": 100.0}, ("root", "tbf or tun")),
        ({"down_mbit": 100.0}, ("tbf or tun",)),
        ({"delay_ms": 1.0}, ("netem or tun",)),
        ({"loss": 0.1}, ("tun",)),
        ({"cores": 1.0}, ("quotas",)),
    ],
)
def test_only_the_described_features_are_required(host, needs):
    described = settings(host)
    wanted = {name for need in needs for name in need.split(" or ")}
    check_requirements(described, (ATrial(),), AMachine(without=set(("quotas", *NEEDED[3:])) - wanted))
    for need in needs:
        lacking = tuple(need.split(" or "))
        assert f"no {lacking[-1]};" in refusal(described, AMachine(without=lacking))
        for left_out in lacking if len(lacking) > 1 else ():
            check_requirements(described, (ATrial(),), AMachine(without=(left_out,)))


KERNEL = frozenset(("tbf", "netem"))


@pytest.mark.parametrize(
    ("host", "links", "kernel", "parts"),
    [
        ({}, "process", KERNEL, Parts()),
        ({"up_mbit": 9.0, "delay_ms": 1.0}, "auto", KERNEL, Parts(tbf=True, netem=True)),
        ({"up_mbit": 9.0, "delay_ms": 1.0}, "auto", {"tbf"}, Parts(tbf=True, process=True)),
        ({"up_mbit": 9.0, "delay_ms": 1.0}, "auto", {"netem"}, Parts(netem=True, process=True)),
        ({"up_mbit": 9.0, "delay_ms": 1.0}, "process", KERNEL, Parts(process=True)),
        ({"delay_ms": 1.0, "loss": 0.1}, "auto", KERNEL, Parts(process=True)),
        ({"cores": 1.0}, "auto", {}, Parts()),
    ],
)
def test_a_program_emulates_what_the_kernel_cannot(host, links, kernel, parts):
    described = HostSettings(**host)
    assert parts_of(described, links, frozenset(kernel)) == parts


def test_no_direction_is_delayed_twice():
    described = HostSettings(up_mbit=9.0, delay_ms=10.0, queue_kib=64.0)
    up, down = directions(described, Parts(tbf=True, process=True))
    assert up == down == Direction(delay_ms=10.0, queue_bytes=65536, late_ms=0.2)
    up, down = directions(described, Parts(netem=True, process=True))
    assert (up.delay_ms, up.rate_mbit, down.rate_mbit) == (0.0, 9.0, 0.0)


def test_more_cores_than_the_machine_has_need_oversubscribe():
    two = settings({"cores": 2.0}, {"cores": 1.0})
    line = refusal(two, AMachine(2))
    assert (
        "the hosts of a trial have 3 cores together, this machine has 2" in line
        and "oversubscribe = true" in line
    )
    check_requirements(dataclasses.replace(two, oversubscribe=True), (ATrial(),), AMachine(2))
    check_requirements(two, (ATrial(),), AMachine(3))
    check_requirements(two, (ATrial(load=("b",), backends=("b",)),), AMachine(1))


def test_a_time_scale_makes_hosts_fit():
    two = settings({"cores": 8.0}, {"cores": 4.0, "core_speed": 0.5}, time_scale=4)
    assert "have 2.5 cores together" in (line := refusal(two, AMachine(2)))
    assert "a larger testbed.time_scale (it is 4)" in line
    check_requirements(dataclasses.replace(two, time_scale=5.0), (ATrial(),), AMachine(2))
    line = refusal(settings({"cores": 0.5}, time_scale=1000), AMachine(2))
    assert (
        "testbed.hosts.a: has 0.0005 of a core of this machine, and the kernel's smallest share is 0.001"
        in line
    )


def test_hosts_at_a_time_scale_have_lower_rates_and_longer_delays():
    described = {"cores": 2.0, "core_speed": 0.5, "up_mbit": 100.0, "delay_ms": 3.0}
    host = settings(described, time_scale=20.0).emulated("a")
    assert (host.cores, host.up_mbit, host.down_mbit, host.delay_ms) == (0.05, 5.0, None, 60.0)
    assert settings(described).emulated("a").cores == 1.0
    assert burst_bytes(5.0, 20.0) == burst_bytes(100.0), "a burst is of bytes"
    assert measuring_s(host) == (pytest.approx(4.8), SECONDS), "40 round trips"
    assert measuring_s(HostSettings(up_mbit=2.0), 2)[0] == pytest.approx(2 * 400 * 1514 * 8 / 2e6)


@pytest.mark.parametrize(
    ("cores", "quota_us", "period_us"),
    [(4.0, 40_000, 10_000), (0.1, 1000, 10_000), (0.05, 1000, 20_000), (0.001, 1000, 1_000_000)],
)
def test_a_small_share_has_a_longer_period(cores, quota_us, period_us):
    assert cgroups.quota_and_period_us(cores) == (quota_us, period_us)


def test_cores_are_counted_trial_by_trial():
    described = settings({"cores": 2.0}, {"cores": 1.0})
    apart = (ATrial(load=("a",), backends=("a",)), ATrial(load=("b",), backends=("b",)))
    check_requirements(described, apart, AMachine(2))
    proxied = ATrial(load=("b",), proxy=("a",), backends=("b",), kind="proxy")
    assert "3 cores together" in refusal(described, AMachine(2), proxied)


def test_pinned_hosts_need_enough_cores():
    whole = settings({"cores": 1.0}, {"cores": 0.5}, pinning="apart", oversubscribe=True)
    check_requirements(whole, (ATrial(),), AMachine(2))
    assert "need 2 cores of their own, this machine has 1" in refusal(whole, AMachine(1))
    with pytest.raises(LabError, match="host b has no `cores`"):
        check_requirements(settings({"cores": 1.0}, pinning="apart"), (ATrial(),), AMachine(2))


def test_reserved_names_are_refused_for_hosts():
    described = TestbedSettings(kind="netns", hosts={"meter": HostSettings()})
    with pytest.raises(LabError, match="`lab`, `meter` and `switch` are reserved names"):
        check_requirements(described, (ATrial(load=("meter",), backends=("meter",)),), AMachine())


class ARoute:
    """Records the calls to the kernel."""

    def __init__(self):
        self.calls = []

    def tc(self, command, kind, index, handle, **settings):
        self.calls.append((command, kind, index, handle, settings))


def test_frames_pass_the_delay_and_then_the_shaper():
    route = ARoute()
    both = HostSettings(delay_ms=2.5)
    _shape(route, 7, 100.0, both, Parts(tbf=True, netem=True))
    (command, kind, index, handle, rate), (_, second, _, _, delay) = route.calls
    assert (command, kind, index, handle, second) == ("add", "tbf", 7, 0x10000, "netem")
    assert rate["rate"] == 12_500_000 and rate["burst"] == burst_bytes(100.0) == 25_000
    assert delay == {"delay": 2500, "limit": delay["limit"], "parent": 0x10001}
    route = ARoute()
    _shape(route, 7, None, HostSettings(), Parts())
    _shape(route, 7, 100.0, both, Parts(process=True))
    assert route.calls == []
    _shape(route, 7, None, both, Parts(netem=True))
    assert [kind for _, kind, *_ in route.calls] == ["netem"] and "parent" not in route.calls[0][4]
    assert burst_bytes(1.0) == 10 * FRAME_BYTES, "a frame must fit, and some more"


def test_the_expected_payload_rate_of_a_link():
    measured = Measurement(
        up_payload_mbit=90.0,
        down_payload_mbit=100.0,
        round_trip_min_ms=4.6,
        round_trip_median_ms=9.9,
        segment_bytes=1448,
    )
    up, delay = checks(HostSettings(up_mbit=100.0, delay_ms=2.0), measured)
    assert up.expected == pytest.approx(95.640687, abs=1e-6) and up.error == pytest.approx(90 / 95.640687 - 1)
    assert up.text(0.05) == (
        "up_mbit = 100: measured 90 Mbit/s of payload, expected 95.64 (-5.9 %, limit 5 %)"
    )
    assert delay.expected == 4.0 and delay.error == pytest.approx(0.1 / 4.0), "half a millisecond is forgiven"
    assert checks(HostSettings(), measured) == []


def test_control_groups_of_version_2(tmp_path):
    """A tree of plain files stands for the kernel's: its content is what the lab writes to the kernel."""
    root = tmp_path / "unified"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io\n")
    (root / "cgroup.subtree_control").write_text("")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup2 {root} cgroup2 rw,nosuid 0 0\n")
    hierarchy = cgroups.find_hierarchy(mounts)
    assert hierarchy == cgroups.Hierarchy(2, root)
    me = this_process()
    group = cgroups.CpuGroups(hierarchy, me)
    procs = group.create("server", 0.5)
    assert procs == root / str(me) / "server" / "cgroup.procs"
    assert (procs.parent / "cpu.max").read_text() == "5000 10000"
    with pytest.raises(KeyError), group.without_quotas():
        assert (procs.parent / "cpu.max").read_text() == "max 10000"
        raise KeyError
    assert (procs.parent / "cpu.max").read_text() == "5000 10000"
    weights = [(root / str(me) / part / "cpu.weight").read_text() for part in (".", "server")]
    assert weights == ["10000", "50"], "all hosts before other programs, and each by its cores"
    assert (
        (root / "cgroup.subtree_control").read_text()
        == (root / str(me) / "cgroup.subtree_control").read_text()
        == "+cpu"
    )
    (procs.parent / "cpu.stat").write_text("usage_usec 9\nnr_throttled 3\nthrottled_usec 250000\n")
    assert group.throttled_s() == {"server": 0.25}
    assert hierarchy.groups() == [root / str(me)]


def test_control_groups_of_version_1_and_none_at_all(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"cgroup {tmp_path} cgroup rw,cpuset 0 0\ncgroup {tmp_path} cgroup rw,cpuacct,cpu 0 0\n"
        f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    )
    hierarchy = cgroups.find_hierarchy(mounts)
    assert hierarchy == cgroups.Hierarchy(1, tmp_path)
    groups = cgroups.CpuGroups(hierarchy, this_process())
    procs = groups.create("server", 1.5)
    assert (procs.parent / "cpu.cfs_quota_us").read_text() == "15000"
    with groups.without_quotas():
        assert (procs.parent / "cpu.cfs_quota_us").read_text() == "-1"
    assert (procs.parent / "cpu.cfs_quota_us").read_text() == "15000"
    assert (procs.parent / "cpu.cfs_period_us").read_text() == "10000"
    weights = [(place / "cpu.shares").read_text() for place in (procs.parents[1], procs.parent)]
    assert weights == ["102400", "1536"]
    (procs.parent / "cpu.stat").write_text("nr_periods 9\nthrottled_time 500000000\n")
    mounts.write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")
    assert cgroups.find_hierarchy(mounts) is None, "without the controller cpu it is of no use"


def test_the_doctor_checks_everything_and_changes_nothing(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("root", *NEEDED, "quotas", "cores", "governor", "steal"):
        assert f" {name} " in out


def test_a_paced_host_needs_no_quota_but_a_proxy_that_can_become_slower():
    paced = settings({"cores": 2.0}, {"cores": 0.002, "paced": True}, time_scale=4)
    proxied = {"load": ("a",), "proxy": ("b",), "backends": ("a",)}
    check_requirements(paced, (ATrial(**proxied, kind="proxy"),), AMachine(2))
    others = [
        (ATrial(**proxied, kind="nutcracker"), "runs proxy of another program; only `waystage proxy`"),
        (ATrial(**proxied | {"backends": ("b",)}, kind="proxy"), "runs backends of another program"),
        (ATrial(load=("b",), backends=("a",)), "runs load of another program"),
    ]
    for trial, text in others:
        with pytest.raises(LabError, match=rf"^testbed\.hosts\.b\.paced: the host {text}.*\bproxy on a host"):
            check_requirements(paced, (trial,), AMachine(2))
    for cores, text in (({}, "no limit of cores"), ({"cores": 40.0}, "10 cores")):
        described = settings({"cores": 2.0}, {"paced": True} | cores, time_scale=4)
        with pytest.raises(
            LabError, match=rf"b\.paced: the host has {text} of this machine, its proxy has 1 loops"
        ):
            check_requirements(described, (ATrial(**proxied, kind="proxy"),), AMachine(20))
