"""The speed of the models, compared with other programs: run by `make bench-models`; no limit is enforced.

Side by side in one run, in mirrored blocks (ours, theirs, theirs, ours), by CPU time. A program that is not installed
is left out, with a note: GNU Octave with its package `queueing`, and Ciw.
"""

import importlib.util
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from waylab.analysis.statistics import paired_ratio
from waylab.models import (
    JobClass,
    Network,
    Service,
    Station,
    closed_network,
    open_network,
    solve,
    write_network,
)
from waylab.models.solvers.variants import closed_throughput

ROOT = Path(__file__).parents[2]
WAYSTAGE = ROOT / "target/release/waystage"
BLOCKS = 5


def main() -> None:
    """Print every comparison."""
    octave()
    what_if()
    simulator_alone()
    ciw()


def a16() -> Network:
    """A16's network: 171 readers and 9 writers, a balancer, five stations of 32 servers and five of one."""
    readers = tuple(Station(f"reader{number}", {"get": 3.014e-3}, servers=32) for number in range(5))
    writers = tuple(Station(f"writer{number}", {"set": 3.11e-3}) for number in range(5))
    return Network(
        (JobClass("get", 171, Service(5.654e-3)), JobClass("set", 9, Service(5.712e-3))),
        (Station("balancer", {"get": 3.9e-6, "set": 3.9e-6}), *readers, *writers),
        {
            "get": {"balancer": 1.0} | {station.name: 0.2 for station in readers},
            "set": {"balancer": 1.0} | {station.name: 0.2 for station in writers},
        },
    )


OCTAVE = """
pkg load queueing
warning off
S = ones(2, 1) * [3.9e-6 3.014e-3*ones(1,5) 3.11e-3*ones(1,5)];
V = [1 .2*ones(1,5) zeros(1,5); 1 zeros(1,5) .2*ones(1,5)];
start = cputime;
[U R Q X] = qncmmva([171 9], S, V, [1 32*ones(1,5) ones(1,5)], [5.654e-3 5.712e-3]);
printf('%.9g %.9g\\n', cputime - start, X(1,1));
"""


def octave() -> None:
    """A16's network against Octave's exact mean-value analysis."""
    program = shutil.which("octave-cli")
    if not program:
        print("A16 network against Octave: octave-cli is not installed")
        return
    network = a16()

    def ours() -> tuple[float, float]:
        begun_s = time.process_time()
        for _ in range(20):
            result = solve(network, "convolution")
        return (time.process_time() - begun_s) / 20, float(result.throughput_per_s[0])

    def theirs() -> tuple[float, float]:
        command = [program, "--no-gui", "--quiet", "--eval", OCTAVE]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return float(output[0]), float(output[1])

    compare("A16 network, seconds of CPU time", "convolution", ours, "Octave qncmmva", theirs)


def what_if() -> None:
    """Ten thousand variants of ten stations and a hundred customers."""
    demands_s = np.random.default_rng(1).uniform(0.001, 0.02, (10_000, 10))
    times_s = []
    for _ in range(5):
        begun_s = time.process_time()
        closed_throughput(demands_s, 100, 0.1)
        times_s.append(time.process_time() - begun_s)
    print(f"10 000 variants, 10 stations, 100 customers: {min(times_s):.3f} to {max(times_s):.3f} s")


def simulate(network: Network, requests: int) -> tuple[float, float]:
    """CPU seconds per event on one core, and the mean response time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        write_network(network, path)
        command = [str(WAYSTAGE), "simulate", str(path), "--threads", "1", "--replications", "2"]
        command += ["--requests", str(requests), "--warm-up", "10000", "--seed", "1", "--json"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    content = json.loads(output)
    return content["cpu_s"] / content["events"], content["classes"][0]["response_s"]["mean"]


def simulator_alone() -> None:
    """Events per second of one core."""
    for name, network in (
        ("M/M/1 at 0.8", open_network({"a": 1.0}, 0.8)),
        ("M/M/4 at 0.8", open_network({"a": 1.0}, 3.2, {"a": 4})),
        ("closed, 100 customers, four servers", closed_network({"a": 1.0}, 100, 10.0, {"a": 4})),
    ):
        rates = sorted(1 / simulate(network, 2_000_000)[0] / 1e6 for _ in range(5))
        print(f"simulate, {name}: median {rates[2]:.1f} million events/s ({rates[0]:.1f} to {rates[-1]:.1f})")


def ciw() -> None:
    """The same two models in Ciw; an event there is an arrival or an end of service too."""
    if not importlib.util.find_spec("ciw"):
        print("simulate against Ciw: the Python package ciw is not installed")
        return
    import ciw as other  # noqa: PLC0415

    def theirs(parameters: dict[str, object], until: float) -> Callable[[], tuple[float, float]]:
        def run() -> tuple[float, float]:
            simulation = other.Simulation(other.create_network(**parameters))
            begun_s = time.process_time()
            simulation.simulate_until_max_time(until)
            elapsed_s = time.process_time() - begun_s
            records = simulation.get_all_records()
            last = max(record.node for record in records)
            # The last node is the queue; in the closed network the first one is where customers think.
            times = [r.waiting_time + r.service_time for r in records if r.node == last]
            return elapsed_s / (2 * len(records)), float(np.mean(times))

        return run

    exponential = other.dists.Exponential
    open_queue = {
        "arrival_distributions": [exponential(3.2)],
        "service_distributions": [exponential(1.0)],
        "number_of_servers": [4],
    }
    compare(
        "M/M/4 at 0.8, seconds per event",
        "waystage simulate",
        lambda: simulate(open_network({"a": 1.0}, 3.2, {"a": 4}), 1_000_000),
        "Ciw",
        theirs(open_queue, 1000.0),
    )
    # A closed network: 100 customers go round a delay and a queue of four servers for ever.
    closed_queue = {
        "arrival_distributions": [other.dists.Sequential([1e-9] * 100 + [float("inf")]), None],
        "service_distributions": [exponential(0.1), exponential(1.0)],
        "number_of_servers": [float("inf"), 4],
        "routing": [[0.0, 1.0], [1.0, 0.0]],
    }
    compare(
        "closed, 100 customers, four servers, seconds per event",
        "waystage simulate",
        lambda: simulate(closed_network({"a": 1.0}, 100, 10.0, {"a": 4}), 1_000_000),
        "Ciw",
        theirs(closed_queue, 500.0),
    )


def compare(
    what: str,
    our_name: str,
    ours: Callable[[], tuple[float, float]],
    their_name: str,
    theirs: Callable[[], tuple[float, float]],
) -> None:
    """Measure both in mirrored blocks; the ratio of each block is one observation."""
    ratios, costs = [], []
    for _ in range(BLOCKS):
        block = [ours(), theirs(), theirs(), ours()]
        mine, other = (block[0][0] + block[3][0]) / 2, (block[1][0] + block[2][0]) / 2
        ratios.append(math.log(other / mine))
        costs.append((mine, other))
    ratio = paired_ratio(ratios)
    mine, other = np.median(costs, axis=0)
    print(
        f"{what}: {our_name} {mine:.3g}, {their_name} {other:.3g}, "
        f"{ratio['ratio']:.0f} times faster [{ratio['low']:.0f}, {ratio['high']:.0f}]; "
        f"they return {block[0][1]:.6g} and {block[1][1]:.6g}"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
