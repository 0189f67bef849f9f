"""Runs a proxy between hostile clients and servers, with a well-behaved load beside them that verifies every value.

    .venv/bin/python tests/hostile_run.py --seconds 3600

The load uses a pool of its own with correct servers, on the same event loops. Its requests must all be answered,
correctly and in time. At the end the proxy must have no descriptor, thread, request or memory of its hostile peers
left, and consistent counters. test_hostile_run.py runs a short form for each dispatch discipline.
"""

import argparse
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from fault_proxy import is_line
from fault_servers import Server
from hostile_clients import LARGE_BYTES, LARGE_KEYS, Place, misbehave
from hostile_servers import HostileServer
from programs import WAYSTAGE, connect

DISCIPLINES = {
    "pipelined": 'dispatch = "pipelined"',
    "per-backend": 'dispatch = "per-backend"\nreaders = 4\nwriters = 4',
    "shared": 'dispatch = "shared"\nworkers = 32',
}
HOSTILE_CLIENTS = 8
CORRECT_SERVERS = 3
HOSTILE_SERVERS = 3
# Connections to the servers that are open at the end and were not at the beginning: some disciplines open several.
SPARE_DESCRIPTORS = 48
# The timeout of the hostile servers. With `shared`, a request can wait this long for a slot that one of them holds.
WILD_TIMEOUT_S = 0.5
# The response time of 99 % of the load. A reply that had to wait for a hostile server would take the whole timeout.
IN_TIME_S = {
    "pipelined": 0.8 * WILD_TIMEOUT_S,
    "per-backend": 0.8 * WILD_TIMEOUT_S,
    "shared": 2 * WILD_TIMEOUT_S,
}
SLOWEST_S = 5.0
MEMORY_MAX = 400 << 20
MEMORY_LEFT_MAX = 64 << 20
# By default, glibc keeps freed blocks of a megabyte for reuse. Then resident memory does not show what the proxy holds.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
# After the hostile peers have gone: the idle timeout of a bulk connection, and the reconnections to calm servers.
REST_S = 30.0
# Nothing of these may be left.
EMPTY = (
    "backend_in_flight",
    "queue_length",
    "slots_busy",
    "backend_invalidations_pending",
    "backend_ejected",
)
# A run in which these did not happen would prove little.
EXPECTED = (
    'backend_connections_lost_total{pool="wild".*reason="out_of_step"',
    'backend_connections_lost_total{pool="wild".*reason="lost"',
    'backend_errors_total{pool="wild".*kind="timeout"',
    "clients_tls_failed_total",
    "clients_paused_total",
    "clients_header_failed_total",
    "commands_refused_total",
    "rate_limited_total",
)


class Proxy:
    """The proxy's process, and what can be seen of it from outside."""

    def __init__(self, folder, servers, wild, discipline):
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        command = [
            "openssl",
            "req",
            "-x509",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]
        command += ["-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        self.control = folder / "control"
        (folder / "login").write_text("proxy:secret\n")
        config = folder / "proxy.toml"
        config.write_text(
            f'listen = ["127.0.0.1:0", "tls:127.0.0.1:0", "127.0.0.3:0", '
            f'{{ address = "127.0.0.2:0", allow = ["read"] }}]\n'
            f'metrics = "127.0.0.1:0"\nloops = 2\n'
            f'proxy-protocol = "127.0.0.3:0"\nproxy-protocol-timeout = "1s"\n'
            f'control = "{self.control}"\ntls-certificate = "{certificate}"\ntls-key = "{key}"\n'
            f'tls-handshake-timeout = "1s"\nclient-request-timeout = "3s"\nclient-unread-timeout = "5s"\n'
            f'metrics-timeout = "2s"\nlog-format = "json"\nslow-requests = "1ms"\n{DISCIPLINES[discipline]}\n'
            f'[[pools]]\nname = "calm"\nservers = {json.dumps([f"127.0.0.1:{server.port}" for server in servers])}\n'
            f'timeouts = {{ connect = "10s", read = "10s", write = "10s" }}\n'
            f'[[pools]]\nname = "wild"\nservers = {json.dumps([server.address for server in wild])}\n'
            f'server-auth-file = "{folder / "login"}"\n'
            f'timeouts = {{ connect = "{WILD_TIMEOUT_S}s", read = "{WILD_TIMEOUT_S}s", write = "{WILD_TIMEOUT_S}s" }}\n'
            f"rate-limit = {{ per-second = 300, burst = 20 }}\n"
            f'[[routes]]\nprefix = "w:"\npool = "wild"\n'
        )
        command = [str(WAYSTAGE), "proxy", "--config", str(config)]
        self.errors = (folder / "errors.txt").open("w+")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **RETURN_MEMORY},
        )
        lines = self.process.stdout.readline() + self.process.stdout.readline()
        self.metrics_port, self.port, self.tls_port = map(int, re.findall(r"127\.0\.0\.1:(\d+)", lines))
        (self.reading_port,) = map(int, re.findall(r"127\.0\.0\.2:(\d+)", lines))
        (self.relayed_port,) = map(int, re.findall(r"127\.0\.0\.3:(\d+)", lines))
        self.folder = Path(f"/proc/{self.process.pid}")

    def metrics(self):
        """Return the metrics: each series, without the common prefix of the names, with its value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=20) as reply:
            text = reply.read().decode()
        series = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("waystage_"))
        return {name.removeprefix("waystage_"): float(value) for name, value in series}

    def descriptors(self):
        """Return the number of open descriptors."""
        return len(list((self.folder / "fd").iterdir()))

    def threads(self):
        """Return the number of threads."""
        return len(list((self.folder / "task").iterdir()))

    def memory(self):
        """Return the resident memory in bytes."""
        return int(re.search(r"VmRSS:\s+(\d+) kB", (self.folder / "status").read_text()).group(1)) << 10

    def stop(self):
        """Stop the proxy; return its exit code and what its standard error has besides lines of the log."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            code = "none in 30 s"
        self.errors.seek(0)
        return code, "".join(line for line in self.errors if not is_line(line))

    def end(self):
        """Kill the proxy if it still runs."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def matching(metrics, pattern):
    """Return the sum of the series whose names begin like this pattern."""
    return sum(value for name, value in metrics.items() if re.match(pattern, name))


def store_large_values(port):
    """Store the values that the clients read which never read their replies."""
    with connect(port) as stream:
        for key in LARGE_KEYS:
            stream.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, LARGE_BYTES, b"v" * LARGE_BYTES))
        stream.makefile("rb").read(len(LARGE_KEYS) * len(b"STORED\r\n"))


def start_load(port, seconds, summary, output):
    """A closed loop with a little think time; every value is verified."""
    command = [str(WAYSTAGE), "load", "--server", f"127.0.0.1:{port}", "--clients", "16", "--ratio", "1:4"]
    command += ["--quiet", "--key-maximum", "2000", "--think-time", "exp:5ms", "--warm-up", "0s"]
    command += ["--test-time", f"{seconds}s", "--json-out-file", str(summary)]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def check_load(load, discipline):
    """Return what was wrong with the replies to the well-behaved load."""
    totals, verification, errors = load["totals"], load["verification"], load["errors"]
    broken = [
        f"{verification[name]} {name}"
        for name in ("wrong", "torn", "stale", "unexpected_reply")
        if verification[name]
    ]
    if errors:
        broken.append(f"errors for the well-behaved load: {errors}")
    if totals["requests_sent"] != totals["requests_answered"] or not totals["requests_answered"]:
        broken.append(f"{totals['requests_sent']} sent, {totals['requests_answered']} answered")
    times = load["operations"]["all"]["service"]
    # The percentile is null if 1 % of the requests have no answer.
    usual_ns = times["percentiles"]["99"]
    usual_s, slowest_s = math.inf if usual_ns is None else usual_ns / 1e9, times["max_ns"] / 1e9
    if usual_s > IN_TIME_S[discipline] or slowest_s > SLOWEST_S:
        broken.append(
            f"1 % of the replies to the load took over {usual_s:.2f} s, the slowest {slowest_s:.2f} s"
        )
    return broken


def left_over(proxy, before):
    """Return what the proxy still has of its hostile peers."""
    metrics = proxy.metrics()
    left = [f"{name} {value:g}" for name, value in metrics.items() if name.startswith(EMPTY) and value]
    if metrics["clients"]:
        left.append(f"{metrics['clients']:g} clients")
    descriptors, threads = proxy.descriptors(), proxy.threads()
    if descriptors > before["descriptors"]:
        left.append(f"{descriptors} descriptors instead of {before['descriptors']}")
    if threads > before["threads"]:
        left.append(f"{threads} threads instead of {before['threads']}")
    return left


def check_counters(metrics):
    """Return the counters that contradict each other."""
    broken = []
    for labels in {name.split("{")[1] for name in metrics if name.startswith("backend_requests_total{")}:
        sent, replies = (
            metrics[f"backend_requests_total{{{labels}"],
            metrics[f"backend_replies_total{{{labels}"],
        )
        base = re.escape(labels.rstrip("}"))
        kinds = "timeout|backend_lost|backend_down|overloaded"
        failed = matching(metrics, rf'backend_errors_total{{{base},kind="({kinds})"')
        if not replies <= sent <= replies + failed:
            broken.append(f"{labels} {sent:g} sent, {replies:g} replies, {failed:g} failed")
    # Every request is counted once, and timed once.
    finished = matching(metrics, "requests_total")
    timed = matching(metrics, r'stage_seconds_count{.*stage="total"')
    if finished != timed:
        broken.append(f"{finished:g} requests counted, {timed:g} timed")
    return broken


class Run:
    """One proxy, its servers of both kinds, and what was seen."""

    def __init__(self, discipline, seed, folder):
        self.discipline, self.folder, self.source = discipline, folder, random.Random(seed)
        self.problems, self.memory, self.proxy, self.load = [], [], None, None
        self.servers = [Server() for _ in range(CORRECT_SERVERS)]
        self.wild = [
            HostileServer(self.source.getrandbits(64), WILD_TIMEOUT_S) for _ in range(HOSTILE_SERVERS)
        ]

    def attack(self, seconds):
        """Run the load and the hostile clients for this time."""
        self.proxy = proxy = Proxy(self.folder, self.servers, self.wild, self.discipline)
        store_large_values(proxy.port)
        # The first scrape and the first requests open what stays open.
        proxy.metrics()
        self.before = {"descriptors": proxy.descriptors() + SPARE_DESCRIPTORS, "threads": proxy.threads()}
        place = Place(
            proxy.port,
            proxy.tls_port,
            proxy.relayed_port,
            proxy.metrics_port,
            proxy.reading_port,
            str(proxy.control),
        )
        until = time.monotonic() + seconds
        with (self.folder / "load.txt").open("w") as output:
            self.load = start_load(proxy.port, seconds, self.folder / "load.json", output)
        clients = [
            threading.Thread(
                target=misbehave, args=(place, until, self.source.getrandbits(64), self.problems)
            )
            for _ in range(HOSTILE_CLIENTS)
        ]
        for client in clients:
            client.start()
        while time.monotonic() < until:
            self.memory.append(proxy.memory())
            time.sleep(0.1)
        for client in clients:
            client.join()
        self.load.wait(timeout=60)

    def judge(self):
        """Let the proxy come to rest and stop it; return the figures and the violations."""
        happened = self.proxy.metrics()
        for server in self.wild:
            server.calm_down()
        rest = time.monotonic() + REST_S
        while (left := left_over(self.proxy, self.before)) and time.monotonic() < rest:
            time.sleep(0.2)
        load = json.loads((self.folder / "load.json").read_text())
        broken = (
            self.problems + left + check_load(load, self.discipline) + check_counters(self.proxy.metrics())
        )
        broken += [f"nothing counted: {name}" for name in EXPECTED if not matching(happened, name)]
        most, at_end = max(self.memory), self.proxy.memory()
        if most > MEMORY_MAX or at_end > MEMORY_LEFT_MAX:
            broken.append(f"{most >> 20} MiB of memory, {at_end >> 20} MiB at the end")
        code, text = self.proxy.stop()
        if code or text:
            broken.append(f"exit code {code}, standard error {text[:1000]!r}")
        usual_ns = load["operations"]["all"]["service"]["percentiles"]["99"]
        usual_ms = math.inf if usual_ns is None else usual_ns / 1e6
        figures = [
            f"load {load['totals']['requests_answered']} replies, 99 % within {usual_ms:.0f} ms",
            f"{matching(happened, 'clients_accepted_total'):g} clients",
            f"{matching(happened, 'backend_connections_lost_total'):g} connections to servers lost",
            f"memory {most >> 20} MiB at most, {at_end >> 20} MiB at the end",
        ]
        return figures, broken

    def end(self):
        """End all processes and servers."""
        if self.load:
            self.load.kill()
            self.load.wait()
        if self.proxy:
            self.proxy.end()
        for server in self.wild:
            server.end()
        for server in self.servers:
            server.end()


def play(discipline, seconds, seed, folder):
    """Run one proxy; return the figures and the violations."""
    run = Run(discipline, seed, folder)
    try:
        run.attack(seconds)
        return run.judge()
    finally:
        run.end()


def main():
    """Run with the arguments of the command line; exit with 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long in all [default: 600]")
    parser.add_argument("--seed", type=int, default=1, help="which behaviour, and when [default: 1]")
    parser.add_argument(
        "--dispatch", choices=DISCIPLINES, help="this discipline only [default: one after another]"
    )
    arguments = parser.parse_args()
    disciplines = [arguments.dispatch] if arguments.dispatch else list(DISCIPLINES)
    failed = False
    for discipline in disciplines:
        with tempfile.TemporaryDirectory() as folder:
            figures, broken = play(
                discipline, arguments.seconds / len(disciplines), arguments.seed, Path(folder)
            )
        print(f"{discipline}: {', '.join(figures)}")
        for line in broken:
            print(f"  BROKEN: {line}")
        failed |= bool(broken)
    sys.exit(failed)


if __name__ == "__main__":
    main()
