"""What io_uring would save the proxy: CPU time per request of a bare relay with two drivers, and of the proxy.

    cargo build --release --manifest-path tests/speed/relay/Cargo.toml --target-dir target/relay
    relay.py --proxy target/release/waystage --relay target/relay/release/relay

The relay (tests/speed/relay) has epoll and io_uring as its drivers, with the same work between them. `-busy` is a relay
that multiplies numbers for each request, as long as the proxy works for it (`--work`): batches depend on how long a
turn takes, so its ratio is the estimate for the proxy. Programs take turns as in proxy.py (ABBA). The times are the
scheduler's, in nanoseconds, of all threads.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from programs import connect, free_ports
from proxy import READS, Bench, Proxy, Workload, measured
from proxy import report as print_rows
from proxy_systems import System, waystage

KEYS = 1000
RELAYS = ("epoll", "uring", "uring-fixed", "epoll-busy", "uring-busy")
# What is compared with what.
PAIRS = (
    ("uring", "epoll"),
    ("uring-fixed", "epoll"),
    ("epoll-busy", "proxy"),
    ("uring-busy", "epoll-busy"),
)


@dataclass(frozen=True)
class Case:
    """A workload, its number of servers, and the multiplications that make the relay as slow as the proxy."""

    workload: Workload
    servers: int
    work: int


CASES = {
    "get": Case(Workload(READS, 20_000, 64, keys=KEYS), 3, 700),
    "servers-100": Case(Workload(READS, 20_000, 64, keys=KEYS), 100, 1300),
    "servers-200": Case(Workload(READS, 20_000, 64, keys=KEYS), 200, 1300),
    "pipeline": Case(Workload((*READS, "--pipeline", "16"), 40_000, 64, keys=KEYS), 3, 650),
    "clients-1000": Case(Workload(READS, 40_000, 1000, keys=KEYS), 3, 700),
}


class Process(Proxy):
    """A running program, timed by the scheduler."""

    def cpu_s(self) -> float:
        """Return the CPU time so far of all its threads, also of those that the kernel adds for io_uring."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def main() -> None:
    """Print the ratio of each pair, for each case, as a table in Markdown."""
    arguments = parse()
    print("| case | program | us | beside | us | ratio | 95 % interval |")
    print("|---|---|---:|---|---:|---:|---|", flush=True)
    for title in arguments.case or CASES:
        case = CASES[title]
        if arguments.work is not None:
            case = replace(case, work=arguments.work)
        with ExitStack() as stack:
            report(title, case, Bench(stack, arguments.proxy, case.servers), arguments)


def report(title: str, case: Case, bench: Bench, arguments: argparse.Namespace) -> None:
    """Measure one case, and print its rows, and on standard error the calls of the relays."""
    fill(bench, case.workload)
    servers = ",".join(bench.servers)
    bench.start(waystage("proxy", arguments.proxy, bench.servers, bench.folder))
    for name in RELAYS:
        (port,) = free_ports(1)
        driver, is_busy = name.removesuffix("-busy"), name.endswith("-busy")
        command = [arguments.relay, driver, str(port), servers, str(case.work if is_busy else 0)]
        bench.start(System(name, port, command))
    bench.proxies = {name: Process(proxy.pid, proxy.port) for name, proxy in bench.proxies.items()}
    before = {name: counts(proxy) for name, proxy in bench.proxies.items() if name != "proxy"}
    times = measured(bench, case.workload, arguments.blocks)
    requests = 2 * arguments.blocks * case.workload.requests
    for name, first in before.items():
        last = counts(bench.proxies[name])
        each = [f"{(new - old) / requests:.3f}" for old, new in zip(first, last, strict=True)]
        print(f"{title} {name}: turns, receives, sends for each request: {' '.join(each)}", file=sys.stderr)
    print_rows(title, times, PAIRS)


def fill(bench: Bench, workload: Workload) -> None:
    """Write all keys to every server, because the proxy and the relay distribute keys differently."""
    ports = [int(server.rpartition(":")[2]) for server in bench.servers]
    bench.run(Proxy(1, ports[0]), workload.fill)
    sets = b""
    with connect(ports[0]) as first, first.makefile("rb") as replies:
        for number in range(workload.keys):
            first.sendall(b"get %d-%d\r\n" % (workload.value_bytes, number))
            header = replies.readline().split()
            value = replies.read(workload.value_bytes + 2)
            if replies.readline() != b"END\r\n":
                sys.exit(f"bench-relay: no value to copy: {header}")
            sets += b"set %b %b 0 %d noreply\r\n%b" % (header[1], header[2], workload.value_bytes, value)
    for port in ports:
        with connect(port) as server:
            server.sendall(sets + b"version\r\n")
            server.recv(1024)


def counts(proxy: Proxy) -> list[int]:
    """Return how often a relay has waited, received and sent."""
    with connect(proxy.port) as client, client.makefile("rb") as lines:
        client.sendall(b"counts\r\n")
        return [int(word) for word in lines.readline().split()]


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxy", required=True, help="the waystage binary, which also generates the load")
    parser.add_argument("--relay", required=True, help="the relay")
    parser.add_argument("--blocks", type=int, default=12, help="blocks of each case [12]")
    parser.add_argument("--case", action="append", choices=CASES, help="[all]")
    parser.add_argument("--work", type=int, help="multiplications of the busy relays [those of the case]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
