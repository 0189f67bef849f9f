"""The built programs as a user meets them: they start, serve and stop, and errors are one line."""

import re
import signal
import subprocess
from contextlib import contextmanager

import pytest
from programs import MEMCACHED, WAYSTAGE, connect, free_ports, missing


def run(*arguments, **options):
    """Run the program until it exits."""
    command = [str(WAYSTAGE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@contextmanager
def serving(*arguments):
    """Run a server; yields its address. It must end by itself on SIGTERM, with code 0."""
    process = subprocess.Popen([str(WAYSTAGE), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        while line and "ready on" not in line:
            line = process.stdout.readline()
        yield re.search(r"ready on (\S+)", line).group(1), process
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


@contextmanager
def backend(count=1):
    """Embedded caches; yields their addresses."""
    with serving("cache", "--listen", "127.0.0.1:0") as (address, _):
        if count == 1:
            yield [address]
        else:
            with backend(count - 1) as others:
                yield [address, *others]


@contextmanager
def memcached():
    """A memcached on a free port; yields its address."""
    (port,) = free_ports(1)
    process = subprocess.Popen([*MEMCACHED, str(port)])
    try:
        connect(port).close()
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def one_line(result, *words):
    """Assert that the program failed with one line that contains these words."""
    lines = result.stderr.strip().splitlines()
    assert result.returncode in (1, 2), result
    assert len(lines) == 1 and lines[0].startswith("waystage: "), result.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_memccapable_passes_through_the_proxy_with_both_servers():
    if missing("memccapable", "memcached"):
        with (
            backend() as servers,
            serving("proxy", "--listen", "127.0.0.1:0", "--server", servers[0]) as (address, _),
        ):
            assert (
                run("load", "--server", address, "--requests", 1000, "--clients", 4, "--quiet").returncode
                == 0
            )
        return
    with backend() as embedded, memcached() as real:
        for server in (embedded[0], real):
            with serving("proxy", "--listen", "127.0.0.1:0", "--server", server) as (address, _):
                host, port = address.split(":")
                result = subprocess.run(
                    ["memccapable", "-h", host, "-p", port, "-a"],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert result.stdout.count("[pass]") == 27 and "FAIL" not in result.stdout, result.stdout


def test_the_proxy_forwards_meta_commands_and_drops_quiet_replies():
    with backend(2) as servers:
        named = [word for server in servers for word in ("--server", server)]
        with serving("proxy", "--listen", "127.0.0.1:0", "--replicas", 2, *named) as (address, _):
            with connect(int(address.split(":")[1])) as connection:
                sent = (
                    b"mg a v q\r\nms a 2 q\r\nhi\r\nmg YQ== b v k O1 q\r\nmd a q\r\nma n q\r\nget a\r\nmn\r\n"
                )
                expected = b"VA 2 ka O1\r\nhi\r\nNF\r\nEND\r\nMN\r\n"
                connection.sendall(sent)
                reply = b""
                while len(reply) < len(expected):
                    reply += connection.recv(4096)
                assert reply == expected


@pytest.mark.parametrize(
    ("replicas", "dispatch"),
    [
        (1, ["pipelined"]),
        (3, ["pipelined"]),
        (1, ["per-backend", "--readers", 4]),
        (3, ["per-backend", "--readers", 4]),
        (1, ["shared", "--workers", 4]),
        (3, ["shared", "--workers", 4, "--multi-get", "sharded"]),
        (3, ["shared", "--workers", 4, "--multi-get", "whole"]),
    ],
)
@pytest.mark.parametrize("pipeline", [1, 16])
def test_every_request_through_the_proxy_gets_the_right_reply(tmp_path, replicas, pipeline, dispatch):
    flags = ["--replicas", replicas, "--records", tmp_path, "--sample", 1, "--dispatch", *dispatch]
    flags += ["--loops", 2]
    with backend(3) as servers:
        named = [word for server in servers for word in ("--server", server)]
        with serving("proxy", "--listen", "127.0.0.1:0", *named, *flags) as (address, _):
            result = run(
                "load", "--server", address, "--clients", 8, "--pipeline", pipeline, "--ratio", "1:3",
                "--requests", 40_000, "--multi-key-get", 3, "--quiet", "--no-prefill",
            )  # fmt: skip
            assert result.returncode == 0, result.stdout + result.stderr
    (file,) = tmp_path.glob("proxy-*.way")
    rows = run("records", "dump", file).stdout.splitlines()
    parents = [row for row in rows[1:] if row.split(",")[rows[0].split(",").index("leg")] == "255"]
    assert len(parents) == 40_000


def test_configuration_errors_print_one_line(tmp_path):
    with serving("cache", "--listen", "127.0.0.1:0") as (taken, _):
        one_line(run("proxy", "--server", "127.0.0.1:1", "--listen", taken), "cannot listen on", taken)
        one_line(run("cache", "--listen", taken), "cannot listen on", taken)
        one_line(
            run("proxy", "--listen", "127.0.0.1:0", "--server", taken, "--metrics", taken), "metrics", taken
        )
    one_line(
        run("proxy", "--server", "no where:11211", "--listen", "127.0.0.1:0"), "no where:11211", "--server"
    )
    one_line(run("proxy", "--server", "127.0.0.1:1", "--replicas", 2), "--replicas 2")
    one_line(run("proxy", "--server", "127.0.0.1:1", "--stamps", "off", "--records", tmp_path), "--stamps")
    one_line(
        run("proxy", "--server", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--records", "/proc/x"), "/proc/x"
    )
    proxy = ("proxy", "--server", "127.0.0.1:1", "--listen", "127.0.0.1:0")
    one_line(run(*proxy, "--workers", 4), "--workers 4: belongs to dispatch shared, not to pipelined")
    one_line(
        run(*proxy, "--dispatch", "shared", "--readers", 4), "--readers 4: belongs to dispatch per-backend"
    )
    one_line(run(*proxy, "--queue", 4), "--queue", "pipelined has no queue")
    one_line(
        run(*proxy, "--dispatch", "shared", "--workers", 2, "--loops", 3),
        "--workers 2: each of 3 loops",
        "from 3",
    )
    one_line(
        run(*proxy, "--server", "127.0.0.1:2", "--dispatch", "shared", "--multi-get", "whole"),
        "--multi-get whole",
        "replicas 2",
    )
    one_line(run("load", "--server", "127.0.0.1:1", "--test-time", "1s"), "127.0.0.1:1")
    one_line(run("records", "dump", tmp_path / "none.way"), "none.way")


def test_the_records_of_a_killed_proxy_need_partial(tmp_path):
    with backend() as servers:
        command = [str(WAYSTAGE), "proxy", "--listen", "127.0.0.1:0", "--server", servers[0]]
        command += ["--records", str(tmp_path), "--sample", "1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = re.search(r"ready on (\S+)", process.stdout.readline()).group(1)
        assert run("load", "--server", address, "--requests", 5000, "--quiet").returncode == 0
        process.kill()
        process.wait()
        process.stdout.close()
    (file,) = tmp_path.glob("*.way")
    one_line(run("records", "dump", file), "truncated", "--partial")
    assert run("records", "dump", file, "--partial").returncode == 0


def test_help_names_every_command():
    text = run("--help").stdout
    for command in ("proxy", "load", "cache", "records"):
        assert command in text
        assert run(command, "--help").returncode == 0
