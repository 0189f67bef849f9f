"""Instructions and system calls of the proxy and the load generator per request: run by `make bench-instructions`.

    instructions.py --proxy BINARY                       every workload
    instructions.py --proxy BINARY --workload pipeline   one of them
    instructions.py --proxy BINARY --feature shared-32   with a feature of proxy_systems.py
    instructions.py --proxy BINARY --calls               system calls instead, counted by strace
    instructions.py --proxy BINARY --load                instructions of this binary's load generator instead

valgrind's callgrind counts the instructions in user space, so a busy machine does not change them much: only how many
requests share a turn of the event loop does. The binary must be built for it, because valgrind shows no vDSO:

    RUSTFLAGS='--cfg rustix_use_libc' cargo build --release --target-dir target/callgrind -p waystage \\
        --no-default-features --features proxy

Under valgrind the proxy is slow and a turn has more requests than usual. System calls are counted at full speed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from programs import WAYSTAGE
from proxy import WORKLOADS, Bench, Workload
from proxy_systems import FEATURES, System, waystage

# Requests that are counted, after a tenth as many that are not.
REQUESTS = {"get-128k": 2_000, "get-512k": 1_000, "multi-get-10": 5_000, "multi-get-50": 2_000}
REQUESTS_OTHERS = 20_000
FUNCTION = re.compile(r"^\s*([\d,]+) \([ \d.]+%\)\s+\S*?:(.+?)(?: \[.*\])?$")
TOTAL = re.compile(r"^\s*([\d,]+) \([ \d.]+%\)\s+PROGRAM TOTALS")
CALL = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


@dataclass(frozen=True)
class Counts:
    """What one request needs, in total and by function or system call."""

    total: float
    parts: list[tuple[str, float]]


def instructions(bench: Bench, system: System, workload: Workload, folder: Path) -> Counts:
    """Return the instructions per request."""
    out = folder / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *system.command]
    with ExitStack() as stack:
        proxy = bench.start(replace(system, command=command), stack)
        bench.run(proxy, replace(workload, requests=max(workload.requests // 10, workload.clients)))
        subprocess.run(["callgrind_control", "--zero", str(proxy.pid)], check=True, capture_output=True)
        bench.run(proxy, workload)
        subprocess.run(["callgrind_control", "--dump=all", str(proxy.pid)], check=True, capture_output=True)
        (dump,) = (path for path in folder.glob("callgrind.out.*") if path.suffix.lstrip(".").isdigit())
        text = subprocess.run(
            ["callgrind_annotate", "--auto=no", "--threshold=100", str(dump)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        dump.unlink()
    return parsed(text, FUNCTION, TOTAL, workload.requests)


def load_instructions(bench: Bench, system: System, workload: Workload, folder: Path) -> Counts:
    """Return the instructions per request of the load generator: those of a run beyond those of a shorter one."""
    short, long = workload.requests // 4, workload.requests
    parts: dict[str, float] = {}
    with ExitStack() as stack:
        proxy = bench.start(system, stack)
        for requests, sign in ((short, -1), (long, 1)):
            out = folder / "callgrind.load"
            arguments = [*workload.load, "--requests", str(requests), "--server", f"127.0.0.1:{proxy.port}"]
            binary = system.command[0]
            command = [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={out}",
                binary,
                "load",
                *arguments,
            ]
            # It exits with 1 if it sent too late, as it does under valgrind.
            subprocess.run(command, check=False, capture_output=True)
            annotate = ["callgrind_annotate", "--auto=no", "--threshold=100", str(out)]
            text = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
            out.unlink()
            counted = parsed(text, FUNCTION, TOTAL, 1)
            for name, count in (("", counted.total), *counted.parts):
                parts[name] = parts.get(name, 0.0) + sign * count / (long - short)
    whole = parts.pop("")
    return Counts(whole, sorted(parts.items(), key=lambda part: -part[1]))


def parsed(text: str, function: re.Pattern[str], total: re.Pattern[str], requests: int) -> Counts:
    """Read the counts of callgrind_annotate."""
    parts: dict[str, float] = {}
    whole = 0.0
    for line in text.splitlines():
        if found := total.match(line):
            whole = number(found[1]) / requests
        elif found := function.match(line):
            name = found[2].strip()
            parts[name] = parts.get(name, 0.0) + number(found[1]) / requests
    # The first functions of the event loop have the counts of all that they call, because counting began within them.
    own = ((name, count) for name, count in parts.items() if count < whole)
    return Counts(whole, sorted(own, key=lambda part: -part[1]))


def number(text: str) -> int:
    """Read a number with commas."""
    return int(text.replace(",", ""))


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
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="[all]")
    parser.add_argument("--feature", choices=FEATURES, default="")
    parser.add_argument("--calls", action="store_true", help="count system calls")
    parser.add_argument("--load", action="store_true", help="count instructions of the load generator")
    parser.add_argument("--top", type=int, default=0, help="also print this many functions or calls [0]")
    arguments = parser.parse_args()
    count = calls if arguments.calls else load_instructions if arguments.load else instructions
    needed = "strace" if arguments.calls else "valgrind"
    if not shutil.which(needed):
        parser.error(f"{needed} is not installed")
    with ExitStack() as stack:
        bench = Bench(stack, arguments.generator)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workloads = {name: WORKLOADS[name] for name in arguments.workload or WORKLOADS}
        plain = waystage("fill", arguments.proxy, bench.servers, bench.folder)
        with ExitStack() as filling:
            filler = bench.start(plain, filling)
            for fill in {workload.fill for workload in workloads.values()}:
                bench.run(filler, fill)
        unit = "system calls" if arguments.calls else "instructions"
        for title, workload in workloads.items():
            counted = replace(workload, requests=REQUESTS.get(title, REQUESTS_OTHERS))
            name = f"{title}-{arguments.feature or 'plain'}"
            system = waystage(name, arguments.proxy, bench.servers, bench.folder, arguments.feature)
            found = count(bench, system, counted, folder)
            print(f"{title:14} {found.total:10.2f} {unit} per request", flush=True)
            for part, value in found.parts[: arguments.top]:
                print(f"{'':14} {value:10.2f}  {part}")


if __name__ == "__main__":
    main()
