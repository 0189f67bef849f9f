"""Layered and fork-join models drawn at random: the error and the CPU time of this library and of LINE 3.

Run by `make bench-models`; no limit is enforced. The truth is `waystage simulate` to half a percent. LINE runs in an
environment of its own; without one, only the errors of this library are printed.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from waylab.models import Fork, JobClass, Network, Pool, Route, Service, Station, simulate, solve

PEER = Path(__file__).parent / "peers/line.py"
PRECISION = 0.005
# CPU seconds for a model; beyond them LINE's iterations no longer approach a solution.
LIMIT_S = 60
OURS, THEIRS = "this library", "LINE"


@dataclass(frozen=True)
class Drawn:
    """Clients think and use a CPU, then hold a slot around servers: one after the other, or all at once (`fork`).

    Without slots there is no CPU, and a request is one leg at each server.
    """

    kind: str
    clients: int
    think_s: float
    cores: int
    cpu_s: float
    slots: int
    servers: tuple[tuple[float, int], ...]
    fork: bool

    @property
    def text(self) -> str:
        """The model in one line, times in ms."""
        inside = ", ".join(f"{1e3 * service_s:.1f} ms" + f" × {n}" * (n > 1) for service_s, n in self.servers)
        pool = f"{self.cores} cores of {1e3 * self.cpu_s:.1f} ms, {self.slots} slots, " if self.slots else ""
        return f"{self.clients} clients, think {1e3 * self.think_s:.0f} ms, {pool}servers {inside}"

    @property
    def network(self) -> Network:
        """The same in the description of this library."""
        names = tuple(f"server{number}" for number in range(len(self.servers)))
        stations = [
            Station(name, {"request": service_s}, servers=count)
            for name, (service_s, count) in zip(names, self.servers, strict=True)
        ]
        forks = (Fork("all", names),) if self.fork else ()
        inside = (*names, "all") if self.fork else names
        path = ["all"] if self.fork else list(names)
        pools = ()
        if self.slots:
            stations.insert(0, Station("cpu", {"request": self.cpu_s}, servers=self.cores, discipline="ps"))
            pools = (Pool("workers", self.slots, inside),)
            path.insert(0, "cpu")
        routes = tuple(Route("request", *pair) for pair in pairwise(["client", *path, "client"]))
        clients = JobClass("request", self.clients, Service(self.think_s))
        return Network((clients,), tuple(stations), routes=routes, forks=forks, pools=pools)


def draw(random: np.random.Generator, kind: str) -> Drawn:
    """A model of one kind: 2 to 100 clients, 2 to 4 servers of 1 to 20 ms, at most as many slots as clients."""
    clients = round(float(np.exp(random.uniform(np.log(2), np.log(100)))))
    servers = tuple(
        (round(float(np.exp(random.uniform(np.log(1e-3), np.log(20e-3)))), 4), int(random.integers(1, 3)))
        for _ in range(random.integers(2, 5))
    )
    think_s = float(random.choice([0.005, 0.02, 0.1]))
    cores, cpu_s = int(random.integers(1, 5)), round(float(random.uniform(0.5e-3, 8e-3)), 4)
    slots = int(random.integers(1, min(clients, 24) + 1))
    if kind == "fork-join":
        single = tuple((service_s, 1) for service_s, _ in servers)
        return Drawn(kind, clients, think_s, 0, 0.0, 0, single, True)
    return Drawn(kind, clients, think_s, cores, cpu_s, slots, servers, kind == "pool around a fork-join")


KINDS = ("pool around servers", "pool around a fork-join", "fork-join")


@dataclass(frozen=True)
class Answer:
    """What one program says of one model; `failure` instead of the numbers where it says nothing usable."""

    throughput_per_s: float = float("nan")
    response_s: float = float("nan")
    cpu_s: float = float("nan")
    failure: str = ""


def ours(drawn: Drawn) -> Answer:
    """This library, with the solver that it chooses."""
    begun_s = time.process_time()
    found = solve(drawn.network)
    return Answer(float(found.throughput_per_s[0]), float(found.response_s[0]), time.process_time() - begun_s)


def theirs(drawn: Drawn, python: str) -> Answer:
    """LINE: its layered solver over mean-value analysis, or its mean-value analysis of fork-joins."""
    command = [python, "-W", "ignore", str(PEER), str(LIMIT_S)]
    content = json.dumps(asdict(drawn))
    done = subprocess.run(command, input=content, capture_output=True, text=True, check=False)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Answer(failure=f"no answer after {LIMIT_S} CPU seconds")
    if done.returncode:
        return Answer(failure=done.stderr.strip().splitlines()[-1][:100] if done.stderr else "failed")
    answer = Answer(**json.loads(done.stdout.splitlines()[-1]))
    return answer if answer.throughput_per_s > 0 else Answer(failure="no throughput")


def compare(counts: dict[str, int], seed: int, python: str | None) -> list[str]:
    """Draw, simulate and solve; the rows of the table, and below it the worst case of each program."""
    random = np.random.default_rng(seed)
    ours(draw(np.random.default_rng(0), KINDS[1]))  # loads what is loaded late
    table = [
        "| models | solver | solved | error of throughput | error of response time | CPU seconds, median, largest |",
        "|---|---|---:|---:|---:|---:|",
    ]
    notes = []
    for kind, count in counts.items():
        found: dict[str, list[tuple[float, float, Drawn, Answer]]] = {OURS: [], THEIRS: []}
        failures = []
        for _ in range(count):
            drawn = draw(random, kind)
            truth = simulate(drawn.network, precision=PRECISION, threads=1)
            per_s, response_s = float(truth.throughput_per_s[0]), float(truth.response_s[0])
            answers = {OURS: ours(drawn)} | ({THEIRS: theirs(drawn, python)} if python else {})
            for name, answer in answers.items():
                if answer.failure:
                    failures.append(f"{name}, {drawn.text}: {answer.failure}")
                    continue
                errors = (abs(answer.throughput_per_s / per_s - 1), abs(answer.response_s / response_s - 1))
                found[name].append((*errors, drawn, answer))
            print(
                f"{kind}: {drawn.text}: simulated {per_s:.1f}/s, {1e3 * response_s:.2f} ms", file=sys.stderr
            )
            for name, answer in answers.items():
                print(f"    {name}: {answer}", file=sys.stderr, flush=True)
        for name, rows in found.items():
            if rows:
                table.append(row(kind, name, rows, count))
                worst = max(rows, key=lambda each: each[1])
                notes.append(f"- {kind}, {name}: {100 * worst[1]:.3g} % ({worst[2].text})")
        notes += [f"- {kind}, {failure}" for failure in failures]
    return [*table, "", "Worst error of response time, and models without an answer:", "", *notes]


def row(kind: str, name: str, rows: list[tuple[float, float, Drawn, Answer]], count: int) -> str:
    """Median, 90th percentile and largest errors of one program for one kind of models."""

    def percentages(column: int) -> str:
        values = [100 * each[column] for each in rows]
        return ", ".join(f"{value:.2g}" for value in (*np.quantile(values, [0.5, 0.9]), max(values))) + " %"

    seconds = [each[3].cpu_s for each in rows]
    cost = f"{np.median(seconds):.2g}, {max(seconds):.2g}"
    return f"| {kind} | {name} | {len(rows)} of {count} | {percentages(0)} | {percentages(1)} | {cost} |"


def main() -> None:
    """Print the table for docs/models.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", metavar="PYTHON", help="the Python of an environment with line-solver")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=12, help="of each kind")
    given = parser.parse_args()
    if not given.line:
        print("LINE is left out: give --line PYTHON of an environment with line-solver")
    print("\n".join(compare(dict.fromkeys(KINDS, given.models), given.seed, given.line)))


if __name__ == "__main__":
    main()
