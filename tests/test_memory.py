"""The hit ratios that `waystage memory` predicts, against a real memcached that a client reads through."""

import json
import os
import subprocess
import threading

import pytest
from memory_accuracy import FIXED_SLABS, measured, predict, workload
from programs import WAYSTAGE, need

# Points of hit ratio; the page docs/memory.md has the errors of larger caches.
ERROR_MAX = 0.03


@pytest.mark.parametrize(
    ("pattern", "sizes", "ttl_s"),
    [("zipf:0.99", "fixed", 0), ("uniform", "fixed", 1), ("zipf:0.7", "bimodal", 0)],
)
def test_the_prediction_agrees_with_memcached(tmp_path, pattern, sizes, ttl_s):
    need("memcached", instead="crates/hit_ratio/tests compares the model with a brute-force cache")
    work = workload(pattern, sizes, ttl_s, keys=60_000, requests=150_000)
    trace, memory = tmp_path / "trace.csv", 8 if sizes == "bimodal" else 4
    real = measured(work, memory, trace, FIXED_SLABS)
    (found,) = predict(trace, [memory], "--samples", "all")
    # A hit ratio of nearly 0 or 1 would agree with any model.
    assert 0.05 < real < 0.9
    assert abs(found - real) < ERROR_MAX, (found, real)


def test_more_memory_never_lowers_an_lru(tmp_path):
    trace = tmp_path / "trace.csv"
    rows = (
        f"{number // 100},k{number * number % 997},4,{number % 50 + 1},0,get,0\n" for number in range(5000)
    )
    trace.write_text("".join(rows))
    command = [WAYSTAGE, "memory", trace, "--policy", "lru", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ratios = [point["hit_ratio"] for point in found["points"]]
    assert len(ratios) > 10 and ratios == sorted(ratios) and ratios[0] < ratios[-1]
    assert found["sampling_rate"] == 1 and found["first_gets"] == len(set(n * n % 997 for n in range(5000)))


def memory(trace, *arguments, **options):
    """Run the command on a trace and return the finished process, with its output as text."""
    command = [WAYSTAGE, "memory", trace, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, **options)


def test_a_popular_key_counts_although_it_is_not_in_the_sample(tmp_path):
    trace = tmp_path / "trace.csv"
    keys = ["popular" if number % 2 else f"c{number // 2 % 50_000:08}" for number in range(200_000)]
    trace.write_text("".join(f"{n // 5000},{key},9,100,0,get,0\n" for n, key in enumerate(keys)))
    sampled, exact = (
        json.loads(memory(trace, "--sizes", "4m,16m", "--samples", samples, "--json").stdout)
        for samples in ("13000", "all")
    )
    for a, b in zip(sampled["points"], exact["points"], strict=True):
        assert abs(a["hit_ratio"] - b["hit_ratio"]) < 0.01
    assert 0.7499 < exact["points"][-1]["hit_ratio"] < 0.75
    assert (sampled["popular_keys"], exact["popular_keys"], sampled["other_gets"]) == (1, 0, 100_000)
    chart = memory(trace, "--sizes", "4m,16m", "--samples", "13000").stdout
    assert "the gets of the most popular key are counted exactly" in chart and "warning" not in chart


def test_what_cannot_be_read_twice_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Nothing ever writes into the pipe.
    for path, kind in [(pipe, "pipe"), (tmp_path, "directory"), ("/dev/null", "device")]:
        refused = memory(path)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.count("\n") == 1 and f"is a {kind};" in refused.stderr
        assert "reads the trace twice, so it must be a regular file" in refused.stderr
    refused = memory("/dev/stdin", input="0,k,1,1,0,get,0\n" * 3)
    assert refused.returncode == 1 and "is a pipe;" in refused.stderr


def test_a_trace_that_is_still_being_written_is_refused(tmp_path):
    trace, row = tmp_path / "trace.csv", "9,k{},4,10,0,get,0\n"
    trace.write_text("".join(row.format(number % 997) for number in range(200_000)))
    ended = threading.Event()

    def write():
        with trace.open("a") as log:
            while not ended.wait(0.001):
                log.write(row.format(1))
                log.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        refused = memory(trace)
    finally:
        ended.set()
        writer.join()
    assert (refused.returncode, refused.stdout) == (1, "") and refused.stderr.count("\n") == 1
    assert "the file changed while it was read" in refused.stderr
    assert memory(trace).returncode == 0
