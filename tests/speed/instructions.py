"""Instructions and system calls of proxy, load generator and message service: run by `make bench-instructions`.

    instructions.py --proxy BINARY                       every workload
    instructions.py --proxy BINARY --workload pipeline   one of them
    instructions.py --proxy BINARY --feature rate-limit  without a feature of proxy_systems.py, and with it
    instructions.py --proxy BINARY --calls               system calls instead, counted by strace
    instructions.py --proxy BINARY --load                instructions of this binary's load generator instead
    instructions.py --proxy BINARY --messages            instructions of its message service instead

valgrind's callgrind counts the instructions in user space, so a busy machine does not change them much: only how many
requests share a turn of the event loop does. The binary must be built for it, because valgrind shows no vDSO:

    RUSTFLAGS='--cfg rustix_use_libc' cargo build --release --target-dir target/callgrind -p waystage \\
        --no-default-features --features proxy,load

Any release binary will do for the message service, because callgrind.py hides the vDSO from it. Under valgrind a
program is slow, so a turn of the event loop, or a batch of the message service, has more requests than usual. System
calls are counted at full speed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))
import callgrind
from callgrind import Counts
from message_instructions import WORKLOADS as MESSAGE_WORKLOADS
from message_instructions import MessageBench
from programs import WAYSTAGE
from proxy import WORKLOADS, Bench, Workload
from proxy_systems import FEATURES, System, waystage

# Requests that are counted, after a tenth as many that are not.
REQUESTS = {"get-128k": 2_000, "get-512k": 1_000, "multi-get-10": 5_000, "multi-get-50": 2_000}
REQUESTS_OTHERS = 20_000
MESSAGES = 4_000
CALL = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


def instructions(bench: Bench, system: System, workload: Workload, folder: Path) -> Counts:
    """Return the instructions per request."""
    command = callgrind.command(folder, list(system.command))
    with ExitStack() as stack:
        proxy = bench.start(replace(system, command=command), stack)
        bench.run(proxy, replace(workload, requests=max(workload.requests // 10, workload.clients)))
        with callgrind.counted(proxy.pid, folder, workload.requests) as found:
            bench.run(proxy, workload)
    return found[0]


def load_instructions(bench: Bench, system: System, workload: Workload, folder: Path) -> Counts:
    """Return the instructions per request of the load generator: those of a run beyond those of a shorter one."""
    short, long = workload.requests // 4, workload.requests
    parts: dict[str, float] = {}
    with ExitStack() as stack:
        proxy = bench.start(system, stack)
        for requests, sign in ((short, -1), (long, 1)):
            arguments = [*workload.load, "--requests", str(requests), "--server", f"127.0.0.1:{proxy.port}"]
            # It exits with 1 if it sent too late, as it does under valgrind.
            command = callgrind.command(folder, [system.command[0], "load", *arguments])
            subprocess.run(command, check=False, capture_output=True)
            counted = callgrind.read(folder / callgrind.FILE, 1)
            for name, count in (("", counted.total), *counted.parts):
                parts[name] = parts.get(name, 0.0) + sign * count / (long - short)
    whole = parts.pop("")
    return Counts(whole, sorted(parts.items(), key=lambda part: -part[1]))


def calls(bench: Bench, system: System, workload: Workload, folder: Path) -> Counts:
    """Return the system calls per request."""
    out = folder / "strace.out"
    with ExitStack() as stack:
        proxy = bench.start(system, stack)
        bench.run(proxy, replace(workload, requests=max(workload.requests // 10, workload.clients)))
        tracer = subprocess.Popen(
            ["strace", "-f", "-c", "-o", str(out), "-p", str(proxy.pid)], stderr=subprocess.DEVNULL
        )
        # It attaches to every thread.
        time.sleep(0.5)
        bench.run(proxy, workload)
        tracer.terminate()
        tracer.wait()
    lines = map(CALL.match, out.read_text().splitlines())
    parts = [(line[2], int(line[1]) / workload.requests) for line in lines if line and line[2] != "total"]
    return Counts(sum(count for _, count in parts), sorted(parts, key=lambda part: -part[1]))


def main() -> None:
    """Print the counts of each workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxy", required=True, help="a binary that was built as above")
    parser.add_argument(
        "--generator", default=str(WAYSTAGE), help=f"the waystage binary that generates the load [{WAYSTAGE}]"
    )
    parser.add_argument(
        "--workload", action="append", choices=[*WORKLOADS, *MESSAGE_WORKLOADS], help="[all of the program]"
    )
    parser.add_argument(
        "--feature", action="append", default=[], choices=FEATURES, help="also with this feature"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="runs of each workload and feature, one after the other in turn [1]",
    )
    parser.add_argument("--calls", action="store_true", help="count system calls")
    parser.add_argument("--load", action="store_true", help="count instructions of the load generator")
    parser.add_argument("--messages", action="store_true", help="count instructions of the message service")
    parser.add_argument(
        "--operations", type=int, default=MESSAGES, help=f"operations of the message service [{MESSAGES}]"
    )
    parser.add_argument("--top", type=int, default=0, help="also print this many functions or calls [0]")
    arguments = parser.parse_args()
    count = calls if arguments.calls else load_instructions if arguments.load else instructions
    needed = "strace" if arguments.calls else "valgrind"
    if not shutil.which(needed):
        parser.error(f"{needed} is not installed")
    if arguments.messages:
        of_messages(arguments)
        return
    with ExitStack() as stack:
        bench = Bench(stack, arguments.generator)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workloads = {name: WORKLOADS[name] for name in arguments.workload or WORKLOADS}
        for feature in ("", *arguments.feature):
            # With the feature, because it can change the keys.
            same = waystage(f"fill-{feature}", arguments.proxy, bench.servers, bench.folder, feature)
            with ExitStack() as filling:
                filler = bench.start(same, filling)
                for fill in {workload.fill for workload in workloads.values()}:
                    bench.run(filler, fill)
        unit = "system calls" if arguments.calls else "instructions"
        for title, workload in workloads.items():
            counted = replace(workload, requests=REQUESTS.get(title, REQUESTS_OTHERS))
            found: dict[str, list[Counts]] = {feature: [] for feature in ("", *arguments.feature)}
            for run in range(arguments.runs):
                for feature, counts in found.items():
                    name = f"{title}-{feature or 'plain'}-{run}"
                    system = waystage(name, arguments.proxy, bench.servers, bench.folder, feature)
                    counts.append(count(bench, system, counted, folder))
            plain = mean(counts.total for counts in found[""])
            for feature, counts in found.items():
                totals = [one.total for one in counts]
                spread = f", {min(totals):.0f} to {max(totals):.0f}" if len(totals) > 1 else ""
                beside = f", {mean(totals) / plain:.3f} {feature}" if feature else ""
                show(
                    title,
                    replace(counts[-1], total=mean(totals)),
                    f"{unit} per request{spread}{beside}",
                    arguments.top,
                )


def of_messages(arguments: argparse.Namespace) -> None:
    """Print the counts of each workload of the message service."""
    for title in arguments.workload or MESSAGE_WORKLOADS:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ws-")))
            bench = MessageBench(stack, str(Path(arguments.proxy).absolute()), folder)
            found, together = bench.instructions(MESSAGE_WORKLOADS[title], arguments.operations)
            unit = (
                f"instructions per operation, {together:.1f} requests per batch"
                if together
                else "instructions per second"
            )
            show(title, found, unit, arguments.top)


def show(title: str, counts: Counts, unit: str, top: int) -> None:
    """Print the counts of a workload, and its most expensive parts."""
    print(f"{title:14} {counts.total:10.2f} {unit}", flush=True)
    for part, value in counts.parts[:top]:
        print(f"{'':14} {value:10.2f}  {part}")


if __name__ == "__main__":
    main()
