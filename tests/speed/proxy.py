"""CPU time of a proxy per request, for several proxies side by side: run by `make bench-proxy`.

    proxy.py --proxy this=target/release/waystage --twemproxy          beside twemproxy
    proxy.py --proxy old=OLD/waystage --proxy new=NEW/waystage         beside another build, the first one
    proxy.py --proxy this=target/release/waystage --feature rate-limit   with a feature, beside itself without it
    proxy.py --proxy this=... --peer 'name=PROGRAM --port {port} --servers {servers}'   beside any other proxy

All proxies forward to the same three memcached servers, with one event loop each; this one has all stamps, and records
of one request in 100. One load generator drives them in turn and back again (ABBA). Blocks are the pairs: the ratio of
a workload is the geometric mean over them, with a 95 % t interval.
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
from programs import MEMCACHED, connect, find, free_ports
from proxy_systems import FEATURES, System, other, twemproxy_system, waystage

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
    "clients-1": Workload(READS, 20_000, 1),
    "clients-1000": Workload(READS, 120_000, 1000),
    "get-4k": Workload(READS, 100_000, 64, 4 << 10),
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

    def __init__(self, stack: ExitStack, generator: str, servers: int = SERVERS) -> None:
        self._stack = stack
        self._generator = generator
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cores = sorted(os.sched_getaffinity(0))
        # A proxy has a core of its own if there are several.
        self._others, self._own = set(cores[:-1] or cores), {cores[-1]}
        ports = free_ports(servers)
        for port in ports:
            self._start([*MEMCACHED, str(port), "-t", "1", "-m", "512"], self._others, stack)
            connect(port).close()
        self.servers = [f"127.0.0.1:{port}" for port in ports]
        self.proxies: dict[str, Proxy] = {}

    def start(self, system: System, stack: ExitStack | None = None) -> Proxy:
        """Start a proxy and wait until it listens. It stops with the stack, or with the servers."""
        proxy = Proxy(self._start(system.command, self._own, stack or self._stack), system.port)
        connect(system.port_behind or system.port).close()
        self.proxies[system.name] = proxy
        return proxy

    def _start(self, command: Sequence[str], cores: set[int], stack: ExitStack) -> int:
        process = subprocess.Popen(
            [*_on(cores), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return process.pid

    def run(self, proxy: Proxy, workload: Workload) -> float:
        """Return the CPU time of the proxy per request, in microseconds."""
        out = self.folder / "summary.json"
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
    """Print the ratio of every proxy to its references, for each workload, as a table in Markdown."""
    arguments = parse()
    (first, path), *others = arguments.proxy
    with ExitStack() as stack:
        bench = Bench(stack, arguments.generator or path)
        for name, binary in arguments.proxy:
            bench.start(waystage(name, binary, bench.servers, bench.folder))
        for feature in arguments.feature:
            bench.start(waystage(feature, path, bench.servers, bench.folder, feature))
        peers = [other(name, template, bench.servers) for name, template in arguments.peer]
        if arguments.twemproxy:
            peers.append(twemproxy_system(bench.servers, bench.folder))
        for peer in peers:
            bench.start(peer)
        # Each proxy beside the first one, and every build beside every peer.
        rows = [(name, first) for name in [*(name for name, _ in others), *arguments.feature]]
        rows += [(name, peer.name) for name, _ in arguments.proxy for peer in peers]
        workloads = {name: WORKLOADS[name] for name in arguments.workload or DEFAULT}
        # The servers are the same for all, so the values are written once.
        for fill in {workload.fill for workload in workloads.values()}:
            bench.run(bench.proxies[first], fill)
        print("| workload | proxy | us | beside | us | ratio | 95 % interval |")
        print("|---|---|---:|---|---:|---:|---|")
        for title, workload in workloads.items():
            report(title, measured(bench, workload, arguments.blocks), rows)


def measured(bench: Bench, workload: Workload, count: int) -> dict[str, list[float]]:
    """Return the CPU time per request of each proxy in each block."""
    names = list(bench.proxies)
    # Every other block begins with the last proxy.
    blocks = [bench.block(workload, names[:: 1 - 2 * (number % 2)]) for number in range(count)]
    return {name: [block[name] for block in blocks] for name in names}


def report(title: str, times: dict[str, list[float]], rows: Sequence[tuple[str, str]]) -> None:
    """Print the rows of one workload."""
    means = {name: sum(values) / len(values) for name, values in times.items()}
    for name, reference in rows:
        found = paired_ratio(log_ratios(times[reference], times[name]))
        interval = f"{found.low:.3f} to {found.high:.3f}" if found.low and found.high else found.reason
        cells = (title, name, f"{means[name]:.2f}", reference, f"{means[reference]:.2f}")
        print("| " + " | ".join((*cells, f"{found.ratio:.3f}", interval)) + " |", flush=True)


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--proxy",
        type=named_path,
        action="append",
        required=True,
        metavar="NAME=PATH",
        help="a waystage binary; the others are compared with the first one",
    )
    parser.add_argument("--twemproxy", action="store_true", help="compare all of these with twemproxy")
    parser.add_argument(
        "--peer",
        type=named,
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="and with this program",
    )
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        choices=FEATURES,
        help="compare the first --proxy with itself",
    )
    parser.add_argument(
        "--generator", metavar="PATH", help="the waystage binary that generates the load [the first --proxy]"
    )
    parser.add_argument("--blocks", type=int, default=10, help="blocks of each workload [10]")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help=f"[{', '.join(DEFAULT)}]")
    arguments = parser.parse_args()
    names = [name for name, _ in (*arguments.proxy, *arguments.peer)] + arguments.feature
    if len(set(names)) + arguments.twemproxy < 2 or len(set(names)) < len(names) or arguments.blocks < 1:
        parser.error("give two or more proxies with different names, and one or more --blocks")
    if arguments.twemproxy and not find("nutcracker"):
        parser.error("--twemproxy: nutcracker is not installed")
    return arguments


def named(text: str) -> tuple[str, str]:
    """Split NAME=TEXT."""
    name, separator, rest = text.partition("=")
    if not (name and separator and rest):
        raise argparse.ArgumentTypeError(f"{text!r} has no name, as in old=/tmp/waystage")
    return name, rest


def named_path(text: str) -> tuple[str, str]:
    """Split NAME=PATH."""
    name, path = named(text)
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{path}: not a program")
    return name, path


if __name__ == "__main__":
    main()
