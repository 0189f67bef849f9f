"""Files as other tools write them, with numbers that a test chooses."""

import json
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram

SAMPLES = Path(__file__).parents[1] / "samples"


def memtier(clients: int, rate_per_s: float, seconds: int = 10, seed: int = 1, **configuration) -> dict:
    """The JSON of memtier_benchmark for clients that follow the interactive law, with gamma response times."""
    count, mean_us = round(rate_per_s * seconds), 1e6 * clients / rate_per_s
    times = np.random.default_rng(seed).gamma(4.0, mean_us / 4.0, 2000)
    times *= mean_us / times.mean()
    parts = {"Sets": count // 11, "Gets": count - count // 11}
    stats = {name: _part(times, part, seconds) for name, part in [*parts.items(), ("Totals", count)]}
    per_second = {"Count": count // seconds, "Average Latency": mean_us / 1000, "p99.00": 3 * mean_us / 1000}
    stats["Totals"]["Time-Serie"] = {str(second): per_second for second in range(seconds)}
    start = 1_700_000_000_000 + 1_000_000 * seed + 1000 * clients
    stats["Runtime"] = {
        "Start time": start,
        "Finish time": start + 1000 * seconds,
        "Total duration": 1000 * seconds,
    }
    settings = {
        "clients": clients,
        "threads": 1,
        "ratio": "1:10",
        "pipeline": 1,
        "data_size": 32,
        "rate_limit": 0,
    }
    return {"configuration": settings | configuration, "run information": {"Threads": 1}, "ALL STATS": stats}


def _part(times, count: int, seconds: int) -> dict:
    histogram = HdrHistogram(1, 60_000_000, 3)
    each, rest = divmod(count, len(times))
    for index, time in enumerate(times):
        histogram.record_value(max(1, int(time)), each + (index < rest))
    percentiles = {
        f"p{share:.2f}": histogram.get_value_at_percentile(share) / 1000 for share in (50, 99, 99.9)
    }
    percentiles["Histogram log format"] = {"Compressed Histogram": histogram.encode().decode()}
    return {
        "Count": count,
        "Ops/sec": count / seconds,
        "Hits/sec": count / seconds,
        "Misses/sec": 0.0,
        "Average Latency": float(times.mean()) / 1000,
        "Connection Errors": 0,
        "Percentile Latencies": percentiles,
    }


def write_memtier(folder: Path, speed: float = 1.0, blocks: int = 2, seed: int = 0) -> list[Path]:
    """Files of memtier_benchmark with 2, 8, 32 and 64 clients, for a server that saturates near 10 000 requests/s."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for block in range(1, blocks + 1):
        for clients in (2, 8, 32, 64):
            rate = speed * (1 + 0.01 * block) * 10_000 * clients / (clients + 8)
            path = folder / f"clients={clients},block={block}.json"
            path.write_text(json.dumps(memtier(clients, rate, seed=seed + 7 * block + clients)))
            paths.append(path)
    return paths


def hlog(seconds: int = 8, per_second: int = 500, unit: int = 1, tag: str = "", scale: float = 1e6) -> str:
    """A log with an interval for each second; `unit` nanoseconds is a unit of a value."""
    lines = ["#[Histogram log format version 1.3]", "#[StartTime: 1700000000.000 (seconds since epoch)]"]
    lines += ['"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"']
    for second in range(seconds):
        histogram = HdrHistogram(1, 3_600_000_000_000 // unit, 3)
        for time_ns in np.random.default_rng(second).gamma(4.0, 500_000, per_second):
            histogram.record_value(int(time_ns / unit))
        largest = histogram.get_max_value() / (scale / unit)
        head = f"Tag={tag}," if tag else ""
        lines.append(f"{head}{second}.000,1.000,{largest:.3f},{histogram.encode().decode()}")
    return "\n".join(lines) + "\n"


TABLE_HEADING = (
    "experiment,workload,servers,middlewares,workers_per_middleware,client_machines,clients_total,writes_share,value_bytes,"
    "repetition,seconds_measured,throughput_clients_per_s,response_clients_ms_mean,throughput_middleware_per_s,"
    "response_middleware_ms_mean,worker_ms_mean,note"
)


def table(pools=(8, 16, 32), clients=(6, 12, 24, 48, 96), repetitions=(1, 2)) -> str:
    """A table of trials of one middleware with a pool of workers in front of one server."""
    rows = [TABLE_HEADING]
    for pool in pools:
        for count in clients:
            for repetition in repetitions:
                inside = min(count, pool)
                rate = (1 + 0.004 * repetition) * 9000 * inside / (inside + 6)
                response_ms, hold_ms = 1000 * count / rate, 1000 * inside / rate
                note = "do not use" if (pool, count, repetition) == (8, 96, 2) else ""
                rows.append(
                    f"pool,write,1,1,{pool},1,{count},1,1024,{repetition},60,{rate:.2f},{response_ms:.5f},{rate:.2f},"
                    f"{response_ms - 0.3:.5f},{hold_ms - 0.2:.5f},{note}"
                )
    return "\n".join(rows) + "\n"
