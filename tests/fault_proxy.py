"""The proxy processes of fault_run.py: started, reloaded, replaced by another process, and measured."""

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from fault_clients import Ports
from fault_policies import Policy, Spelling, proxy_file, toml
from programs import WAYSTAGE, connect, free_ports

PATIENCE_S = 30.0
SPELLINGS = (Spelling(), Spelling(suffix="-new"), Spelling(host="localhost"), Spelling("-new", "localhost"))
EVENTS = {
    "": "reload",
    "suffix": "reload that renames the pools",
    "host": "reload that writes addresses in another way",
    "hand-over": "hand-over to another process",
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
        )
        self.lines: list[str] = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        self.wait_for("ready on")

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


class Proxy:
    """The proxy of one policy: a process, and those that it has replaced."""

    def __init__(self, policy: Policy, servers: dict[str, list[int]], folder: Path):
        self.policy, self.servers, self.folder = policy, servers, folder
        (port,) = free_ports(1)
        self.ports = Ports(port)
        self.events: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.peak_mib = 0
        self.reloads = 0
        self.spelling = SPELLINGS[0]
        self.file = folder / "proxy.toml"
        self.write(self.spelling)
        self.former: list[Process] = []
        self.current = Process(["--config", str(self.file)])
        connect(port).close()

    def write(self, spelling: Spelling) -> None:
        """Write the configuration file."""
        document = proxy_file(self.policy, self.servers, spelling, str(self.folder))
        document["listen"] = f"127.0.0.1:{self.ports.proxy}"
        self.file.write_text(toml(document))

    def change(self, number: int) -> None:
        """Reload another spelling of the configuration, or hand over to another process."""
        self.count_up()
        if self.policy.hands_over:
            self._hand_over()
        else:
            self._reload(SPELLINGS[number % len(SPELLINGS)])

    def _reload(self, spelling: Spelling) -> None:
        self._record(EVENTS[""])
        for part in ("suffix", "host"):
            if getattr(spelling, part) != getattr(self.spelling, part):
                self._record(EVENTS[part])
        self.spelling = spelling
        self.write(spelling)
        self.reloads += 1
        self.current.process.send_signal(signal.SIGHUP)
        self.current.wait_for("reloaded", self.reloads)

    def _hand_over(self) -> None:
        self._record(EVENTS["hand-over"])
        successor = Process(["--config", str(self.file), "--take-over", str(self.folder / "control")])
        self.former.append(self.current)
        self.current = successor

    def _record(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    def count_up(self) -> None:
        """Add the counters, which a reload sets to zero."""
        for name, value in self._statistics().items():
            self.counters[name] = self.counters.get(name, 0) + value

    def has_read(self) -> bool:
        """Whether a client has read a key."""
        return b"STAT cmd_get 0\r\n" not in self._text()

    def _statistics(self) -> dict[str, int]:
        lines = (
            line.split() for line in self._text().decode().splitlines() if line.startswith("STAT waystage_")
        )
        return {name.removeprefix("waystage_"): int(value) for _, name, value in lines if value.isdigit()}

    def _text(self) -> bytes:
        with connect(self.ports.proxy) as stream:
            stream.sendall(b"stats\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                got = stream.recv(65536)
                assert got, "the proxy closed the connection before the end of its statistics"
                text += got
        return text

    def resources_after(self, before: dict[str, int], patience_s: float) -> dict[str, int]:
        """Return the numbers of descriptors and threads, when they are not larger than before or the time is over."""
        deadline = time.monotonic() + patience_s
        while True:
            now = self.current.resources()
            if all(now[name] <= before[name] for name in now) or time.monotonic() > deadline:
                return now
            time.sleep(0.2)

    def end(self) -> list[str]:
        """Stop all processes; return what was wrong with their ends."""
        broken = []
        self.peak_mib = max(process.peak_mib() for process in (*self.former, self.current))
        self.current.process.send_signal(signal.SIGTERM)
        for process in (*self.former, self.current):
            try:
                code = process.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                broken.append("a proxy did not end")
                continue
            if code != 0:
                broken.append(f"a proxy ended with {code}: {process.lines[-2:]}")
        return broken

    def kill(self) -> None:
        """End all processes that still run."""
        for process in (*self.former, self.current):
            process.kill()
