"""CPU time of the proxy per request while one of two replicas is down, compared with both up.

Three proxies in front of the same first server are measured in turn. For the first, the second server is up. For the
second, nothing listens at its address. For the third, it refuses every write and deletion. 99 000 invalidations are
pending for these two. usage: degraded.py WAYSTAGE [BLOCKS]
"""

import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))
from programs import MEMCACHED, connect, free_ports

KEYS = 99_000
REQUESTS = 60_000
WORK = {
    "gets": ("--ratio", "0:1"),
    "gets, 16 in flight": ("--ratio", "0:1", "--pipeline", "16"),
}
CONFIG = """listen = "127.0.0.1:{listen}"
metrics = "127.0.0.1:{metrics}"
loops = 2
[[pools]]
name = "main"
servers = ["127.0.0.1:{first}", "127.0.0.1:{second}"]
replicas = 2
writes = "first"
reads = "any"
failover = "on-error"
"""


def main() -> None:
    """Print the CPU time of both, and their ratio."""
    waystage, blocks = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6
    first, second, nothing, refusing, *ports = free_ports(10)
    with ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        threading.Thread(target=asyncio.run, args=(refuse(refusing),), daemon=True).start()
        for port in (first, second):
            start(*MEMCACHED, str(port), "-m", "512")
            connect(port).close()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxies = {}
        for name, other, listen, metrics in (
            ("up", second, *ports[:2]),
            ("down", nothing, *ports[2:4]),
            ("refuses", refusing, *ports[4:]),
        ):
            path = folder / f"{name}.toml"
            path.write_text(CONFIG.format(listen=listen, metrics=metrics, first=first, second=other))
            proxies[name] = (start(waystage, "proxy", "--config", str(path)).pid, listen, metrics)
            connect(listen).close()

        def run(name: str, arguments: tuple[str, ...], requests: int) -> float:
            """Return the proxy's CPU time per request, in microseconds."""
            pid, listen, _ = proxies[name]
            out = folder / "summary.json"
            before = cpu_s(pid)
            command = [
                waystage,
                "load",
                "--server",
                f"127.0.0.1:{listen}",
                "--clients",
                "32",
                "--no-prefill",
                *arguments,
            ]
            command += [
                "--key-maximum",
                str(KEYS - 1),
                "--requests",
                str(requests),
                "--json-out-file",
                str(out),
            ]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            assert json.loads(out.read_text())
            return (cpu_s(pid) - before) / requests * 1e6

        for name in proxies:
            run(name, ("--ratio", "1:0", "--key-pattern", "sequential"), KEYS)
        for name in ("down", "refuses"):
            print(f"{name}: {pending(proxies[name][2])}")
        for work, arguments in WORK.items():
            times: dict[str, list[float]] = {name: [] for name in proxies}
            for block in range(blocks):
                order = list(proxies) if block % 2 == 0 else list(proxies)[::-1]
                sums = dict.fromkeys(proxies, 0.0)
                for name in order + order[::-1]:
                    sums[name] += run(name, arguments, REQUESTS) / 2
                for name, value in sums.items():
                    times[name].append(value)
            for name in ("down", "refuses"):
                logs = [math.log(other / up) for other, up in zip(times[name], times["up"], strict=True)]
                half = statistics.stdev(logs) / math.sqrt(blocks)
                ratio, low, high = (math.exp(statistics.mean(logs) + step * half) for step in (0, -2, 2))
                up, other = (statistics.median(times[kind]) for kind in ("up", name))
                print(
                    f"{work}, {name}: {other:.2f} us, up {up:.2f} us, {ratio:.3f} ({low:.3f} to {high:.3f})",
                    flush=True,
                )
        for name in ("down", "refuses"):
            print(f"{name} at the end: {pending(proxies[name][2])}")


async def refuse(port: int) -> None:
    """Serve memcached's protocol, refusing every write."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reads = {b"version": b"VERSION 1.6.0\r\n", b"get": b"END\r\n"}
        # The proxy closes a connection whose replies take too long.
        with suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"set"):
                    await reader.readexactly(int(line.split()[4]) + 2)
                writer.write(reads.get(line.split()[0], b"SERVER_ERROR refused\r\n"))
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pending(metrics: int) -> str:
    """Return the numbers of pending invalidations, by backend."""
    time.sleep(0.5)
    with urlopen(f"http://127.0.0.1:{metrics}/metrics") as page:
        lines = page.read().decode().splitlines()
    return ", ".join(line for line in lines if line.startswith("waystage_backend_invalidations_pending{"))


if __name__ == "__main__":
    main()
