"""Compare the hit ratios that `waystage memory` predicts with those of a real memcached, and print a table.

    memory_accuracy.py                                  # all cases with -m 64; takes some minutes
    memory_accuracy.py --memory 64 128 256 --requests 4000000 --keys 2000000

For each case, a client reads keys and stores the values of those that miss. It notes what it sent as a trace, with the
second of each request. `waystage memory` computes the hit ratio of this trace. `plain LRU` is the same prediction with
`--policy lru`, which knows no slab classes. `sampled` simulates a part of the keys. `automove` is memcached with its
default options, in which pages move between classes; the model does not do that. The predictions of a case are from
the trace of one run, the one with the least memory. With a time to live, each is from the trace of its own run.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from programs import WAYSTAGE

BATCH = 256
FIXED_SLABS = ["-o", "no_slab_automove"]
# The cases of the table: popularity, sizes, time to live in seconds.
CASES = [
    ("uniform", "fixed", 0),
    ("zipf:0.7", "fixed", 0),
    ("zipf:0.99", "fixed", 0),
    ("zipf:1.2", "fixed", 0),
    ("scans", "fixed", 0),
    ("zipf:0.7", "etc", 0),
    ("zipf:0.99", "etc", 0),
    ("zipf:0.99", "bimodal", 0),
    ("zipf:0.99", "shifting", 0),
    ("scans", "etc", 0),
    ("uniform", "fixed", 1),
    ("zipf:0.99", "fixed", 1),
    ("zipf:0.99", "etc", 1),
]


@dataclass(frozen=True)
class Workload:
    """The keys of all requests, and the size of the value of each key."""

    keys: np.ndarray
    sizes: np.ndarray
    ttl_s: int


def workload(pattern: str, sizes: str, ttl_s: int, *, keys: int, requests: int, seed: int = 1) -> Workload:
    """Draw the requests of a case."""
    random = np.random.default_rng(seed)
    name, _, exponent = pattern.partition(":")
    if name == "uniform":
        drawn = random.integers(0, keys, requests)
    else:
        weights = np.arange(1, keys + 1) ** -float(exponent or 0.99)
        drawn = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(requests))
        # The number of a key must not depend on its popularity, because the sizes follow the numbers.
        drawn = random.permutation(keys)[np.minimum(drawn, keys - 1)]
    if name == "scans":
        # Every eighth block of 4096 requests reads keys that are read once only.
        in_scan = np.arange(requests) // 4096 % 8 == 7
        drawn = np.where(in_scan, keys + np.arange(requests), drawn)
    if sizes == "shifting":
        # The second half of the requests is for other keys, whose values are larger.
        drawn[requests // 2 :] += keys
        return Workload(drawn, np.where(np.arange(2 * keys) < keys, 100, 1200), ttl_s)
    count = int(drawn.max()) + 1
    return Workload(drawn, value_sizes(sizes, count, random), ttl_s)


def value_sizes(name: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw a size for each key."""
    if name == "fixed":
        return np.full(count, 100)
    if name == "etc":
        # Values of Facebook's pool ETC: B. Atikoglu et al., SIGMETRICS 2012, section 5.2.
        pareto = 214.476 * ((1 - random.random(count)) ** -0.348238 - 1) / 0.348238
        return np.clip(pareto.astype(int), 1, 100_000)
    return np.where(random.random(count) < 0.9, 100, 4000)


@contextmanager
def memcached(memory: int, options: Iterable[str] = ()) -> Iterator[socket.socket]:
    """Start memcached with this many MiB, and connect to it."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/memcached.sock"
        command = ["memcached", "-u", "root", "-s", path, "-m", str(memory), "-t", "1", *options]
        server = subprocess.Popen(command)
        try:
            yield connected(path, server)
        finally:
            server.kill()
            server.wait()


def connected(path: str, server: subprocess.Popen[bytes]) -> socket.socket:
    """Connect as soon as the server listens."""
    for _ in range(500):
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(path)
        except OSError:
            client.close()
            assert server.poll() is None, "memcached ended"
            time.sleep(0.02)
        else:
            return client
    raise AssertionError("memcached does not listen")


def replay(work: Workload, client: socket.socket, trace: Path) -> float:
    """Read every key, and store it if it is missing. Write the trace, and return the hit ratio."""
    hits = 0
    payload = b"x" * (int(work.sizes.max()) + 1)
    replies = client.makefile("rb", buffering=1 << 16)
    begin = time.monotonic()
    with trace.open("w") as file:
        for start in range(0, len(work.keys), BATCH):
            batch = work.keys[start : start + BATCH].tolist()
            first = dict.fromkeys(batch)
            # A key that is in the batch twice is read again after its value was stored.
            seen = set()
            again = [key for key in batch if key in seen or seen.add(key)]
            second = int(time.monotonic() - begin)
            for keys in filter(None, (list(first), again)):
                hits += read_through(keys, work, client, replies, payload)
                file.writelines(
                    f"{second},{name(key)},11,{work.sizes[key]},0,get,{work.ttl_s}\n" for key in keys
                )
    return hits / len(work.keys)


def name(key: int) -> str:
    return f"k{key:010}"


def read_through(keys: list[int], work: Workload, client: socket.socket, replies, payload: bytes) -> int:
    """Read keys in one batch and store those that are missing; return the number of hits."""
    client.sendall(b"".join(b"mg k%010d\r\n" % key for key in keys))
    missing = [key for key in keys if replies.readline() == b"EN\r\n"]
    sets = []
    for key in dict.fromkeys(missing):
        size = int(work.sizes[key])
        sets.append(b"ms k%010d %d T%d\r\n%b\r\n" % (key, size, work.ttl_s, payload[:size]))
    if sets:
        # Batches of sets must fit into the buffers of both sockets, or the server would wait for this client.
        for at in range(0, len(sets), 32):
            client.sendall(b"".join(sets[at : at + 32]))
            for _ in sets[at : at + 32]:
                reply = replies.readline()
                assert reply in (b"HD\r\n", b"NS\r\n") or reply.startswith(b"SERVER_ERROR"), reply
    return len(keys) - len(missing)


def predict(trace: Path, memories: Iterable[int], *arguments: str) -> list[float]:
    """Return the hit ratios that `waystage memory` computes for these MiB."""
    sizes = ",".join(f"{memory}m" for memory in memories)
    command = [WAYSTAGE, "memory", trace, "--sizes", sizes, "--json", *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [point["hit_ratio"] for point in json.loads(printed)["points"]]


def measured(work: Workload, memory: int, trace: Path, options: Iterable[str]) -> float:
    """Return the hit ratio of a real memcached that begins empty."""
    with memcached(memory, options) as client, client:
        return replay(work, client, trace)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", type=int, nargs="+", default=[64], help="MiB")
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--samples", default="65536")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="numbers, from 0")
    arguments = parser.parse_args()
    errors = []
    print("| keys | sizes | TTL | `-m` | memcached | predicted | error | sampled | plain LRU | automove |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for pattern, sizes, ttl_s in [CASES[number] for number in arguments.cases]:
            work = workload(pattern, sizes, ttl_s, keys=arguments.keys, requests=arguments.requests)
            memories = sorted(arguments.memory)
            automove = [measured(work, memory, Path(folder) / "unused.csv", []) for memory in memories]
            traces = [Path(folder) / f"{memory}.csv" for memory in memories]
            runs = zip(memories, traces, strict=True)
            real = [measured(work, memory, trace, FIXED_SLABS) for memory, trace in runs]

            def predicted(*options: str, memories=memories, traces=traces, ttl_s=ttl_s) -> list[float]:
                # With expiry, the hits of a run depend on how fast it was.
                if ttl_s == 0:
                    return predict(traces[0], memories, *options)
                runs = zip(memories, traces, strict=True)
                return [ratio for memory, trace in runs for ratio in predict(trace, [memory], *options)]

            exact = predicted("--samples", "all")
            sampled = predicted("--samples", arguments.samples)
            plain = predicted("--samples", "all", "--policy", "lru")
            for memory, *ratios in zip(memories, real, exact, sampled, plain, automove, strict=True):
                error = 100 * (ratios[1] - ratios[0])
                errors.append(abs(error))
                cells = [f"{100 * ratio:.2f}" for ratio in ratios]
                cells = [
                    pattern,
                    sizes,
                    str(ttl_s or "-"),
                    str(memory),
                    *cells[:2],
                    f"{error:+.2f}",
                    *cells[2:],
                ]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nabsolute error in points: median {statistics.median(errors):.2f}, largest {max(errors):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
