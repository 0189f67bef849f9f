"""CPU time of the proxy per request, for two or more builds side by side: run by `make bench-proxy`.

All builds forward to the same three memcached servers, with one event loop each. One load generator drives them in turn
and back again (ABBA). Blocks are the pairs: the ratio of a workload is the geometric mean over them, with a 95 %
t interval. The first --proxy is the baseline.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from programs import MEMCACHED, connect, free_ports

from waylab.analysis.statistics.pairs import log_ratios, paired_ratio

SERVERS = 3
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READS = ("--ratio", "0:1")
WRITES = ("--ratio", "1:0")


@dataclass(frozen=True)
class Workload:
    """Arguments of the load generator. `requests` take about two seconds."""

    arguments: tuple[str, ...]
    requests: int
    clients: int = 64
    value_bytes: int = 128
    keys: int = 10_000

    @property
    def load(self) -> list[str]:
        """All arguments but the server and the number of requests."""
        values = ["--data-size", str(self.value_bytes), "--key-prefix", f"{self.value_bytes}-"]
        values += ["--key-maximum", str(self.keys - 1), "--clients", str(self.clients)]
        return ["--no-prefill", "--warm-up", "0s", "--quiet", *values, *self.arguments]

    @property
    def fill(self) -> "Workload":
        """The workload that writes every key once."""
        arguments = (*WRITES, "--key-pattern", "sequential")
        return Workload(arguments, self.keys, 4, self.value_bytes, self.keys)


WORKLOADS = {
    "get": Workload(READS, 120_000),
    "pipeline": Workload((*READS, "--pipeline", "16"), 300_000),
    "multi-get-10": Workload((*READS, "--multi-key-get", "10"), 80_000),
    "set": Workload(WRITES, 120_000),
    "multi-get-50": Workload((*READS, "--multi-key-get", "50"), 30_000),
    "get-128k": Workload(READS, 20_000, 16, 128 << 10, 500),
    "get-512k": Workload(READS, 5_000, 16, 512 << 10, 200),
}
DEFAULT = ("get", "pipeline", "multi-get-10", "set")


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """Return the CPU time so far, user and system, from proc(5)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Bench:
    """The servers, the proxies, and the generator that drives them."""

    def __init__(self, stack: ExitStack, generator: str, binaries: dict[str, str]) -> None:
        self._stack = stack
        self._generator = generator
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cores = sorted(os.sched_getaffinity(0))
        # A proxy has a core of its own if there are several.
        self._others, self._own = set(cores[:-1] or cores), {cores[-1]}
        ports = free_ports(SERVERS + len(binaries))
        servers = [f"--server=127.0.0.1:{port}" for port in ports[:SERVERS]]
        for port in ports[:SERVERS]:
            self._start([*MEMCACHED, str(port), "-t", "1", "-m", "512"], self._others)
            connect(port).close()
        self.proxies = {}
        for (name, path), port in zip(binaries.items(), ports[SERVERS:], strict=True):
            command = [path, "proxy", "--listen", f"127.0.0.1:{port}", "--loops", "1", *servers]
            self.proxies[name] = Proxy(self._start(command, self._own), port)
            connect(port).close()

    def _start(self, command: Sequence[str], cores: set[int]) -> int:
        process = subprocess.Popen([*_on(cores), *command], stdout=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return process.pid

    def run(self, proxy: Proxy, workload: Workload) -> float:
        """Return the CPU time of the proxy per request, in microseconds."""
        out = self._folder / "summary.json"
        command = [*_on(self._others), self._generator, "load", "--server", f"127.0.0.1:{proxy.port}"]
        command += [*workload.load, "--requests", str(workload.requests), "--json-out-file", str(out)]
        before_s = proxy.cpu_s()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        spent_s = proxy.cpu_s() - before_s
        # The generator also exits with 1 if it sent too late, as on a busy machine. Here only replies count.
        totals = json.loads(out.read_text())["totals"] if out.exists() else {}
        if totals.get("requests_answered") != workload.requests:
            sys.exit(f"bench-proxy: requests without a reply: {totals} {done.stderr.strip()}")
        out.unlink()
        return spent_s / workload.requests * 1e6

    def block(self, workload: Workload, names: Sequence[str]) -> dict[str, float]:
        """Run every proxy twice, in this order and back, and return the mean CPU time per request of each."""
        times = dict.fromkeys(names, 0.0)
        for name in (*names, *reversed(names)):
            times[name] += self.run(self.proxies[name], workload) / 2
        return times


def _on(cores: set[int]) -> list[str]:
    """Return the command that runs another one on these cores."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))]


def main() -> None:
    """Print the ratio of every proxy to the first one, for each workload."""
    arguments = parse()
    binaries = dict(arguments.proxy)
    baseline, *candidates = binaries
    with ExitStack() as stack:
        bench = Bench(stack, arguments.generator or binaries[baseline], binaries)
        workloads = {name: WORKLOADS[name] for name in arguments.workload or DEFAULT}
        # The servers are the same for all, so the values are written once.
        for fill in {workload.fill for workload in workloads.values()}:
            bench.run(bench.proxies[baseline], fill)
        print("CPU time of the proxy per request; ratio, 95 % interval over blocks")
        for title, workload in workloads.items():
            blocks = []
            for number in range(arguments.blocks):
                order = list(binaries) if number % 2 == 0 else [*candidates, baseline]
                blocks.append(bench.block(workload, order))
            times = {name: [block[name] for block in blocks] for name in binaries}
            means = {name: sum(values) / len(values) for name, values in times.items()}
            for name in candidates:
                ratio = paired_ratio(log_ratios(times[baseline], times[name]))
                interval = (
                    f"[{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low and ratio.high else ratio.reason
                )
                print(
                    f"  {title}: {name} {means[name]:.2f} us, {baseline} {means[baseline]:.2f} us, "
                    f"ratio {ratio.ratio:.3f} {interval}",
                    flush=True,
                )


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--proxy",
        type=named_path,
        action="append",
        required=True,
        metavar="NAME=PATH",
        help="a waystage binary; the first one is the baseline",
    )
    parser.add_argument(
        "--generator", metavar="PATH", help="the waystage binary that generates the load [the baseline]"
    )
    parser.add_argument("--blocks", type=int, default=10, help="blocks of each workload [10]")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help=f"[{', '.join(DEFAULT)}]")
    arguments = parser.parse_args()
    if len(dict(arguments.proxy)) < 2 or arguments.blocks < 1:
        parser.error("give two or more --proxy with different names, and one or more --blocks")
    return arguments


def named_path(text: str) -> tuple[str, str]:
    """Split NAME=PATH."""
    name, separator, path = text.partition("=")
    if not (name and separator and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=PATH of a program, for example old=/tmp/waystage"
        )
    return name, path


if __name__ == "__main__":
    main()
