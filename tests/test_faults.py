"""Servers that are killed or frozen under load: every request is answered in time, and no value is wrong."""

import json
import re
import signal
import subprocess
import time

import pytest
from programs import MEMCACHED, WAYSTAGE, connect, free_ports, missing

TIMEOUT_S = 0.3
# Long beside the timeout: a request that waits for the frozen server takes about as long, on any machine.
FROZEN_S = 4.0


class Servers:
    """Three server processes: memcached if it is installed, otherwise the embedded cache."""

    def __init__(self):
        self.ports = free_ports(3)
        self.processes = [self.spawn(port) for port in self.ports]

    @staticmethod
    def spawn(port):
        embedded = [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{port}"]
        command = embedded if missing("memcached") else [*MEMCACHED, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        connect(port).close()
        return process

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def wait_for_gets(port, count, load):
    """Wait until the proxy has received this many GETs. On a slow machine, the prefill of the load takes seconds."""
    deadline, received = time.monotonic() + 120, 0
    with connect(port) as client, client.makefile("rb") as replies:
        while received < count:
            assert load.poll() is None and time.monotonic() < deadline, f"{received} GETs were received"
            time.sleep(0.1)
            client.sendall(b"stats\r\n")
            for line in iter(replies.readline, b"END\r\n"):
                assert line, "the proxy closed the connection"
                if line.startswith(b"STAT cmd_get "):
                    received = int(line.split()[2])


@pytest.fixture
def servers():
    three = Servers()
    yield three
    three.end()


@pytest.mark.parametrize(
    ("replicas", "dispatch"),
    [
        (1, ["pipelined"]),
        (3, ["pipelined"]),
        (1, ["per-backend", "--readers", "8"]),
        (3, ["per-backend", "--readers", "8"]),
        (1, ["shared", "--workers", "8"]),
        (3, ["shared", "--workers", "8"]),
    ],
)
def test_every_request_is_answered_while_servers_are_killed_and_frozen(servers, replicas, dispatch, tmp_path):
    command = [str(WAYSTAGE), "proxy", "--listen", "127.0.0.1:0", "--replicas", str(replicas)]
    command += ["--loops", "2", "--dispatch", *dispatch]
    command += [word for port in servers.ports for word in ("--server", f"127.0.0.1:{port}")]
    command += [
        "--backend-timeout",
        f"{int(TIMEOUT_S * 1000)}ms",
        "--records",
        str(tmp_path),
        "--sample",
        "1",
    ]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"ready on (\S+)", proxy.stdout.readline()).group(1)
        summary = tmp_path / "load.json"
        command = [str(WAYSTAGE), "load", "--server", address, "--clients", "32", "--ratio", "1:4", "--quiet"]
        # Few keys, so that all are set before the first server is killed.
        command += ["--key-maximum", "1000", "--test-time", "60s", "--warm-up", "0s", "--failed-max", "1"]
        command += ["--json-out-file", str(summary)]
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for_gets(int(address.rpartition(":")[2]), 1000, load)
        servers.processes[0].kill()
        servers.processes[0].wait()
        time.sleep(1.0)
        servers.processes[0] = Servers.spawn(servers.ports[0])
        time.sleep(1.0)
        servers.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        servers.processes[1].send_signal(signal.SIGCONT)
        # A server may have taken long to stop or to restart: the end is counted from here.
        time.sleep(5.0)
        load.send_signal(signal.SIGINT)
        assert load.wait(timeout=60) in (0, 1)
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(timeout=20) == 0, "no job was lost"
    finally:
        proxy.kill()
        proxy.stdout.close()
        proxy.wait()

    result = json.loads(summary.read_text())
    assert result["totals"]["requests_sent"] == result["totals"]["requests_answered"] > 1000
    wrong = {name: result["verification"][name] for name in ("wrong", "torn", "stale", "unexpected_reply")}
    assert set(wrong.values()) == {0}, wrong
    # Sets fail while a server is away, so their keys cannot be judged until the next one.
    assert all("could not be judged for staleness" in reason for reason in result["reasons"]), result[
        "reasons"
    ]
    assert result["errors"], "the load must see errors of a killed and a frozen server"
    assert all(line.startswith("SERVER_ERROR backend 127.0.0.1:") for line in result["errors"]), result[
        "errors"
    ]
    assert max(second["max_ns"] for second in result["seconds"]) < FROZEN_S * 1e9
    # Both servers have been running again for five seconds. A busy machine can still delay single replies.
    last = result["seconds"][-5:]
    assert any(second["requests"] and not second["errors"] for second in last), last
    (records,) = tmp_path.glob("proxy-*.way")
    assert (
        subprocess.run(
            [WAYSTAGE, "records", "dump", records, "--limit", "1"], capture_output=True, check=False
        ).returncode
        == 0
    )
