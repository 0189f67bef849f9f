"""CPU time and response times of a send and of a pop in two builds of the message service; no limit is enforced.

    message_cpu.py --baseline OLD --candidate NEW

Each build has one thread and a PostgreSQL of its own, whose CPU time does not count. In every block, the builds send
and pop in turn and back again (ABBA), over one connection and over sixteen. Bodies have 200 bytes. A response time is
the client's, so it contains the client's own work and the commit.
"""

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from message_instructions import QUEUE, Client, do_with, started

from waylab.analysis.statistics.pairs import log_ratios, paired_ratio

CONNECTIONS = (1, 16)
OPERATIONS = ("send", "pop")
# A candidate is no worse if it is certainly not more expensive by more than this.
MARGIN = 0.02


@dataclass
class Measured:
    """What one build needed for one kind of operation, in the two measurements of a block."""

    cpu_us: list[float] = field(default_factory=list)
    times_us: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the CPU time of an operation and percentiles of the response time, in microseconds."""
        p50, p99 = np.percentile(self.times_us, (50, 99))
        return {"CPU time": sum(self.cpu_us) / len(self.cpu_us), "p50": float(p50), "p99": float(p99)}


def main() -> None:
    """Print the means of both builds over all blocks, and the ratio with its 95 % interval."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--baseline", required=True, metavar="FILE", help="the build that the other is divided by"
    )
    parser.add_argument("--candidate", required=True, metavar="FILE", help="the build to judge")
    parser.add_argument("--blocks", type=int, default=10, help="number of blocks [10]")
    parser.add_argument("--operations", type=int, default=1500, help="operations of each measurement [1500]")
    arguments = parser.parse_args()
    kinds = [(operation, connections) for connections in CONNECTIONS for operation in OPERATIONS]
    found: dict[tuple[str, int], tuple[list[Measured], list[Measured]]] = {kind: ([], []) for kind in kinds}
    with ExitStack() as stack:
        services = [service(stack, program) for program in (arguments.baseline, arguments.candidate)]
        for block in range(arguments.blocks):
            print(f"block {block + 1} of {arguments.blocks}", flush=True)
            for builds in found.values():
                for build in builds:
                    build.append(Measured())
            for connections in CONNECTIONS:
                for build in (0, 1, 1, 0):
                    for operation in OPERATIONS:
                        measured = found[operation, connections][build][-1]
                        measure(services[build], operation, connections, arguments.operations, measured)
    for (operation, connections), (baseline, candidate) in found.items():
        for name in baseline[0].figures():
            values = [[block.figures()[name] for block in build] for build in (baseline, candidate)]
            print(f"{operation}, {connections} connections, {name}: {compared(values[0], values[1])}")


def compared(baseline: list[float], candidate: list[float]) -> str:
    """Return the means of both builds in microseconds, and their ratio; one value for each block."""
    ratio = paired_ratio(log_ratios(baseline, candidate), MARGIN, better=-1)
    means = [sum(values) / len(values) for values in (baseline, candidate)]
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio.low and ratio.high else ratio.reason
    verdict = {True: "", False: " not"}.get(ratio.no_worse)
    shown = "" if verdict is None else f"; worse by at most {MARGIN:.0%}:{verdict} shown"
    return f"{means[0]:.1f} and {means[1]:.1f} us, ratio {ratio.ratio:.3f} ({interval}){shown}"


def service(stack: ExitStack, program: str) -> tuple[int, str]:
    """Start a build with a queue, and warm it up; return its process id and address."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="waystage-cpu-")))
    # PostgreSQL runs as another user, who must get through.
    folder.chmod(0o755)
    pid, address = stack.enter_context(started([program, "messages", "--threads", "1", "--embedded"], folder))
    client = Client(address)
    client.call(QUEUE, method="PUT")
    client.close()
    for operation in OPERATIONS:
        do_with(address, operation, 8, 400)
    return pid, address


def measure(
    running: tuple[int, str], operation: str, connections: int, operations: int, measured: Measured
) -> None:
    """Do operations; add their response times, and the CPU time of the service for each of them."""
    pid, address = running
    before = used_ns(pid)
    times_ns = do_with(address, operation, connections, operations)
    measured.cpu_us.append((used_ns(pid) - before) / operations / 1e3)
    measured.times_us.extend(time_ns / 1e3 for time_ns in times_ns)


def used_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads)


if __name__ == "__main__":
    main()
