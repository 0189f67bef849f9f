"""The gate `cpu_wait`: a host at a time scale waited for a CPU although its quota was not used up."""

import os
import subprocess
import sys
import time

import pytest
from test_netns import KERNEL, nothing_is_left

from waylab.analysis.trial.gates import _cpu_wait, _foreign
from waylab.analysis.trial.links import waited_share
from waylab.runfolder.trial_numbers import LinkUse
from waylab.spec import Gates
from waylab.testbed.machine import Machine
from waylab.testbed.netns import cgroups
from waylab.testbed.netns.owner import this_process
from waylab.testbed.netns.threads import ThreadTimes

__all__ = ["nothing_is_left"]

# A host of 0.3 cores that wants a tenth of a core, a little at a time.
WORKER = """
import time
end = time.monotonic() + float({seconds})
while time.monotonic() < end:
    until = time.process_time() + 0.0005
    while time.process_time() < until:
        pass
    time.sleep(0.0045)
"""
# Wants every core for half of the time, before every program of ordinary priority. Beside strangers of ordinary
# priority the worker can get its tenth of a core at once, and then has nothing to complain about.
STRANGER = """
import os, time
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
while True:
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        pass
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("cores", "throttled", "used", "waited", "share", "what"),
    [
        (0.2, 0.0, 0.1, 0.0, 0.0, "an idle machine"),
        (0.2, 0.0, 0.1, 0.08, 0.08, "a busy machine: the host waits and has quota left"),
        (0.05, 0.7, 0.05, 0.7, 0.0, "the quota alone stops the host, by design"),
        (0.2, 0.3, 0.15, 0.33, 0.03, "both the quota and other programs"),
        (0.1, 0.6, 0.1, 12.0, 0.0, "forty connections of a database wait for one quota, which was used up"),
        (0.1, 0.6, 0.08, 12.0, 0.02, "the same with a fifth of the quota left"),
        (0.1, 0.2, 0.1001, 0.1, 0.0, "rounding"),
    ],
)
def test_only_cpu_time_within_the_quota_counts(cores, throttled, used, waited, share, what):
    assert waited_share(cores, throttled, used, waited) == pytest.approx(share), what


LIMIT = Gates().cpu_wait_max


def test_the_host_that_waited_longest_decides():
    gate = _cpu_wait({"client": 0.01, "server": 0.06}, LIMIT)
    assert not gate.passed
    assert gate.text == (
        "server waited for a CPU in 6.0 % of the time although its quota was not used up, limit 5 %"
    )
    assert _cpu_wait({"client": 0.01, "server": 0.05}, LIMIT).passed
    assert _cpu_wait({}, LIMIT).passed is None


def test_the_share_of_other_programs_does_not_judge_hosts_at_a_time_scale():
    assert _foreign(0.9, 0.2, LinkUse()).passed is False
    hosts = LinkUse(waited_share={"client": 0.0}, throttled_share={"client": 0.1})
    gate = _foreign(0.9, 0.2, hosts)
    assert gate.passed is None and "90 % of the machine" in gate.text
    assert _foreign(None, 0.2, hosts).passed is False, "what was not measured is still an error"
    assert _foreign(-0.5, 0.2, hosts).passed is False


def test_hosts_that_their_quota_limits_need_a_quiet_machine():
    """A proxy with a used-up quota never waited, but had 386 to 537 requests/s beside programs on every core."""
    hosts = LinkUse(waited_share={"proxy": 0.0, "a": 0.0}, throttled_share={"proxy": 0.4, "a": 0.0})
    gate = _foreign(0.9, 0.2, hosts)
    assert (
        not gate.passed
        and "while proxy was limited by its CPU quota (40 % of the time), limit 20 %" in gate.text
    )
    assert _foreign(0.1, 0.2, hosts).passed


def test_paced_hosts_need_a_quiet_machine():
    hosts = LinkUse(waited_share={"proxy": 0.0}, throttled_share={"proxy": 0.0}, paced=["proxy"])
    gate = _foreign(0.5, 0.2, hosts)
    assert (
        not gate.passed
        and gate.text == "50 % of the machine for other programs, while proxy paced itself, limit 20 %"
    )
    assert _foreign(0.1, 0.2, hosts).passed
    assert not _foreign(None, 0.2, hosts).passed and not _foreign(-0.5, 0.2, hosts).passed


def test_sums_over_threads_never_decrease(tmp_path):
    def thread(pid, tid, used, waited):
        folder = tmp_path / pid / "task" / tid
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{used} {waited} 7\n")

    times = ThreadTimes(tmp_path)
    thread("1", "1", 10**9, 2 * 10**9)
    thread("1", "2", 10**9, 0)
    assert times.read(["1", "99"]) == (pytest.approx(2), pytest.approx(2))
    thread("1", "2", 3 * 10**9, 10**9)
    assert times.read(["1"]) == (pytest.approx(4), pytest.approx(3))
    assert times.read([]) == (pytest.approx(4), pytest.approx(3)), "the process has ended"
    thread("1", "1", 10**9, 0)
    assert times.read(["1"])[0] > 4, "another process with its identifier"


def measured_share(seconds=2.0):
    """The waiting share of a host that wants a tenth of a core, on this machine as it is now."""
    groups = cgroups.CpuGroups(cgroups.find_hierarchy(), this_process())
    try:
        file = groups.create("host", 0.3)
        worker = subprocess.Popen([sys.executable, "-IS", "-c", WORKER.format(seconds=seconds + 1.0)])
        file.write_text(str(worker.pid))
        time.sleep(0.3)
        before = (*groups.used_and_waited_s()["host"], groups.throttled_s()["host"])
        start_s = time.monotonic()
        time.sleep(seconds)
        after = (*groups.used_and_waited_s()["host"], groups.throttled_s()["host"])
        took_s = time.monotonic() - start_s
        worker.wait(20)
    finally:
        groups.remove()
    used, waited, throttled = ((new - old) / took_s for old, new in zip(before, after, strict=True))
    assert used > 0.01, "the worker ran"
    return waited_share(0.3, throttled, used, waited)


def may_go_first() -> bool:
    """Whether this process may give programs a real-time priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def test_strangers_that_go_first_are_noticed():
    if "namespaces" not in KERNEL or not Machine().quotas.able or not may_go_first():
        return
    strangers = [
        subprocess.Popen(["taskset", "--cpu-list", str(core), sys.executable, "-IS", "-c", STRANGER])
        for core in os.sched_getaffinity(0)
    ]
    try:
        share = measured_share()
        assert all(stranger.poll() is None for stranger in strangers), "a stranger did not run"
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
    assert share > LIMIT
