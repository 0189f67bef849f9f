"""Runs proxies with different policies, each with three servers that are killed and frozen at random.

A load generator sets and gets through each proxy and verifies every value. Run it with

    .venv/bin/python tests/fault_run.py --seconds 600

docs/consistency.md describes the report and the guarantees. test_fault_run.py runs a short form.
"""

import argparse
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from programs import MEMCACHED, WAYSTAGE, connect, free_ports, missing

SERVERS = 3
# Before the first fault, and between the last one and the end.
CALM_START_S = 1.0
CALM_END_S = 4.0
# How long a fault lasts, and how long the servers then run without a fault.
AWAY_S = (0.05, 3.0)
PAUSE_S = (0.5, 4.0)
TIMEOUTS = 'timeouts = { connect = "300ms", read = "300ms", write = "300ms" }'
# Values that no policy may return. An older value is allowed where not all replicas must accept a write.
NEVER = ("wrong", "torn", "unexpected_reply")


@dataclass(frozen=True)
class Policy:
    """One proxy: how its only pool is used, and whether docs/consistency.md allows it to return an older value."""

    name: str
    pool: str
    may_be_stale: bool


POLICIES = (
    Policy(
        "majority-primary",
        'replicas = 3\nwrites = "majority"\nreads = "primary"\nfailover = "on-error"',
        may_be_stale=True,
    ),
    Policy(
        "all-any", 'replicas = 3\nwrites = "all"\nreads = "any"\nfailover = "on-error"', may_be_stale=False
    ),
    Policy(
        "all-least",
        'replicas = 2\nwrites = "all"\nreads = "least-outstanding"\nfailover = "on-miss"',
        may_be_stale=False,
    ),
    Policy(
        "first-hedged",
        'replicas = 2\nwrites = "first"\nreads = "any"\nfailover = "on-error"\n'
        'hedge = { delay = "20ms", budget = 0.1 }',
        may_be_stale=True,
    ),
)


@dataclass
class Report:
    """The result of one policy."""

    policy: Policy
    faults: dict[str, int] = field(default_factory=lambda: {"killed": 0, "frozen": 0})
    load: dict = field(default_factory=dict)
    proxy: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


class Servers:
    """Three server processes: memcached if it is installed, otherwise the embedded cache."""

    def __init__(self):
        self.ports = free_ports(SERVERS)
        self.processes = [self.spawn(port) for port in self.ports]

    @staticmethod
    def spawn(port: int) -> subprocess.Popen:
        """Start a server, and wait until it listens."""
        embedded = [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{port}"]
        command = embedded if missing("memcached") else [*MEMCACHED, str(port), "-m", "64"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        connect(port).close()
        return process

    def restart(self, place: int, away_s: float) -> None:
        """Kill a server, and start it again, empty, after this time."""
        self.processes[place].kill()
        self.processes[place].wait()
        time.sleep(away_s)
        self.processes[place] = self.spawn(self.ports[place])

    def freeze(self, place: int, away_s: float) -> None:
        """Stop a server with SIGSTOP for this time; it then continues with its values and queued requests."""
        self.processes[place].send_signal(signal.SIGSTOP)
        time.sleep(away_s)
        self.processes[place].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill all servers."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def disturb(servers: Servers, until: float, source: random.Random, faults: dict[str, int]) -> None:
    """Kill and freeze servers, one at a time, until this moment of time.monotonic()."""
    while time.monotonic() < until:
        longest_s = max(AWAY_S[0], min(AWAY_S[1], until - time.monotonic()))
        place, away_s = source.randrange(SERVERS), source.uniform(AWAY_S[0], longest_s)
        if source.random() < 0.5:
            faults["killed"] += 1
            servers.restart(place, away_s)
        else:
            faults["frozen"] += 1
            servers.freeze(place, away_s)
        time.sleep(max(0.0, min(source.uniform(*PAUSE_S), until - time.monotonic())))


def counters(address: str) -> dict[str, int]:
    """Return the proxy's counters, from its `stats`."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as stream:
        stream.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            got = stream.recv(65536)
            assert got, "the proxy closed the connection before the end of its statistics"
            text += got
    lines = (line.split() for line in text.decode().splitlines() if line.startswith("STAT waystage_"))
    return {name.removeprefix("waystage_"): int(value) for _, name, value in lines if value.isdigit()}


def load_command(address: str, seconds: float, summary: Path) -> list[str]:
    """A closed loop over a few keys that are written often; its think time keeps the machine from being the limit."""
    command = [str(WAYSTAGE), "load", "--server", address, "--clients", "24", "--ratio", "1:4", "--quiet"]
    command += ["--key-maximum", "2000", "--think-time", "exp:5ms", "--warm-up", "0s"]
    return [*command, "--test-time", f"{seconds}s", "--json-out-file", str(summary)]


def play(report: Report, folder: Path, seconds: float, seed: int) -> None:
    """Run one policy and return its report."""
    servers = Servers()
    processes = []
    try:
        config = folder / "proxy.toml"
        addresses = json.dumps([f"127.0.0.1:{port}" for port in servers.ports])
        pool = f"[[pools]]\nservers = {addresses}\n{report.policy.pool}\n{TIMEOUTS}\n"
        config.write_text(f'listen = "127.0.0.1:0"\nloops = 2\n{pool}')
        proxy = subprocess.Popen(
            [str(WAYSTAGE), "proxy", "--config", str(config)], stdout=subprocess.PIPE, text=True
        )
        processes.append(proxy)
        address = re.search(r"ready on (\S+)", proxy.stdout.readline()).group(1)
        summary = folder / "load.json"
        with (folder / "load.txt").open("w") as output:
            load = subprocess.Popen(
                load_command(address, seconds, summary), stdout=output, stderr=subprocess.STDOUT
            )
        processes.append(load)
        end = time.monotonic() + seconds
        time.sleep(CALM_START_S)
        disturb(servers, end - CALM_END_S, random.Random(seed), report.faults)
        load.wait(timeout=seconds + 60)
        report.proxy = counters(address)
        proxy.send_signal(signal.SIGTERM)
        if proxy.wait(timeout=20) != 0:
            report.broken.append("the proxy lost a job")
        report.load = json.loads(summary.read_text())
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        servers.end()
    judge(report)


def judge(report: Report) -> None:
    """Record every violation of the policy's guarantees."""
    totals, verification = report.load["totals"], report.load["verification"]
    for name in (*NEVER, *(() if report.policy.may_be_stale else ("stale",))):
        if verification[name]:
            report.broken.append(f"{verification[name]} {name}")
    if totals["requests_sent"] != totals["requests_answered"]:
        report.broken.append(f"{totals['requests_sent']} sent, {totals['requests_answered']} answered")
    unknown = [line for line in report.load["errors"] if not line.startswith("SERVER_ERROR backend ")]
    if unknown:
        report.broken.append(f"an error of another kind: {unknown[0]}")
    if not sum(report.faults.values()) or not report.proxy.get("ejections"):
        report.broken.append("nothing happened: give more seconds")


def lines(report: Report) -> list[str]:
    """Return the report as lines of text."""
    totals, verification = report.load["totals"], report.load["verification"]
    stale = f"{verification['stale']} stale{' (allowed)' if report.policy.may_be_stale else ''}"
    shown = ("failovers", "hedges", "degraded_writes", "withheld_reads", "ejections", "invalidations_sent")
    counts = ", ".join(
        f"{report.proxy[name]} {name.replace('_', ' ')}" for name in shown if report.proxy.get(name)
    )
    return [
        f"{report.policy.name}: {report.faults['killed']} killed, {report.faults['frozen']} frozen; "
        f"{totals['requests_answered']} of {totals['requests_sent']} requests answered, "
        f"{sum(report.load['errors'].values())} of them by an error",
        f"  {verification['checked']} values checked: {verification['wrong']} wrong, {verification['torn']} torn, "
        f"{stale}, {verification['unexpected_reply']} unexpected replies",
        f"  proxy: {counts}",
        f"  {'BROKEN: ' + '; '.join(report.broken) if report.broken else 'as promised'}",
    ]


def run(seconds: float, seed: int, folder: Path) -> list[Report]:
    """Run all policies at the same time, each in its own folder."""
    reports = [Report(policy) for policy in POLICIES]
    failures = []

    def guarded(report: Report, number: int) -> None:
        own = folder / report.policy.name
        own.mkdir(parents=True, exist_ok=True)
        try:
            play(report, own, seconds, seed * len(POLICIES) + number)
        # The other policies continue after any error; it is reported at the end.
        except Exception as error:
            failures.append(f"{report.policy.name}: {error!r}")

    threads = [
        threading.Thread(target=guarded, args=(report, number)) for number, report in enumerate(reports)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return reports


def main() -> None:
    """Run with the arguments of the command line; exit with 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long, at least 10 [default: 600]")
    parser.add_argument("--seed", type=int, default=1, help="which faults, and when [default: 1]")
    parser.add_argument("--folder", type=Path, help="where files are kept [default: nowhere]")
    arguments = parser.parse_args()
    if arguments.seconds < 10:
        parser.error("--seconds: give at least 10; servers need time to come and go")
    if not WAYSTAGE.exists():
        parser.error(f"{WAYSTAGE} is not there: `make build` makes it")
    with tempfile.TemporaryDirectory() as temporary:
        reports = run(arguments.seconds, arguments.seed, arguments.folder or Path(temporary))
    for report in reports:
        print("\n".join(lines(report)))
    sys.exit(any(report.broken for report in reports))


if __name__ == "__main__":
    main()
