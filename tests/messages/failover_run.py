"""Disturbs message services over two PostgreSQL servers, while a load generator receives with leases.

Three services use a primary and a synchronous standby. One event follows the other: services are killed and frozen;
PostgreSQL is killed and frozen; open connections to it fall silent; other programs lock tables and rows; and the
primary is isolated and killed, the standby promoted, and the old primary rebuilt as the new standby. Run it with

    .venv/bin/python tests/messages/failover_run.py --seconds 3600

The exit code is 0 if no message was lost, doubled, damaged or held too long, and the services needed no more memory and
descriptors than stated here. docs/load-messages.md explains the numbers; test_kill_run.py runs a short form.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import kill_run
import locks
from kill_run import (
    WAYSTAGE,
    Postgres,
    Report,
    Service,
    exit_with,
    free_ports,
    keep,
)
from relay import Relay

SERVICES = 3
# Resident memory of a service: the limit of its bodies and replies (`memory`, 256 MiB), and an allowance for code,
# connections and buffers.
MEMORY_MIB_MAX = 256 + 100
DESCRIPTORS_MAX = 200
EVENTS = (
    "service killed",
    "service killed",
    "service frozen",
    "postgres killed",
    "postgres frozen",
    "silence",
    *locks.EVENTS,
)
FREEZE_S = (0.5, 6.0)
AWAY_S = (0.0, 2.0)
# How long services see a silent primary before the standby is promoted.
ISOLATED_S = (0.0, 3.0)
# How long a message may stay invisible after its lease: the promised time, and the longest lock. The probe of the locks
# checks that redelivery works again in the promised time after each lock.
# A standby that does not stream for this long has failed, because services and events wait for it.
STANDBY_PATIENCE_S = 60.0
REDELIVERY_S = locks.NORMAL_WITHIN_S + locks.HELD_S[1]
LOAD = (
    "--operations send:5,send-to:1,receive:9 --lease 3s --after-receive acknowledge:85,extend:5,nack:5,abandon:5"
    " --queues 4 --clients 12 --think-time 20ms --reply-timeout 10s --drain-time 180s --warm-up 0s --failed-max 1"
    f" --redelivery-time {REDELIVERY_S:.0f}s"
)
LINE = (
    "leased",
    "redelivered",
    "held_longest_ms",
    "receives_in_doubt",
    "acknowledged_in_doubt",
    "sends_in_doubt",
    "sends_in_doubt_arrived",
)


class Node(Postgres):
    """One of two PostgreSQL servers, with a relay between it and the services."""

    settings = (
        *Postgres.settings,
        "wal_receiver_timeout=3s",
        "wal_retrieve_retry_interval=100ms",
        # Longer than a busy machine may delay a base backup or the standby.
        "wal_sender_timeout=30s",
        "wal_keep_size=256MB",
        # After a silence, the server has the processes of the silent connections and of the new ones: twice
        # the nine of each service.
        "max_connections=100",
    )

    def __init__(self, folder: Path, primary: "Node | None" = None) -> None:
        self.primary = primary
        super().__init__(folder)
        self.relay = Relay(folder / ".s.PGSQL.5432")

    def program(self, name: str) -> Path:
        """Return the path of a program that lies beside the server, which may be reached through a link."""
        return (self.programs / "postgres").resolve().parent / name

    def create(self) -> None:
        """Create its data, as a copy of the primary if there is one."""
        if self.primary is None:
            return super().create()
        source = f"{self.primary.url} application_name=standby"
        copy = [
            self.program("pg_basebackup"),
            "--checkpoint=fast",
            "--wal-method=stream",
            "--write-recovery-conf",
        ]
        command: list[str | Path] = [*copy, "-d", source, "-D", self.folder / "data"]
        try:
            subprocess.run(
                command, check=True, cwd=self.folder, stdout=self.log, stderr=self.log, **self.user
            )
        except subprocess.CalledProcessError as error:
            raise self.died("cannot be copied from the primary") from error
        return None

    @property
    def psql(self) -> list[str | Path]:
        """The command that runs statements from its input."""
        return [self.program("psql"), "-XAtq", "-d", self.url]

    def run(self, statement: str) -> str:
        """Run a statement, and return what it prints."""
        command = [*self.psql, "-c", statement]
        try:
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        except subprocess.CalledProcessError as error:
            raise self.died(f"refuses {statement!r} ({error.stderr.strip().splitlines()[:1]})") from error
        except subprocess.TimeoutExpired as error:
            raise self.died(f"does not answer {statement!r}") from error
        return done.stdout.strip()

    def all_processes(self) -> list[int]:
        """Return its main process and all others."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def freeze(self, seconds: float) -> None:
        """Stop all its processes for a while."""
        stopped = self.all_processes()
        send(stopped, signal.SIGSTOP)
        time.sleep(seconds)
        send(stopped, signal.SIGCONT)

    def require_standby(self, standby: "Node") -> None:
        """Make commits wait for the standby, as soon as it streams."""
        self.await_standby(standby, "state = 'streaming'")
        self.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.run("SELECT pg_reload_conf()")
        self.await_standby(standby, "sync_state = 'sync'")

    def await_standby(self, standby: "Node", state: str) -> None:
        """Wait until the standby is in this state."""
        until = time.monotonic() + STANDBY_PATIENCE_S
        while self.run(f"SELECT count(*) FROM pg_stat_replication WHERE {state}") != "1":
            self.require_running()
            standby.require_running()
            if time.monotonic() > until:
                raise standby.died("does not stream from the primary")
            time.sleep(0.1)

    def crash(self) -> None:
        """Kill it, and keep it down."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Stop it and its relay."""
        self.relay.close()
        super().end()

    def rebuild(self, primary: "Node") -> None:
        """Become the standby of this primary."""
        shutil.rmtree(self.folder / "data")
        self.primary = primary
        self.create()
        self.process = self.start()
        self.relay.restore()


def send(processes: list[int], number: signal.Signals) -> None:
    """Send a signal to those that still exist."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


class Disturber:
    """Disturbs services and servers at random, one event after the other."""

    def __init__(self, nodes: list[Node], services: list[Service], report: Report) -> None:
        self.nodes, self.services, self.report = nodes, services, report
        self.chance = random.Random(report.seed)
        self.began = time.monotonic()
        self.number = 0

    def require_running(self) -> None:
        """Fail if a server has died."""
        for node in self.nodes:
            node.require_running()

    def require_databases(self) -> None:
        """Fail if a server has died, or if the standby does not stream: then no send could succeed."""
        primary, standby = self.nodes
        primary.await_standby(standby, "sync_state = 'sync'")

    def round(self) -> list[str]:
        """Return each event once or twice, and a failover, in random order."""
        return self.chance.sample([*EVENTS, "failover"], len(EVENTS) + 1)

    def disturb(self, event: str) -> None:
        """Let an event happen."""
        began, what = time.monotonic(), event
        self.number += 1
        primary, standby = self.nodes
        service, chance = self.chance.choice(self.services), self.chance
        if event == "service killed":
            service.kill(chance.uniform(*AWAY_S))
        elif event == "service frozen":
            service.process.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(*FREEZE_S))
            service.process.send_signal(signal.SIGCONT)
        elif event == "postgres killed":
            primary.kill()
        elif event == "postgres frozen":
            primary.freeze(chance.uniform(*FREEZE_S))
        elif event == "silence":
            primary.relay.silence_open_connections()
        elif event in locks.EVENTS:
            detail, broken = locks.disturb(primary.psql, self.services, event, self.number, chance)
            what = f"{event}: {detail}"
            self.report.broken += broken
        else:
            primary.require_standby(standby)
            primary.relay.isolate()
            time.sleep(chance.uniform(*ISOLATED_S))
            primary.crash()
            standby.run("SELECT pg_promote(true, 60)")
            self.nodes.reverse()
            primary.rebuild(standby)
            standby.require_standby(primary)
        self.report.kills[event] = self.report.kills.get(event, 0) + 1
        print(f"{began - self.began:8.1f} s {what}, {time.monotonic() - began:.1f} s", flush=True)


class Sampler(threading.Thread):
    """Reads the resident memory and the descriptors of the services every second."""

    def __init__(self, services: list[Service]) -> None:
        super().__init__(daemon=True)
        self.services, self.is_over = services, threading.Event()
        self.memory_mib, self.descriptors = 0.0, 0

    def run(self) -> None:
        """Sample until it is over. A service that is being killed is skipped."""
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.is_over.wait(1.0):
            for service in self.services:
                folder = Path(f"/proc/{service.process.pid}")
                try:
                    pages = int((folder / "statm").read_text().split()[1])
                    self.descriptors = max(self.descriptors, len(list((folder / "fd").iterdir())))
                except (OSError, IndexError):
                    continue
                self.memory_mib = max(self.memory_mib, pages * page / 2**20)

    def judge(self, report: Report) -> str:
        """Record what exceeds the limits, and return the largest values."""
        self.is_over.set()
        if self.memory_mib > MEMORY_MIB_MAX:
            report.broken.append(
                f"a service used {self.memory_mib:.0f} MiB; at most {MEMORY_MIB_MAX} are expected"
            )
        if self.descriptors > DESCRIPTORS_MAX:
            report.broken.append(
                f"a service had {self.descriptors} descriptors; at most {DESCRIPTORS_MAX} are expected"
            )
        return f"services: at most {self.memory_mib:.0f} MiB and {self.descriptors} descriptors"


def disturb_for_a_while(disturber: Disturber, seconds: float, pause_s: float, load: Any) -> None:
    """Disturb until little time is left, with pauses of half to three halves of `pause_s`."""
    until = time.monotonic() + seconds - 2.0
    while True:
        for event in disturber.round():
            time.sleep(disturber.chance.uniform(0.5, 1.5) * pause_s)
            if time.monotonic() >= until or load.poll() is not None:
                return
            disturber.require_running()
            disturber.disturb(event)
            disturber.require_databases()


def run(seconds: float, folder: Path, seed: int = 1, pause_s: float = 10.0) -> tuple[Report, str]:
    """Load and disturb for this many seconds; the logs are in `folder`. Returns the report and the use of memory."""
    report = Report(seed, kills={})
    nodes, services = [Node(folder / "one")], []
    try:
        nodes.append(Node(folder / "two", nodes[0]))
        nodes[0].require_standby(nodes[1])
        ports = ",".join(str(node.relay.port) for node in nodes)
        database = f"host=127.0.0.1,127.0.0.1 port={ports} user=waystage dbname=postgres"
        for number, port in enumerate(free_ports(SERVICES)):
            services.append(Service(database, port, folder / f"service-{number}.log"))
        sampler = Sampler(services)
        sampler.start()
        out = folder / "summary.json"
        targets = [
            word for service in services for word in ("--messages", f"http://127.0.0.1:{service.port}")
        ]
        times = [
            "--test-time",
            f"{seconds:.0f}s",
            "--seed",
            str(seed),
            "--quiet",
            "--json-out-file",
            str(out),
        ]
        program = os.environ.get("WAYSTAGE_LOAD_BIN", str(WAYSTAGE))
        with (folder / "load.log").open("wb") as log:
            load = subprocess.Popen(
                [program, "load", *targets, *LOAD.split(), *times], stdout=log, stderr=log
            )
        try:
            disturber = Disturber(nodes, services, report)
            disturb_for_a_while(disturber, seconds, pause_s, load)
            until = time.monotonic() + seconds + 300
            while load.poll() is None and time.monotonic() < until:
                disturber.require_running()
                time.sleep(0.2)
            # Without a database, the load ends early.
            disturber.require_running()
        finally:
            if load.poll() is None:
                load.kill()
                load.wait()
        kill_run.read_summary(report, out, folder / "load.log")
    finally:
        for service in services:
            service.end()
        for node in nodes:
            node.end()
    report.judge()
    return report, sampler.judge(report)


def lines(report: Report, memory: str) -> list[str]:
    """Return the result as text."""
    events = ", ".join(f"{name} {count}" for name, count in sorted(report.kills.items()))
    counts = ", ".join(f"{name} {report.messages.get(name)}" for name in (*kill_run.NEVER, *LINE))
    return [f"events: {events}", counts, memory, *report.lines()]


def main() -> int:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=10.0, help="mean pause between two events in seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--keep", type=Path, help="where the logs and the summary go")
    arguments = parser.parse_args()
    # A short path, because the path of PostgreSQL's socket has a limit.
    with tempfile.TemporaryDirectory(prefix="waystage-fail-", dir="/tmp") as name:
        folder = Path(name)
        try:
            report, memory = run(arguments.seconds, folder, arguments.seed, arguments.pause)
            print("\n".join(lines(report, memory)))
        finally:
            keep(folder, arguments.keep)
    return 1 if report.broken else 0


if __name__ == "__main__":
    exit_with(main)
