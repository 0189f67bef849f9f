"""Kills message services over one PostgreSQL every few seconds, and PostgreSQL now and then.

Meanwhile, a load generator sends and pops, and follows every message. Run it with

    .venv/bin/python tests/messages/kill_run.py --seconds 600

The last lines show the fate of all messages. The exit code is 0 if no message was lost, doubled or damaged, and the
order was kept where it is guaranteed. test_kill_run.py runs a short form. docs/load-messages.md explains the numbers.
"""

import argparse
import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

# pytest has the folder of the shared helpers in its path; a program has not.
sys.path.append(str(Path(__file__).parent.parent))

from programs import WAYSTAGE, free_ports

from waylab.testbed.postgres import find_postgres

SERVICES = 3
# Before the first kill, and between the last one and the end.
CALM_START_S = 1.0
CALM_END_S = 2.0
# Pause between two kills. The second of every four kills hits PostgreSQL, because a short run on a slow machine has
# fewer than four.
PAUSE_S = (0.5, 2.5)
POSTGRES_EVERY = 4
# How long a killed service stays away.
AWAY_S = (0.0, 1.0)
# On a busy machine, a killed PostgreSQL can take more than half a minute until it accepts connections again.
START_PATIENCE_S = 120.0
OPERATIONS = "send:4,send-to:2,pop:5,pop-from:2,peek:1"
# These fates must never occur, whatever is killed.
NEVER = (
    "lost",
    "doubled",
    "torn",
    "unknown",
    "misdelivered",
    "refused_and_done",
    "unread",
    "delivered_while_leased",
    "ended_early",
    "held_too_long",
)


def other_user() -> dict[str, Any]:
    """Return another user if this process is root, because PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


class DatabaseDiedError(RuntimeError):
    """A PostgreSQL server that no event has stopped does not run, or does not do its work."""


class Postgres:
    """A private PostgreSQL that can be killed."""

    settings: tuple[str, ...] = ("listen_addresses=", "shared_buffers=32MB", "max_connections=50")

    def __init__(self, folder: Path) -> None:
        programs = find_postgres().folder
        self.programs, self.folder, self.user = programs, folder, other_user()
        folder.mkdir()
        if self.user:
            os.chown(folder, self.user["user"], self.user["group"])
            folder.parent.chmod(0o755)
        self.log = (folder.parent / f"{folder.name}.log").open("ab")
        self.create()
        self.process = self.start()

    def create(self) -> None:
        """Create its data."""
        programs, folder = self.programs, self.folder
        initdb: list[str | Path] = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "waystage",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        subprocess.run(
            [*initdb, "--no-locale"], check=True, cwd=folder, stdout=self.log, stderr=self.log, **self.user
        )

    @property
    def url(self) -> str:
        """The connection string for the services."""
        return f"host='{self.folder}' user=waystage dbname=postgres"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, repeatedly if necessary: the children of a killed server keep its shared memory for a moment."""
        until = time.monotonic() + START_PATIENCE_S
        command: list[str | Path] = [
            self.programs / "postgres",
            "-D",
            self.folder / "data",
            "-k",
            self.folder,
        ]
        arguments = [word for setting in self.settings for word in ("-c", setting)]
        while True:
            process = subprocess.Popen(
                [*command, *arguments], cwd=self.folder, stdout=self.log, stderr=self.log, **self.user
            )
            while process.poll() is None:
                if self.is_ready(process):
                    return process
                if time.monotonic() > until:
                    process.kill()
                    process.wait()
                    raise self.died("does not start")
                time.sleep(0.02)
            if time.monotonic() > until:
                raise self.died("ends as it starts")
            time.sleep(0.05)

    def died(self, what: str) -> DatabaseDiedError:
        """Return an error in one line: which server it is, what happened, and the last severe line of its log."""
        text = Path(self.log.name).read_text(errors="replace")
        severe = [line for line in text.splitlines() if re.search(r"\b(PANIC|FATAL|ERROR|error): ", line)]
        why = re.sub(r"^.*?(?=PANIC|FATAL|ERROR|error)", "", severe[-1]) if severe else "its log has no error"
        return DatabaseDiedError(f"the database {self.folder.name} {what}: {why} ({self.log.name})")

    def require_running(self) -> None:
        """Fail if the server has ended by itself."""
        code = self.process.poll()
        if code is not None:
            raise self.died(f"has ended with code {code}")

    def is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether its lock file says that it accepts connections."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return bool(lines) and lines[0] == str(process.pid) and lines[-1].strip() == "ready"

    def kill(self) -> None:
        """Kill it as a crash would, and start it again."""
        self.process.kill()
        self.process.wait()
        self.process = self.start()

    def end(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Service:
    """A message service that can be killed."""

    def __init__(self, database: str, port: int, log: Path) -> None:
        self.database, self.port, self.log = database, port, log
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, repeatedly if necessary: it exits while there is no database."""
        until = time.monotonic() + START_PATIENCE_S
        command = [
            str(WAYSTAGE),
            "messages",
            "--database",
            self.database,
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        while time.monotonic() < until:
            with self.log.open("ab") as log:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
            assert process.stdout is not None
            if b"ready" in process.stdout.readline():
                return process
            process.kill()
            process.wait()
            process.stdout.close()
            time.sleep(0.05)
        raise RuntimeError(f"the service does not start; see {self.log}")

    def kill(self, away_s: float) -> None:
        """Kill it, and start it again after a while."""
        self.end()
        time.sleep(away_s)
        self.process = self.start()

    def end(self) -> None:
        """Stop it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Report:
    """The result of a run."""

    seed: int
    kills: dict[str, int] = field(default_factory=lambda: {"service": 0, "postgres": 0})
    summary: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def messages(self) -> dict[str, Any]:
        """The fate of the messages."""
        messages: dict[str, Any] = self.summary.get("messages", {})
        return messages

    def judge(self) -> None:
        """Record every fate that must not occur."""
        if not self.messages:
            self.broken.append("there is no account of the messages")
            return
        self.broken += [f"{name}: {self.messages[name]}" for name in NEVER if self.messages.get(name)]
        if self.messages["order_promised"] and self.messages["out_of_order"]:
            self.broken.append(f"out_of_order: {self.messages['out_of_order']}")
        self.broken += [reason for reason in self.summary["reasons"] if reason not in self.broken]

    def lines(self) -> list[str]:
        """Return the result as text."""
        messages = self.messages
        if not messages:
            return [f"seed {self.seed}", *(f"BROKEN: {line}" for line in self.broken)]
        promised = "" if messages["order_promised"] else " (not promised)"
        return [
            f"seed {self.seed}: events {self.kills}",
            f"acknowledged {messages['acknowledged']}, received {messages['received']}, of these after the run"
            f" {messages['drained']}, refused {messages['refused']}",
            f"lost {messages['lost']}, doubled {messages['doubled']},"
            f" out of order {messages['out_of_order']}{promised}",
            f"in doubt: {messages['sends_in_doubt']} sends ({messages['sends_in_doubt_arrived']} arrived),"
            f" {messages['pops_in_doubt']} pops (which may have taken {messages['taken_in_doubt']})",
            *(f"BROKEN: {line}" for line in self.broken),
        ]


def kill_for_a_while(
    postgres: Postgres, services: list[Service], report: Report, seconds: float, is_over: threading.Event
) -> None:
    """Kill at random until little time is left."""
    chance = random.Random(report.seed)
    until = time.monotonic() + seconds - CALM_END_S
    time.sleep(CALM_START_S)
    number = 0
    while time.monotonic() < until and not is_over.is_set():
        number += 1
        postgres.require_running()
        if number % POSTGRES_EVERY == 2:
            postgres.kill()
            report.kills["postgres"] += 1
        else:
            chance.choice(services).kill(chance.uniform(*AWAY_S))
            report.kills["service"] += 1
        is_over.wait(min(chance.uniform(*PAUSE_S), max(until - time.monotonic(), 0.0)))


def load_command(
    services: list[Service], seconds: float, clients: int, operations: str, seed: int
) -> list[str]:
    """Return the command of the load: without think time, so that each client has a request in flight."""
    targets = [word for service in services for word in ("--messages", f"http://127.0.0.1:{service.port}")]
    rest = ["--operations", operations, "--queues", "4", "--clients", str(clients), "--seed", str(seed)]
    times = [
        "--warm-up",
        "0s",
        "--test-time",
        f"{seconds:.0f}s",
        "--reply-timeout",
        "5s",
        "--drain-time",
        "120s",
        # Requests fail while a service or the database is away.
        "--failed-max",
        "1",
    ]
    return [str(WAYSTAGE), "load", *targets, *rest, *times, "--quiet"]


def read_summary(report: Report, out: Path, log: Path) -> None:
    """Add the summary of the load to the report."""
    if out.exists() and out.stat().st_size:
        report.summary = json.loads(out.read_text())
    else:
        report.broken.append(log.read_text().strip() or "the load ended without a summary")


def run(
    seconds: float,
    folder: Path,
    seed: int = 1,
    services_number: int = SERVICES,
    clients: int = 12,
    operations: str = OPERATIONS,
) -> Report:
    """Load and kill for this many seconds; the logs are in `folder`."""
    report = Report(seed)
    postgres = Postgres(folder / "postgres")
    services: list[Service] = []
    try:
        for number, port in enumerate(free_ports(services_number)):
            services.append(Service(postgres.url, port, folder / f"service-{number}.log"))
        out = folder / "summary.json"
        command = load_command(services, seconds, clients, operations, seed)
        with (folder / "load.log").open("wb") as log:
            load = subprocess.Popen([*command, "--json-out-file", str(out)], stdout=log, stderr=log)
        is_over = threading.Event()
        try:
            kill_for_a_while(postgres, services, report, seconds, is_over)
            load.wait(seconds + 180)
        finally:
            is_over.set()
            if load.poll() is None:
                load.kill()
                load.wait()
        read_summary(report, out, folder / "load.log")
    finally:
        for service in services:
            service.end()
        postgres.end()
    report.judge()
    return report


def main() -> int:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--operations", default=OPERATIONS)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--keep", type=Path, help="where the logs and the summary go")
    arguments = parser.parse_args()
    # A short path, because the path of PostgreSQL's socket has a limit.
    with tempfile.TemporaryDirectory(prefix="waystage-kill-", dir="/tmp") as name:
        folder = Path(name)
        report = run(
            arguments.seconds,
            folder,
            arguments.seed,
            arguments.services,
            arguments.clients,
            arguments.operations,
        )
        print("\n".join(report.lines()))
        keep(folder, arguments.keep)
    return 1 if report.broken else 0


def keep(folder: Path, place: Path | None) -> None:
    """Copy the logs and the summary to the place where they are kept, if there is one."""
    if place:
        place.mkdir(parents=True, exist_ok=True)
        for file in [*folder.glob("*.log"), *folder.glob("*.json")]:
            shutil.copy(file, place / file.name)


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run the program, and exit with its code."""
    try:
        sys.exit(main())
    except DatabaseDiedError as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{Path(sys.argv[0]).stem}: stopped before its time, so nothing was counted")


if __name__ == "__main__":
    exit_with(main)
