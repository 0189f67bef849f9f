"""The message service and its peers at the same durability: run by `make bench-messages`; no limit is enforced.

One PostgreSQL, started for the run with fsync and synchronous_commit on, serves all that use one. In every round each
system sends for a while and then empties its queue, with one client and with many; rounds go through the systems in
turn and back again (ABBA). Bodies have 200 bytes, and a request carries one message.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from waylab.analysis.statistics.pairs import log_ratios, paired_ratio

ROOT = Path(__file__).parents[2]
WAYSTAGE = ROOT / "target/release/waystage"
PEERS = ROOT / "target/peers/release/peers"
BUILD_PEERS = (
    "cargo build --release --locked --manifest-path tests/speed/peers/Cargo.toml --target-dir target/peers"
)
CONNECTIONS = 40
CLIENTS = (1, 16, 64, 256)
OPERATIONS = ("send", "pop")
READY_WITHIN_S = 30.0
# A queue that is not empty by then has a fault.
EMPTY_WITHIN_S = 120.0
WARM_UP_S = 0.3
SERVICES = {
    "fused": "messages --dispatch fused",
    "pool": f"messages --dispatch pool --connections {CONNECTIONS}",
}


@dataclass(frozen=True)
class System:
    """A message system: its protocol, its address, and the processes whose CPU time counts."""

    name: str
    talk: str
    address: str
    service: psutil.Process
    # Its log is PostgreSQL's.
    postgres: psutil.Process | None


@dataclass(frozen=True)
class Trial:
    """One operation of one system with a number of clients; CPU seconds, bytes and commits are for all messages."""

    messages: int
    elapsed_s: float
    p50_ms: float
    p99_ms: float
    driver_s: float
    service_s: float
    postgres_s: float
    log_bytes: float | None
    commits: float

    @property
    def rate_per_s(self) -> float:
        """Messages per second."""
        return self.messages / self.elapsed_s


@dataclass(frozen=True)
class Counters:
    """The resources used so far."""

    service_s: float
    postgres_s: float
    log_bytes: float | None
    commits: float


Key = tuple[str, str, int]


def main() -> None:
    """Print every figure."""
    arguments = read_arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ws-")))
        # PostgreSQL's own user must get through.
        folder.chmod(0o755)
        systems = stack.enter_context(started(arguments, folder))
        trials: dict[Key, list[Trial]] = {}
        counters = next(system for system in systems if system.talk == "plain").address
        for system in systems:
            both(system, counters, 1, WARM_UP_S)
        for number in range(arguments.rounds):
            for clients in arguments.clients:
                for system in systems if number % 2 == 0 else systems[::-1]:
                    note(f"round {number + 1} of {arguments.rounds}: {system.name}, {clients} clients")
                    for operation, trial in both(system, counters, clients, arguments.seconds).items():
                        trials.setdefault((system.name, operation, clients), []).append(trial)
        note("")
        print(
            f"{arguments.rounds} rounds of {arguments.seconds} s of sends, then pops until the queue is empty; "
            f"200 bytes; {os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}"
        )
        names = [system.name for system in systems]
        for operation in OPERATIONS:
            table(trials, names, operation, arguments.clients)
        compare(trials, names, arguments.clients)


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=lambda text: tuple(map(int, text.split(","))), default=CLIENTS)
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="NAME=[PROGRAM] ARGUMENTS",
        help="a further form of the service, say 'four=messages --lanes 4' or 'old=/tmp/waystage messages'",
    )
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave a system out")
    return parser.parse_args()


@contextmanager
def started(arguments: argparse.Namespace, folder: Path) -> Iterator[list[System]]:
    """Start every system that is here; name those that are not."""
    services = dict(SERVICES) | dict(text.split("=", 1) for text in arguments.service)
    systems = []
    with ExitStack() as stack:
        data = folder / ".waystage/postgres"
        database = f"host='{data}' user=waystage dbname=postgres"
        for number, (name, text) in enumerate(services.items()):
            words = shlex.split(text)
            program = [] if Path(words[0]).is_absolute() else [str(WAYSTAGE)]
            # The first brings PostgreSQL with it. It runs even if it is left out.
            where = ["--embedded"] if number == 0 else ["--database", database]
            command = [*program, *words, *where, "--listen", "127.0.0.1:0"]
            process, line = stack.enter_context(server(command, folder, " ready on "))
            address = line.split()[4]
            postgres = psutil.Process(int((data / "data/postmaster.pid").read_text().split()[0]))
            request = urllib.request.Request(f"http://{address}/v1/queues/q", method="PUT")
            urllib.request.urlopen(request, timeout=READY_WITHIN_S).close()
            systems.append(System(name, "service", address, process, postgres))
        has_pgmq = build_peers()
        process, address = stack.enter_context(
            server([str(PEERS), "serve", database, str(CONNECTIONS)], folder)
        )
        peers = ("pgmq", "plain") if has_pgmq else ("plain",)
        systems += [System(talk, talk, address, process, postgres) for talk in peers]
        beanstalkd = shutil.which("beanstalkd")
        if beanstalkd:
            systems.append(stack.enter_context(started_beanstalkd(beanstalkd, folder)))
        else:
            print("beanstalkd is not installed here (apt-get install beanstalkd): it is not in the tables")
        print(f"all systems are started; left out: {', '.join(arguments.without) or 'none'}")
        yield [system for system in systems if system.name not in arguments.without]


def build_peers() -> bool:
    """Build the peers that are programs of ours; whether pgmq is among them."""
    words = shlex.split(BUILD_PEERS)
    if subprocess.run(words, cwd=ROOT, check=False).returncode == 0:
        return True
    print("pgmq is not in the tables: its crate could not be built here; see above")
    if subprocess.run([*words, "--no-default-features"], cwd=ROOT, check=False).returncode:
        sys.exit("bench-messages: the clients could not be built; see above")
    return False


@contextmanager
def server(command: list[str], folder: Path, says: str = "") -> Iterator[tuple[psutil.Process, str]]:
    """Run a server in this folder; yield its process and its first line that says this."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            line = next((line.strip() for line in process.stdout if says in line), "")
            if not line:
                sys.exit(f"bench-messages: {command[0]} did not start")
            yield psutil.Process(process.pid), line
        finally:
            process.terminate()


@contextmanager
def started_beanstalkd(program: str, folder: Path) -> Iterator[System]:
    """Run beanstalkd with a log that is written to disk before every answer, as far as it does that."""
    log = folder / "beanstalkd"
    log.mkdir()
    port = free_port()
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-b", str(log), "-f0"]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(0.5)
            if process.poll() is not None:
                sys.exit("bench-messages: beanstalkd did not start")
            yield System("beanstalkd", "beanstalkd", f"127.0.0.1:{port}", psutil.Process(process.pid), None)
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port that is free at this moment."""
    import socket  # noqa: PLC0415

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def both(system: System, counters: str, clients: int, seconds: float) -> dict[str, Trial]:
    """Send for so many seconds, then pop until there is nothing left."""
    found = {}
    for operation, limit_s in (("send", seconds), ("pop", EMPTY_WITHIN_S)):
        before = read_counters(system, counters)
        command = [
            str(PEERS),
            "drive",
            system.address,
            f"{system.talk}:{operation}",
            str(clients),
            str(limit_s),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"bench-messages: {system.name}, {operation}: {done.stderr.strip()}")
        after = read_counters(system, counters)
        said: dict[str, Any] = json.loads(done.stdout)
        log = (
            None
            if after.log_bytes is None or before.log_bytes is None
            else after.log_bytes - before.log_bytes
        )
        found[operation] = Trial(
            messages=said["messages"],
            elapsed_s=said["elapsed_s"],
            p50_ms=said["p50_ms"],
            p99_ms=said["p99_ms"],
            driver_s=said["driver_cpu_s"],
            service_s=after.service_s - before.service_s,
            postgres_s=after.postgres_s - before.postgres_s,
            log_bytes=log,
            commits=after.commits - before.commits,
        )
    sent, popped = found["send"].messages, found["pop"].messages
    if sent != popped:
        sys.exit(f"bench-messages: {system.name}, {clients} clients: {sent} messages sent, {popped} popped")
    return found


def read_counters(system: System, counters: str) -> Counters:
    """Read what a system has used so far."""
    service_s = cpu_s(system.service)
    if system.postgres is None:
        return Counters(service_s, 0.0, None, beanstalkd_records(system.address))
    with urllib.request.urlopen(f"http://{counters}/counters", timeout=READY_WITHIN_S) as reply:
        said = json.load(reply)
    postgres_s = cpu_s(system.postgres) + sum(map(cpu_s, system.postgres.children()))
    return Counters(service_s, postgres_s, said["log_bytes"], said["commits"])


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process, and of its children that have exited."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def beanstalkd_records(address: str) -> float:
    """Records that beanstalkd has written to its log; it writes each to disk by itself."""
    import socket  # noqa: PLC0415

    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=READY_WITHIN_S) as client:
        client.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"\r\n\r\n") and not text.endswith(b"\n\r\n"):
            text += client.recv(4096)
    return float(text.split(b"binlog-records-written:")[1].split()[0])


def table(
    trials: dict[Key, list[Trial]], names: list[str], operation: str, all_clients: tuple[int, ...]
) -> None:
    """Print the medians of all rounds."""
    print(f"\n{operation}: medians; CPU seconds, bytes of the log and commits are for the messages")
    print(
        "  clients system       messages/s   p50 ms   p99 ms  service s/1000  PostgreSQL s/1000  log bytes  "
        "commits  driver's share"
    )
    for clients in all_clients:
        for name in names:
            of = trials[name, operation, clients]
            log = [trial.log_bytes / trial.messages for trial in of if trial.log_bytes is not None]
            print(
                f"  {clients:7} {name:12} {median(trial.rate_per_s for trial in of):10.0f} "
                f"{median(trial.p50_ms for trial in of):8.2f} {median(trial.p99_ms for trial in of):8.2f} "
                f"{median(1000 * trial.service_s / trial.messages for trial in of):15.4f} "
                f"{median(1000 * trial.postgres_s / trial.messages for trial in of):18.4f} "
                f"{median(log) if log else float('nan'):10.0f} "
                f"{median(trial.commits / trial.messages for trial in of):8.3f} "
                f"{median(trial.driver_s / trial.elapsed_s for trial in of):15.2f}"
            )


def compare(trials: dict[Key, list[Trial]], names: list[str], all_clients: tuple[int, ...]) -> None:
    """Print what `fused` is to each other, round by round in pairs, with 95 % intervals."""
    print("\nratios of messages per second, and 95 % intervals over the rounds")
    for operation in OPERATIONS:
        for clients in all_clients:
            for name in names:
                if name != "fused" and "fused" in names:
                    label = f"{operation}, {clients} clients, fused to {name}"
                    ratio(
                        label,
                        rates(trials, name, operation, clients),
                        rates(trials, "fused", operation, clients),
                    )
        for name in names:
            if {16, 256} <= set(all_clients):
                label = f"{operation}, {name}, 256 clients to 16"
                ratio(label, rates(trials, name, operation, 16), rates(trials, name, operation, 256))
    if {"fused", "plain"} <= set(names) and 1 in all_clients:
        floor, ours = ([trial.p50_ms for trial in trials[name, "send", 1]] for name in ("plain", "fused"))
        ratio("send, a lone client's median, fused to plain", floor, ours)


def rates(trials: dict[Key, list[Trial]], name: str, operation: str, clients: int) -> list[float]:
    """Messages per second, round by round."""
    return [trial.rate_per_s for trial in trials[name, operation, clients]]


def ratio(label: str, baseline: list[float], candidate: list[float]) -> None:
    """Print one ratio."""
    found = paired_ratio(log_ratios(baseline, candidate))
    interval = f"[{found.low:.3f}, {found.high:.3f}]" if found.low is not None else "[one round]"
    print(f"  {label}: {found.ratio:.3f} {interval}")


def note(text: str) -> None:
    """Print progress on the terminal."""
    print(f"\r{text}".ljust(79), end="" if text else "\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
