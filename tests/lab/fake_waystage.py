"""A test double of the program `waystage`: it accepts the same command line, serves nothing and writes plausible files.

With `FAKE_FAIL=proxy` the proxy exits at once; with `FAKE_FAIL=load` the load does.
With `FAKE_MUTE=proxy` the proxy never reports that it is ready.
With `FAKE_HANG=load` every load but that of the first trial waits until it is stopped.
"""

import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path


def argument(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def seconds(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000


def fail_if_asked(program: str) -> None:
    if os.environ.get("FAKE_FAIL") == program:
        print(f"waystage: FAKE_FAIL makes the {program} fail", file=sys.stderr)
        sys.exit(1)


STAMPS = {
    "messages": "received parsed routed enqueued dispatched sent answered replied",
    "proxy": "received parsed routed enqueued dispatched sent answered replied",
    "load": "intended issued sent completed",
    "cache": "received started served replied",
}
FIELDS = (
    "connection:u4 sequence:u4 port:u2 keys:u2 hits:u2 operation:u1 outcome:u1 leg:u1 pad0:u1 pad1:u1 pad2:u1"
)


def write_records(program: str) -> None:
    """Write a record file without rows, if the arguments request one."""
    if "--records" not in sys.argv:
        return
    stamps = STAMPS[program].split()
    fields = [field.split(":") for field in FIELDS.split()]
    row_bytes = sum(int(kind[1]) for _, kind in fields) + 8 * len(stamps)
    header = {"format": "waystage-records/1", "program": program, "stamps": stamps, "fields": fields}
    text = json.dumps(header | {"row_bytes": row_bytes, "sample": 1}).encode()
    text += b" " * ((4 - len(text)) % 8)
    content = b"WAYREC01" + struct.pack("<I", len(text)) + text + struct.pack("<8sQQQ", b"WAYEND01", 0, 0, 0)
    (Path(argument("--records")) / f"{program}-{os.getpid()}.way").write_bytes(content)


def stop(program: str) -> None:
    write_records(program)
    sys.exit(0)


def serve(program: str) -> None:
    fail_if_asked(program)
    signal.signal(signal.SIGTERM, lambda *_: stop(program))
    if os.environ.get("FAKE_MUTE") == program:
        time.sleep(60)
    print(f"waystage {program} ready on 127.0.0.1:{20000 + os.getpid() % 20000} (fake)", flush=True)
    while True:
        time.sleep(60)


def hang_if_asked() -> None:
    trials = Path(argument("--records")).parent.parent
    if os.environ.get("FAKE_HANG") == "load" and any(trials.glob("*/trial.json")):
        time.sleep(3600)


def connections_of_a_client() -> int:
    return 1 if "any" in sys.argv or "--messages" in sys.argv else sys.argv.count("--server")


def merge() -> None:
    """Merge by returning the first summary."""
    parts = sys.argv[sys.argv.index("merge") + 1 : sys.argv.index("--json-out-file")]
    content = json.loads(Path(parts[0]).read_text()) | {
        "parts": [
            {"name": part, "cpu": {"share": 0.1}, "settings": json.loads(Path(part).read_text())["settings"]}
            for part in parts
        ]
    }
    Path(argument("--json-out-file")).write_text(json.dumps(content))


def load() -> None:
    fail_if_asked("load")
    if "--requests" in sys.argv:
        # This load only stores the keys.
        return
    hang_if_asked()
    sockets = [socket.socket() for _ in range(int(argument("--clients")) * connections_of_a_client())]
    time.sleep(seconds(argument("--warm-up")))
    start = time.monotonic_ns()
    time.sleep(seconds(argument("--test-time")))
    end = time.monotonic_ns()
    clients, window_s = int(argument("--clients")), (end - start) / 1e9
    mean_ns = 1e6
    rate = clients / (mean_ns * 1e-9)
    times = {"mean_ns": mean_ns, "std_ns": 0.0, "min_ns": 1, "max_ns": 1, "percentiles": {}, "histogram": ""}
    operation = {
        "count": 0,
        "hits": 0,
        "misses": 0,
        "errors": 0,
        "response": times,
        "service": times,
        "slip": times,
    }
    content = {
        "format": "waystage-load/1",
        "settings": {"clients": clients, "seed": int(argument("--seed"))},
        "measure_from_clock_ns": start,
        "measure_to_clock_ns": end,
        "measured_s": window_s,
        "totals": {"requests": round(rate * window_s), "hits": 10, "misses": 0, "errors": 0},
        "throughput_per_s": rate,
        "operations": {"all": operation, "get": operation, "set": operation},
        "seconds": [],
        "cpu": {"user_s": 0.0, "system_s": 0.0, "share": 0.1},
        "verification": {"checked": 1, "wrong": 0, "torn": 0, "stale": 0, "unexpected_reply": 0},
        "errors": {},
        "valid": True,
        "reasons": [],
    }
    Path(argument("--json-out-file")).write_text(json.dumps(content))
    write_records("load")
    for one in sockets:
        one.close()


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        print("waystage 0.0.0-fake")
    elif sys.argv[1:3] == ["load", "merge"]:
        merge()
    elif sys.argv[1] == "load":
        load()
    else:
        serve(sys.argv[1])
