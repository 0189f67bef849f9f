"""Synthetic tables of trials from a closed chain that is known, with noise."""

import csv
import math

import numpy as np

from waylab.models import ClosedBirthDeath

HEADING = (
    "repository,experiment,servers,middlewares,workers_per_middleware,client_machines,clients_total,workload,"
    "writes_share,multiget_keys,sharded,value_bytes,repetition,throughput_clients_per_s,"
    "throughput_middleware_per_s,response_clients_ms_mean,response_middleware_ms_mean,"
    "response_middleware_ms_p95,queue_ms_mean,worker_ms_mean,note"
).split(",")
THINK_S = 2e-3


def holding_s(busy, servers=1):
    """How long a worker is held: constant at first, then the server's rate limits it."""
    return ((1.5e-3) ** 3 + (busy / (8000 * servers)) ** 3) ** (1 / 3)


def truth(workers, clients, middlewares=1, servers=1):
    """Throughput, time inside and holding time of the chain."""
    slots = workers * middlewares
    rates = [n / holding_s(n, servers) for n in range(1, min(slots, clients) + 1)]
    queue = ClosedBirthDeath(clients, THINK_S, rates)
    return queue.throughput_per_s, queue.response_mean_s, queue.busy_mean / queue.throughput_per_s


def trial(workers, clients, noise=0.0, repetition=1, middlewares=1, servers=1, **changes):
    """One row of a table; `noise` multiplies rate and times."""
    rate, inside_s, held_s = truth(workers, clients, middlewares, servers)
    rate *= math.exp(noise)
    inside_s, held_s = clients / rate - THINK_S, held_s * math.exp(-noise)
    return dict.fromkeys(HEADING, "") | {
        "repository": "made",
        "experiment": f"servers{servers}",
        "servers": servers,
        "middlewares": middlewares,
        "workers_per_middleware": workers,
        "client_machines": 1,
        "clients_total": clients,
        "workload": "read",
        "writes_share": 0,
        "value_bytes": 1024,
        "repetition": repetition,
        "throughput_clients_per_s": rate,
        "throughput_middleware_per_s": rate,
        "response_clients_ms_mean": 1e3 * clients / rate,
        "response_middleware_ms_mean": 1e3 * inside_s,
        "response_middleware_ms_p95": 1.7e3 * inside_s,
        "queue_ms_mean": 1e3 * max(inside_s - held_s, 0),
        "worker_ms_mean": 1e3 * held_s,
        **changes,
    }


def trials(
    pools=(8, 16, 32, 64), clients=(4, 8, 16, 32, 64, 128), noise=0.01, seed=1, repetitions=2, **changes
):
    """Rows of every combination, each with its own noise."""
    generator = np.random.default_rng(seed)
    return [
        trial(workers, count, noise * generator.standard_normal(), repetition, **changes)
        for workers in pools
        for count in clients
        for repetition in range(1, repetitions + 1)
    ]


def write(path, rows, heading=HEADING):
    """Write rows as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, heading, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path
