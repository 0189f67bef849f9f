"""Runs proxies with different policies while their servers, their clients and they themselves are disturbed at random.

`waystage load` sets and gets through each proxy and verifies every value, and clients of this test know which values
docs/consistency.md allows for their own keys. Run it with

    .venv/bin/python tests/fault_run.py --seconds 3600

docs/consistency.md describes the report and the guarantees. test_fault_run.py runs a short form.
"""

import argparse
import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fault_clients import Hostile, Reader, Writer, own_keys, value
from fault_end import End, wait_for
from fault_policies import POLICIES, Policy
from fault_proxy import Proxies
from fault_report import LOAD_CLIENTS, LOAD_PATIENCE_S, Report, judge, lines
from fault_servers import Servers
from fault_stalls import Stall, StallClock, summary
from programs import WAYSTAGE, connect

# Before the first fault, and between the last one and the end.
CALM_START_S = 1.0
CALM_END_S = 4.0
PREFILL_S = 60.0
WRITERS = 2
# Between two reloads or hand-overs.
CHANGE_S = (0.5, 4.0)
HAND_OVER_S = (2.0, 20.0)
# How long a proxy may take to close connections that it no longer needs.
RELEASE_S = 20.0
# How long clients may take to end after a signal.
STOPPED_S = 5.0
# Between two lines of progress.
PROGRESS_S = 60.0
SHARED = "a warm-up pool has servers of its pool"
# The exit code of a run that has found nothing wrong, but cannot judge some replies because the machine stood still.
UNDECIDED = 3


def load_command(port: int, seconds: float, output: Path) -> list[str]:
    """A closed loop over a few keys that are written often; its think time keeps the machine from being the limit."""
    command = [
        str(WAYSTAGE),
        "load",
        "--server",
        f"127.0.0.1:{port}",
        "--clients",
        str(LOAD_CLIENTS),
        "--reply-timeout",
        f"{LOAD_PATIENCE_S:.0f}s",
        "--ratio",
        "1:4",
        "--quiet",
    ]
    command += ["--key-maximum", "1000", "--think-time", "exp:15ms", "--warm-up", "0s"]
    return [*command, "--test-time", f"{seconds}s", "--json-out-file", str(output)]


def start_load(
    proxies: Proxies, seconds: float, folder: Path, stop: threading.Event
) -> subprocess.Popen[bytes]:
    """Start the load generator, and wait until it has stored every key and reads.

    The load generator exits if one of these stores fails, for example on a busy machine. It is then started again.
    """
    proxy = proxies.all[0]
    command = load_command(proxy.port, seconds, folder / "load.json")
    deadline = time.monotonic() + PREFILL_S
    while True:
        with (folder / "load.txt").open("w") as output:
            load = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        while load.poll() is None:
            if stop.is_set() or proxy.has_read():
                return load
            time.sleep(0.05)
        if stop.is_set() or time.monotonic() > deadline:
            return load


def end_load(
    load: subprocess.Popen[bytes], patience_s: float, folder: Path, stop: threading.Event
) -> dict[str, Any]:
    """Wait for the load generator, or end it after a stop; return its summary, empty if there is none."""
    deadline = time.monotonic() + patience_s
    while load.poll() is None and not stop.is_set() and time.monotonic() < deadline:
        time.sleep(0.1)
    if stop.is_set():
        load.send_signal(signal.SIGINT)
        # It has no summary if it had not begun to measure.
        with suppress(subprocess.TimeoutExpired, OSError, ValueError):
            load.wait(timeout=STOPPED_S)
            return dict(json.loads((folder / "load.json").read_text()))
        return {}
    load.wait(timeout=1)
    return dict(json.loads((folder / "load.json").read_text()))


def store_old_values(policy: Policy, port: int) -> None:
    """Store a value of version 0 for each key of the writers on a server, which has the keys as it receives them."""
    with connect(port) as stream:
        for key in (key for number in range(WRITERS) for key in own_keys(number)):
            data = value(key, 0, 50)
            line = f"set {policy.stored_key(key)} 0 0 {len(data)}\r\n"
            stream.sendall(line.encode() + data + b"\r\n")
            assert stream.recv(100) == b"STORED\r\n"


def change_until(end: End, proxies: Proxies, source: random.Random, failures: list[str]) -> None:
    """Reload the configuration, or hand over to another process, again and again until this end."""
    number = 0
    shortest_s, longest_s = HAND_OVER_S if proxies.all[0].policy.hands_over else CHANGE_S
    # A short run needs some, too.
    longest_s = max(shortest_s, min(longest_s, end.left_s() / 3))
    try:
        while True:
            end.sleep(source.uniform(shortest_s, longest_s))
            if end.is_reached():
                return
            number += 1
            proxies.change(number)
    except (AssertionError, OSError) as error:
        failures.append(f"change {number} of the proxy failed: {error!r}")


def play(report: Report, folder: Path, seconds: float, seed: int, stop: threading.Event) -> None:
    """Run one policy and fill its report. After a stop, the report has what was seen until then."""
    policy, source = report.policy, random.Random(seed)
    servers, proxies, load, load_began = (
        Servers(policy.own_servers(), policy.proxies, policy.guarded()),
        None,
        None,
        0.0,
    )
    ports = [policy.all_ports(servers.ports(number)) for number in range(policy.proxies)]
    try:
        if policy.has_old_values:
            store_old_values(policy, ports[0]["old"][0])
        proxies = Proxies(policy, ports, folder)
        time.sleep(0.5)
        report.before = proxies.resources()
        if not policy.hands_over:
            load = start_load(proxies, seconds, folder, stop)
            load_began = time.monotonic()
        end, calm = End(seconds, stop), End(seconds - CALM_END_S, stop)
        writers = [Writer(policy, number, proxies.ports, report.clients, end) for number in range(WRITERS)]
        changes = threading.Thread(
            target=change_until,
            args=(calm, proxies, random.Random(seed + 1), report.broken),
            daemon=True,
        )
        threads: list[threading.Thread] = [*writers, changes]
        threads.append(Hostile(policy, proxies.ports[0], report.clients, end))
        # A fill from the warm-up pool can overtake a deletion of another client: see docs/consistency.md.
        if not policy.has_old_values:
            threads.append(Reader(policy, writers, proxies.ports, report.clients, end))
        end.sleep(CALM_START_S)
        for thread in threads:
            thread.start()
        servers.disturb(calm, source, report.events)
        have_ended = wait_for(threads, seconds + 120, stop, STOPPED_S)
        if not (have_ended or stop.is_set()):
            report.broken.append("a client of the test did not end")
        if load:
            report.load = end_load(load, seconds + 60, folder, stop)
            report.load_time = (load_began, time.monotonic())
        if not have_ended:
            # From now on, a client that has not ended reports only that its proxy ends.
            report.clients = copy.deepcopy(report.clients)
        report.is_stopped = stop.is_set()
        end_proxies(report, proxies)
    finally:
        if load:
            load.kill()
            load.wait()
        if proxies:
            proxies.kill()
        servers.end()
    report.has_played = True


def end_proxies(report: Report, proxies: Proxies) -> None:
    """Add what the proxies have done to the report, and stop them. After a stop, the caller kills them."""
    if not report.is_stopped:
        report.after = proxies.resources_after(report.before, RELEASE_S)
    report.proxy = proxies.count_up()
    if report.is_stopped:
        proxies.note_peak()
    else:
        report.broken += proxies.end()
    report.peak_mib = proxies.peak_mib()
    if any(pool.servers_of for pool in report.policy.pools):
        report.events[SHARED] = 1
    for name, count in (*proxies.events().items(), *report.clients.events.items()):
        report.events[name] = report.events.get(name, 0) + count


def run(
    seconds: float,
    seed: int,
    folder: Path,
    reports: Sequence[Report],
    stop: threading.Event | None = None,
) -> list[Stall]:
    """Run the policies of these reports at the same time, each in its own folder, and fill the reports.

    They end early when `stop` is set. Returns the stalls of the machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clock = StallClock(folder)
    start, stop = time.monotonic(), stop or threading.Event()

    def guarded(report: Report, number: int) -> None:
        own = folder / report.policy.name
        own.mkdir(parents=True, exist_ok=True)
        try:
            play(report, own, seconds, seed * len(POLICIES) + number, stop)
        # The other policies continue after any error, and are reported.
        except Exception as error:
            report.broken.append(
                f"the run of this policy failed after {time.monotonic() - start:.0f} s: {error!r}"
            )

    threads = [
        threading.Thread(target=guarded, args=(report, number)) for number, report in enumerate(reports)
    ]
    for thread in threads:
        thread.start()
    try:
        while running := sum(thread.is_alive() for thread in threads):
            # A process that waits for a processor for half a minute looks as if it hung. The load average shows it.
            passed_s, waiting = time.monotonic() - start, os.getloadavg()[0]
            state = f"{passed_s:.0f} of {seconds:.0f} s, {running} policies, load average {waiting:.0f}"
            print(state, *complaints(reports), sep="\n  ", file=sys.stderr, flush=True)
            for thread in threads:
                thread.join(timeout=PROGRESS_S / len(threads))
    finally:
        # The threads end their servers and proxies, also if this one is interrupted.
        stop.set()
        stalls = clock.end()
    for report in reports:
        if report.has_played:
            judge(report, stalls, start)
    return stalls


def complaints(reports: Sequence[Report]) -> list[str]:
    """Return what has been found so far."""
    return [f"{report.policy.name}: {text}" for report in reports for text in report.broken]


def ejections(reports: Sequence[Report]) -> int:
    """Count the ejections of servers; a short run of one policy may draw no fault that is long enough for one."""
    return sum(report.proxy.get("ejections", 0) for report in reports)


def main() -> None:
    """Run with the arguments of the command line; exit with 1 if a guarantee was violated, 3 if it is undecided."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long, at least 10 [default: 600]")
    parser.add_argument("--seed", type=int, default=1, help="which faults, and when [default: 1]")
    parser.add_argument("--policy", help="only this one [default: all]")
    parser.add_argument("--folder", type=Path, help="where files are kept [default: nowhere]")
    arguments = parser.parse_args()
    if arguments.seconds < 10:
        parser.error("--seconds: give at least 10; servers need time to come and go")
    if not WAYSTAGE.exists():
        parser.error(f"{WAYSTAGE} is not there: `make build` makes it")
    policies = tuple(policy for policy in POLICIES if arguments.policy in (None, policy.name))
    if not policies:
        parser.error(
            f"--policy {arguments.policy}: give one of {', '.join(policy.name for policy in POLICIES)}"
        )
    stop, signals = threading.Event(), list[int]()

    def stop_on(number: int, _: object) -> None:
        signals.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_on)
    start, reports = time.monotonic(), [Report(policy) for policy in policies]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        stalls = run(arguments.seconds, arguments.seed, folder, reports, stop)
    for report in reports:
        print("\n".join(lines(report)))
    print(summary(stalls, start))
    if any(report.broken for report in reports):
        sys.exit(1)
    if any(report.undecided for report in reports):
        sys.exit(UNDECIDED)
    if signals:
        print(f"stopped by {signal.Signals(signals[0]).name} after {time.monotonic() - start:.0f} s")
        sys.exit(128 + signals[0])
    if not ejections(reports):
        sys.exit("no proxy ejected a server; give more seconds")


if __name__ == "__main__":
    main()
