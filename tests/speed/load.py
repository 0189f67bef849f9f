"""The load generator's CPU time and lateness, compared with memcached: run by `make bench-load`; no limit is enforced.

CPU time per request of both sides of the same run, for each kind of run in turn and back again (ABBA). Then
how late the generator sends at half of what a closed loop reached, and how exactly it replays a trace.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waylab.analysis.statistics.pairs import log_ratios, paired_ratio

WAYSTAGE = Path(__file__).parents[2] / "target/release/waystage"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BLOCKS = 6
MACHINE_S = 4.0
GAP_US = 50
READY_WITHIN_S = 10.0
# How the generator waits for the next request.
WAYS: dict[str, tuple[str, ...]] = {"sleeping": (), "spinning": ("--spin",)}
WAITS = tuple(WAYS)
CLOSED = ("--clients", "50", "--ratio", "0:1", "--data-size", "128", "--warm-up", "1s", "--test-time", "4s")


@dataclass(frozen=True)
class Kind:
    """One kind of closed-loop run, and the maximum of its CPU time relative to memcached's."""

    memcached: tuple[str, ...]
    pipeline: int
    wanted: float

    @property
    def name(self) -> str:
        """Its name in the table."""
        threads = "-t 1" if self.memcached else "as it comes (4 threads)"
        return f"memcached {threads}, {self.pipeline} in flight on each connection"


KINDS = [
    Kind(threads, depth, wanted) for threads in ((), ("-t", "1")) for depth, wanted in ((1, 0.8), (16, 0.5))
]


def main() -> None:
    """Print every figure."""
    memcached = shutil.which("memcached")
    if not memcached:
        sys.exit("bench-load: there is no memcached on the PATH; it is what the generator is set beside")
    costs: dict[Kind, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    rates: list[float] = []
    for block in range(BLOCKS):
        for kind in KINDS if block % 2 == 0 else KINDS[::-1]:
            print(
                f"\rblock {block + 1} of {BLOCKS}: {kind.name}".ljust(79), end="", file=sys.stderr, flush=True
            )
            with server(memcached, *kind.memcached) as (pid, address):
                load_us, server_us, rate_per_s = cost(pid, address, kind.pipeline)
            costs[kind].append((server_us, load_us))
            rates += [rate_per_s] if kind.pipeline == 1 else []
    print("\r".ljust(80), end="\r", file=sys.stderr)
    print("CPU time per request, single GETs of 128 bytes, 50 connections, all histograms on")
    for kind, pairs in costs.items():
        theirs, ours = zip(*pairs, strict=True)
        ratio = paired_ratio(log_ratios(theirs, ours))
        print(
            f"  {kind.name}: {sum(ours) / BLOCKS:.2f} us to {sum(theirs) / BLOCKS:.2f} us, "
            f"ratio {ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], wanted {kind.wanted} at most"
        )
    machine()
    with server(memcached) as (_, address):
        slip(address, sorted(rates)[len(rates) // 2] / 2)
        replay(address)


@contextmanager
def server(memcached: str, *arguments: str) -> Iterator[tuple[int, str]]:
    """Run a memcached on a port that it chooses; yield its process and its address."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [memcached, "-U", "0", "-l", "127.0.0.1", "-p", "-1", *arguments]
        command += ["-u", "root"] if os.geteuid() == 0 else []
        process = subprocess.Popen(command, env={**os.environ, "MEMCACHED_PORT_FILENAME": str(port_file)})
        try:
            until_s = time.monotonic() + READY_WITHIN_S
            while not port_file.is_file():
                if process.poll() is not None or time.monotonic() > until_s:
                    sys.exit("bench-load: memcached did not start")
                time.sleep(0.01)
            yield process.pid, f"127.0.0.1:{port_file.read_text().split()[-1]}"
        finally:
            process.kill()
            process.wait()


def load(address: str, *arguments: str) -> dict[str, Any]:
    """Run the generator and return its summary, also if the run is invalid."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "summary.json"
        command = [
            str(WAYSTAGE),
            "load",
            "--server",
            address,
            "--quiet",
            "--json-out-file",
            str(path),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not path.is_file():
            sys.exit(f"bench-load: {done.stderr.strip()}")
        summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def cost(pid: int, address: str, pipeline: int) -> tuple[float, float, float]:
    """Microseconds of CPU time per request of the generator and of memcached, and requests per second."""
    load(address, "--requests", "1", "--ratio", "0:1", "--data-size", "128")
    before_s = cpu_s(pid)
    summary = load(address, *CLOSED, "--pipeline", str(pipeline), "--no-prefill")
    server_us = (cpu_s(pid) - before_s) / summary["totals"]["requests_answered"] * 1e6
    spent = summary["cpu"]["user_s"] + summary["cpu"]["system_s"]
    return spent / summary["totals"]["requests"] * 1e6, server_us, summary["throughput_per_s"]


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, from proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def machine() -> None:
    """How late this machine itself is, with nothing else to do: no program that sleeps can be more exact."""
    late_us: list[float] = []
    gaps_us: list[float] = []
    until_s = time.perf_counter() + MACHINE_S
    while (begun_s := time.perf_counter()) < until_s:
        time.sleep(100e-6)
        late_us.append((time.perf_counter() - begun_s) * 1e6 - 100)
    until_s += MACHINE_S
    before_s = time.perf_counter()
    while before_s < until_s:
        now_s = time.perf_counter()
        gaps_us.append((now_s - before_s) * 1e6)
        before_s = now_s
    late_us.sort()
    lost = sum(gap for gap in gaps_us if gap > GAP_US) / MACHINE_S / 1e6
    print(
        f"this machine alone: a sleep ends late by p50 {late_us[len(late_us) // 2]:.0f} us, "
        f"p99 {late_us[len(late_us) * 99 // 100]:.0f} us; a program that never sleeps is stopped for more than "
        f"{GAP_US} us at a time {100 * lost:.1f} % of the time"
    )


def slip(address: str, rate_per_s: float) -> None:
    """How late an open loop sends at half of what a closed loop reached; wanted: p99 below 50 us on an idle machine."""
    late: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for block in range(BLOCKS):
        for arrivals in ("poisson", "constant"):
            for way in WAITS if block % 2 == 0 else tuple(reversed(WAITS)):
                arguments = ["--rate", f"{rate_per_s:.0f}", "--arrivals", arrivals, "--clients", "200"]
                summary = load(address, *arguments, "--data-size", "128", "--test-time", "4s", *WAYS[way])
                own, whole = summary["lateness"], summary["operations"]["all"]["slip"]
                pair = (own["percentiles"]["99"] / 1e3, whole["percentiles"]["99"] / 1e3)
                late.setdefault((arrivals, way), []).append(pair)
    for (arrivals, way), pairs in late.items():
        own_us, all_of_it_us = (sorted(values) for values in zip(*pairs, strict=True))
        print(
            f"p99 at {rate_per_s:.0f}/s, {arrivals}, {way}, median of {BLOCKS} runs (least, most): "
            f"generator's lateness {middle(own_us)} us, slip {middle(all_of_it_us)} us; wanted below 50 us"
        )


def replay(address: str) -> None:
    """How far from its time a row of a trace is sent; wanted within 1 ms."""
    slips: dict[str, list[list[float]]] = {way: [] for way in WAITS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        rows = [
            f"{row // 2000},key{row % 997},{len(f'key{row % 997}')},100,{row % 7},get,0"
            for row in range(10_000)
        ]
        path.write_text("\n".join(rows) + "\n")
        arguments = ["--trace", str(path), "--clients", "50", "--pipeline", "16"]
        for block in range(BLOCKS):
            for way in WAITS if block % 2 == 0 else tuple(reversed(WAITS)):
                whole = load(address, *arguments, *WAYS[way])["operations"]["all"]["slip"]
                slips[way].append(
                    [whole["percentiles"][name] / 1e3 for name in ("50", "99")] + [whole["max_ns"] / 1e3]
                )
    for way, runs in slips.items():
        p50, p99, most = (middle(sorted(values)) for values in zip(*runs, strict=True))
        print(
            f"replay of 10 000 rows in 5 s, {way}, median of {BLOCKS} runs (least, most): sent after their time by "
            f"p50 {p50} us, p99 {p99} us, at most {most} us; wanted within 1 ms"
        )


def middle(values: list[float]) -> str:
    """Median with the extremes."""
    return f"{values[len(values) // 2]:.0f} ({values[0]:.0f}, {values[-1]:.0f})"


if __name__ == "__main__":
    main()
