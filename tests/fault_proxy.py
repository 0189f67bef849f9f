"""The proxy processes of fault_run.py: started, reloaded, replaced by another process, and measured."""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from collector import REPLIES, Collector
from fault_dns import LIES, Dns
from fault_policies import LOGIN, Policy, Spelling, proxy_file, servers_file, toml
from programs import WAYSTAGE, connect, free_ports

PATIENCE_S = 30.0
# How often a proxy that looks up its servers is started again.
STARTS = 3
SPELLINGS = (Spelling(), Spelling(suffix="-new"), Spelling(host="localhost"), Spelling("-new", "localhost"))
EVENTS = {
    "": "reload",
    "suffix": "reload that renames the pools",
    "host": "reload that writes addresses in another way",
    "servers": "file of servers that is no list of servers",
    "srv": "DNS server without a usable answer",
    "hand-over": "hand-over to another process",
    "several": "two proxies use the same servers",
}


class Process:
    """One proxy process."""

    def __init__(self, arguments: list[str]):
        command = [str(WAYSTAGE), "proxy", *arguments]
        # Each reload starts threads. If glibc gave each of them a heap, the heaps would dominate the resident memory.
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            # Ctrl-C at a terminal must not end the proxies before their clients.
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.wait_for("ready on")
        except AssertionError:
            self.kill()
            raise

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            for line in stream:
                with self.changed:
                    self.lines.append(line.rstrip("\n"))
                    self.changed.notify_all()

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until this number of lines contain a text."""
        with self.changed:
            is_there = lambda: sum(text in line for line in self.lines) >= count  # noqa: E731
            assert self.changed.wait_for(is_there, PATIENCE_S), f"{text!r} is not in {self.lines[-5:]}"

    def resources(self) -> dict[str, int]:
        """Return the numbers of descriptors and threads."""
        folder = Path(f"/proc/{self.process.pid}")
        return {
            "descriptors": len(list((folder / "fd").iterdir())),
            "threads": len(list((folder / "task").iterdir())),
        }

    def peak_mib(self) -> int:
        """Return the largest resident memory so far; 0 if the process has ended."""
        with suppress(OSError):
            text = Path(f"/proc/{self.process.pid}/status").read_text()
            found = re.search(r"VmHWM:\s+(\d+) kB", text)
            return int(found.group(1)) // 1024 if found else 0
        return 0

    def kill(self) -> None:
        """End the process, if it still runs."""
        self.process.kill()
        self.process.wait()


def is_line(line: str) -> bool:
    """Whether a proxy that logs JSON may have written this line to its standard output or error."""
    if line.startswith("waystage proxy "):
        return True
    try:
        logged = json.loads(line)
    except ValueError:
        return False
    stages = logged.get("stages_us", {}).values()
    return {"time", "level", "event", "message"} <= set(logged) and (
        not stages or abs(sum(stages) - logged["total_us"]) < 0.01
    )


def misbehaving(seed: int) -> Callable[[], str]:
    """Return what a collector does with one message after the other. It accepts the first."""
    draw = random.Random(seed)
    replies = chain(["accept"], iter(lambda: draw.choice(REPLIES), None))
    return lambda: next(replies)


class Proxy:
    """One proxy of a policy: a process, and those that it has replaced."""

    def __init__(self, policy: Policy, servers: dict[str, list[int]], folder: Path):
        self.policy, self.servers, self.folder = policy, servers, folder
        (self.port,) = free_ports(1)
        self.events: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.peak_mib = 0
        self.reloads = 0
        self.spelling = SPELLINGS[0]
        self.file = folder / "proxy.toml"
        (folder / "login").write_text(LOGIN + "\n")
        self.source = random.Random(self.port)
        looked_up = [servers[pool.name] for pool in policy.pools if "srv" in pool.settings]
        self.dns = Dns(looked_up[0], self.port) if looked_up else None
        self.collector = Collector(misbehaving(self.port)) if "traces" in policy.settings else None
        self.write(self.spelling)
        self.former: list[Process] = []
        self.current = self._start()
        connect(self.port).close()

    def _start(self) -> Process:
        # On a busy machine, the lookup of a start can time out, and a start has no earlier list.
        for _ in range(STARTS if self.dns else 0):
            with suppress(AssertionError):
                return Process(["--config", str(self.file)])
        try:
            return Process(["--config", str(self.file)])
        except BaseException:
            self._end_dns()
            raise

    def write(self, spelling: Spelling) -> None:
        """Write the configuration file."""
        document = proxy_file(self.policy, self.servers, spelling, str(self.folder))
        if self.collector:
            document["traces"] = self.collector.url
        address, listen = f"127.0.0.1:{self.port}", document["listen"]
        document["listen"] = {**listen, "address": address} if isinstance(listen, dict) else address
        if self.dns:
            document["resolver"] = self.dns.address
        self.file.write_text(toml(document))
        if servers := servers_file(self.policy, self.servers, spelling):
            self._write_servers(servers)

    def _write_servers(self, text: str) -> None:
        # The proxy may read it at any time, and notices an incomplete list only if its last line is cut off.
        new = self.folder / "servers.new"
        new.write_text(text)
        new.rename(self.folder / "servers")

    def change(self, number: int) -> None:
        """Reload another spelling of the configuration, or hand over to another process."""
        self.count_up()
        if self.policy.hands_over:
            self._hand_over()
        else:
            self._reload(SPELLINGS[number % len(SPELLINGS)])
        # What the change has kept is counted again later.
        self.count_up(-1)

    def _reload(self, spelling: Spelling) -> None:
        self._record(EVENTS[""])
        for part in ("suffix", "host"):
            if getattr(spelling, part) != getattr(self.spelling, part):
                self._record(EVENTS[part])
        if servers_file(self.policy, self.servers, self.spelling):
            self._record(EVENTS["servers"])
            self._write_servers(f"{self.reloads}: no list of servers")
            self._read_again()
        if self.dns:
            self._record(EVENTS["srv"])
            self.dns.lie = self.source.choice(list(LIES))
            self._read_again()
        self.spelling = spelling
        self.write(spelling)
        self._read_again()
        if self.dns:
            self.dns.lie = None

    def _read_again(self) -> None:
        self.reloads += 1
        self.current.process.send_signal(signal.SIGHUP)
        self.current.wait_for("waystage proxy reloaded on", self.reloads)

    def _hand_over(self) -> None:
        self._record(EVENTS["hand-over"])
        successor = Process(["--config", str(self.file), "--take-over", str(self.folder / "control")])
        self.former.append(self.current)
        self.current = successor

    def _record(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    def count_up(self, factor: int = 1) -> None:
        """Add the counters; another process sets them to zero, and a reload those of pools that it renames."""
        for name, value in self._statistics().items():
            self.counters[name] = self.counters.get(name, 0) + factor * value

    def has_read(self) -> bool:
        """Whether a client has read a key."""
        return b"STAT cmd_get 0\r\n" not in self._text()

    def _statistics(self) -> dict[str, int]:
        lines = (
            line.split() for line in self._text().decode().splitlines() if line.startswith("STAT waystage_")
        )
        return {name.removeprefix("waystage_"): int(value) for _, name, value in lines if value.isdigit()}

    def _text(self) -> bytes:
        with connect(self.port) as stream:
            stream.sendall(b"stats\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                got = stream.recv(65536)
                assert got, "the proxy closed the connection before the end of its statistics"
                text += got
        return text

    def note_peak(self) -> None:
        """Record the largest memory of a process so far."""
        self.peak_mib = max(process.peak_mib() for process in (*self.former, self.current))

    def end(self) -> list[str]:
        """Stop all processes; return what was wrong with their ends."""
        broken = []
        if self.dns and self.events and not (LIES.keys() & self.dns.answers):
            broken.append(f"the proxy has not looked its servers up: {self.dns.answers}")
        self._end_dns()
        self.note_peak()
        self.current.process.send_signal(signal.SIGTERM)
        for process in (*self.former, self.current):
            try:
                code = process.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                broken.append("a proxy did not end")
                continue
            if code != 0:
                broken.append(f"a proxy ended with {code}: {process.lines[-2:]}")
            if self.policy.settings.get("log-format") == "json":
                broken += [
                    f"not a line of the log: {line[:300]}" for line in process.lines if not is_line(line)
                ]
        if self.collector and not self.collector.bodies:
            broken.append("no spans have arrived at the collector")
        return broken

    def kill(self) -> None:
        """End all processes that still run."""
        self._end_dns()
        for process in (*self.former, self.current):
            process.kill()
        if self.collector:
            self.collector.end()

    def _end_dns(self) -> None:
        if self.dns:
            self.dns.end()


class Proxies:
    """The proxies of one policy, before the same servers. Each has a configuration file of its own."""

    def __init__(self, policy: Policy, servers: list[dict[str, list[int]]], folder: Path):
        self.all: list[Proxy] = []
        try:
            for number in range(policy.proxies):
                own = folder / f"proxy-{number}"
                own.mkdir(parents=True, exist_ok=True)
                self.all.append(Proxy(policy, servers[number], own))
        except BaseException:
            self.kill()
            raise

    @property
    def ports(self) -> list[int]:
        """The ports on which they listen."""
        return [proxy.port for proxy in self.all]

    def change(self, number: int) -> None:
        """Reload one proxy after the other, or let another process take over."""
        self.all[number % len(self.all)].change(number // len(self.all))

    def resources(self) -> dict[str, int]:
        """Return the numbers of descriptors and threads of all proxies."""
        return _sum(proxy.current.resources() for proxy in self.all)

    def resources_after(self, before: dict[str, int], patience_s: float) -> dict[str, int]:
        """Return the numbers of descriptors and threads, when they are not larger than before or the time is over."""
        deadline = time.monotonic() + patience_s
        while True:
            now = self.resources()
            if all(now[name] <= before[name] for name in now) or time.monotonic() > deadline:
                return now
            time.sleep(0.2)

    def count_up(self) -> dict[str, int]:
        """Return the counters since the start."""
        for proxy in self.all:
            proxy.count_up()
        return _sum(proxy.counters for proxy in self.all)

    def events(self) -> dict[str, int]:
        """Return what has happened to the proxies, and how often."""
        return _sum(
            [*(proxy.events for proxy in self.all), {EVENTS["several"]: 1} if len(self.all) > 1 else {}]
        )

    def peak_mib(self) -> int:
        """Return the largest memory of one process, as it was recorded last."""
        return max(proxy.peak_mib for proxy in self.all)

    def note_peak(self) -> None:
        """Record the largest memory of each process so far."""
        for proxy in self.all:
            proxy.note_peak()

    def end(self) -> list[str]:
        """Stop all processes; return what was wrong with their ends."""
        return [line for proxy in self.all for line in proxy.end()]

    def kill(self) -> None:
        """End all processes that still run."""
        for proxy in self.all:
            proxy.kill()


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total
