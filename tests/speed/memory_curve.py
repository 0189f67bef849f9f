"""Compare the LRU curve of `waystage memory` with that of libCacheSim: error, time and memory; enforces no limit.

    memory_curve.py --python /path/to/venv/bin/python              # a Python with the package libcachesim
    memory_curve.py --python ... --requests 10000000 --keys 1000000

libCacheSim (GPL-3.0) runs in a process of its own and is no dependency of the project. Both programs read the same
synthetic trace, once for all keys and once for a sample, and report the hit ratio of an LRU with the same sizes in
bytes. Prints the mean absolute error of each curve against that of libCacheSim without sampling.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from memory_accuracy import Workload, name, workload
from programs import WAYSTAGE

# Bytes of an item besides its value: memcached's header, the token of cas, the terminators and a key of 11 bytes.
OVERHEAD = 48 + 8 + 3 + 11
# As small as the caches of the sample are, so that the shares of all items are the same.
SHARES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8]
PEER = """
import json, sys
import libcachesim as lcs
path, *sizes = sys.argv[1:]
fields = lcs.ReaderInitParam(has_header=False, has_header_set=True, delimiter=",", obj_id_is_num=True)
fields.time_field, fields.obj_id_field, fields.obj_size_field = 1, 2, 3
found = []
for size in sizes:
    reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.CSV_TRACE, reader_init_params=fields)
    misses, _ = lcs.LRU(cache_size=int(size)).process_trace(reader)
    found.append(1 - misses)
print(json.dumps(found))
"""


def write(work: Workload, ours: Path, theirs: Path) -> None:
    """Write the trace in the format of either program."""
    with ours.open("w") as first, theirs.open("w") as second:
        for number, key in enumerate(work.keys.tolist()):
            size = work.sizes[key]
            first.write(f"{number // 10_000},{name(key)},11,{size},0,get,0\n")
            second.write(f"{number // 10_000},{key + 1},{size + OVERHEAD}\n")


def timed(command: list[object]) -> tuple[str, float, float]:
    """Return what a command prints, its seconds and the CPU seconds."""
    begin, used = time.monotonic(), cpu_s()
    printed = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
    return printed, time.monotonic() - begin, cpu_s() - used


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python with libcachesim")
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--samples", type=int, nargs="+", default=[65_536, 8192, 2048])
    arguments = parser.parse_args()
    for pattern, sizes in (("zipf:0.7", "fixed"), ("zipf:0.99", "etc"), ("scans", "bimodal")):
        work = workload(pattern, sizes, 0, keys=arguments.keys, requests=arguments.requests)
        drawn = np.unique(work.keys)
        total = int(work.sizes[drawn].sum()) + OVERHEAD * len(drawn)
        memories = [int(share * total) for share in SHARES]
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = Path(folder) / "ours.csv", Path(folder) / "theirs.csv"
            write(work, ours, theirs)
            printed, wall_s, used_s = timed([arguments.python, "-c", PEER, theirs, *memories])
            reference = np.array(json.loads(printed.splitlines()[-1]))
            print(f"{pattern} {sizes}: {arguments.requests} requests, {len(drawn)} keys, {len(SHARES)} sizes")
            print(f"  libCacheSim             {wall_s:7.1f} s, CPU {used_s:7.1f} s")
            for samples in ["all", *arguments.samples]:
                listed = ",".join(map(str, memories))
                command = [WAYSTAGE, "memory", ours, "--policy", "lru", "--json", "--sizes", listed]
                printed, wall_s, used_s = timed([*command, "--samples", samples])
                found = np.array([point["hit_ratio"] for point in json.loads(printed)["points"]])
                error = np.abs(found - reference)
                print(
                    f"  waystage, {samples:>6} keys   {wall_s:7.1f} s, CPU {used_s:7.1f} s, "
                    f"mean absolute error {error.mean():.6f}, largest {error.max():.6f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
