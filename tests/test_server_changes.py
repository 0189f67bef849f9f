"""`waystage proxy drain`, `undrain` and `weight` change a server of a running proxy over its control socket."""

import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import WAYSTAGE, connect, free_ports
from proxies import PATIENCE_S, ask, cache_servers, running_proxy, until


@pytest.fixture
def servers():
    with cache_servers(2) as ports:
        yield ports


@pytest.fixture
def proxy(servers, tmp_path):
    """A proxy with two servers and a control socket: its port, its log, and a function that runs a command."""
    file, control = tmp_path / "proxy.toml", tmp_path / "control"

    def write(weight=1):
        lines = [
            f'{{ address = "127.0.0.1:{port}", name = "s{number}", weight = {weight} }}'
            for number, port in enumerate(servers)
        ]
        file.write_text(
            f'listen = "127.0.0.1:{port}"\nloops = 2\nlog-level = "info"\n[[pools]]\nname = "main"\n'
            f"servers = [{', '.join(lines)}]\nreplicas = 2\nwrites = 'first'\nfailover = 'on-error'\n"
        )

    (port,) = free_ports(1)
    write()

    def change(*arguments):
        command = [str(WAYSTAGE), "proxy", *arguments, "--control", str(control)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, done.stdout.strip() or done.stderr.strip()

    with running_proxy(file, "--control", str(control)) as (process, log):
        yield process, port, log, change, write


def drained(port):
    """Return the servers that the proxy reports as drained."""
    with connect(port) as stream, stream.makefile("rwb") as lines:
        lines.write(b"stats backends\r\n")
        lines.flush()
        found = {}
        for line in lines:
            if match := re.match(rb"STAT (\S+):drained (\d)", line):
                found[match[1].decode()] = match[2] == b"1"
            if line == b"END\r\n":
                return [name for name, is_drained in found.items() if is_drained]


def test_a_server_is_drained_used_again_and_weighted(proxy, servers):
    process, port, log, change, write = proxy
    first = f"127.0.0.1:{servers[0]}"
    with connect(port) as client:
        ask(client, b"set k 0 0 3\r\nold\r\n", b"STORED\r\n")
        assert change("drain", first) == (
            0,
            f"{first} of pool main is drained: requests for the keys there are handled as if the server were down",
        )
        assert "pools.0.servers.0.drain = true was added" in log.wait_for("reloaded")
        assert drained(port) == [first]
        # A reload of the unchanged file keeps it.
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert drained(port) == [first]
        until("the client uses the other server", lambda: stored(client, "k", "new"))
        assert change("undrain", "s0", "--pool", "main") == (0, f"{first} of pool main is used again")
        assert drained(port) == []
        for _ in range(20):
            client.sendall(b"get k\r\n")
            assert b"old" not in client.recv(100)
    assert change("weight", first, "1") == (0, f"the weight of {first} of pool main is 1: no keys have moved")
    code, line = change("weight", first, "5")
    assert code == 0 and line.startswith(f"the weight of {first} of pool main is 5: keys have moved"), line
    assert change("weight", first, "5") == (0, f"the weight of {first} of pool main is 5: no keys have moved")
    # The file changes the weight, which counts from now on.
    write(weight=3)
    process.send_signal(signal.SIGHUP)
    log.wait_for("pools.0.servers.0.weight was 5 and is 3")


def stored(client, key, value):
    client.sendall(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode())
    return client.recv(100) == b"STORED\r\n"


def test_a_change_that_cannot_be_made_is_one_line_and_changes_nothing(proxy, servers, tmp_path):
    _process, port, log, change, write = proxy
    for arguments, expected in [
        (("drain", "10.0.0.1:1"), 'there is no server "10.0.0.1:1"; give an address or a name as in the'),
        (("undrain", "s0", "--pool", "other"), 'there is no pool "other"; give one of: main'),
        (("weight", "s0", "0"), "invalid value '0' for '<WEIGHT>'"),
        (("drain", "a\nb"), "a name has no line ends"),
        (("drain", "s0", "--pool", ""), "--pool is empty; leave it out to change the server in each pool"),
        (("drain", "x" * 70_000), "more than 65536 bytes cannot be sent; give a shorter name"),
    ]:
        code, line = change(*arguments)
        assert code in (1, 2) and expected in line, line
    command = [str(WAYSTAGE), "proxy", "drain", "s0", "--control", str(tmp_path / "nowhere")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and "is its --control that path?" in done.stderr
    write(weight="'x'")
    code, line = change("drain", "s0")
    assert code == 1 and "weight" in line and len(line.splitlines()) == 1, line
    assert drained(port) == [] and not any("reloaded" in line for line in log.lines)


def test_changes_that_arrive_together_are_made_one_after_the_other(proxy, servers):
    _, port, _, change, _ = proxy
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda number: change("drain", f"s{number % 2}"), range(6)))
    assert all(code == 0 for code, _ in results), results
    assert sorted(drained(port)) == sorted(f"127.0.0.1:{port}" for port in servers)
    assert change("undrain", "s0")[0] == 0 and change("undrain", "s1")[0] == 0
    with connect(port) as client:
        until("the servers are used again", lambda: stored(client, "k", "v"))
