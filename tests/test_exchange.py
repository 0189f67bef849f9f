"""Keys stay on the same servers when waystage replaces twemproxy, or the other way round."""

import re
import signal
import subprocess

import pytest
from programs import MEMCACHED, WAYSTAGE, connect, free_ports, need, twemproxy


def ask(connection, request, ends):
    """Send a request; return the reply up to its end."""
    connection.sendall(request)
    reply = b""
    while not reply.endswith(ends):
        piece = connection.recv(1 << 16)
        assert piece, reply
        reply += piece
    return reply


@pytest.mark.parametrize(
    ("distribution", "hashed_with"),
    [
        ("ketama", "md5"),
        ("ketama", "fnv1a_64"),
        ("modulo", "fnv1a_64"),
        ("modulo", "md5"),
        ("modulo", "crc32"),
    ],
)
def test_keys_go_to_the_same_servers_as_with_twemproxy(tmp_path, distribution, hashed_with):
    need(
        "nutcracker",
        "memcached",
        instead="the key distribution recorded in crates/key_distribution/tests is checked",
    )
    ports = free_ports(4)
    # twemproxy sorts servers by the length of their names, then by the names; modulo uses their order.
    names = sorted((f"127.0.0.1:{port}" for port in ports), key=lambda name: (len(name), name))
    theirs_distribution = "modula" if distribution == "modulo" else distribution
    nutcracker_port, nutcracker = twemproxy(
        tmp_path, reversed(names), hash=hashed_with, hash_tag="'{}'", distribution=theirs_distribution
    )
    proxy = [str(WAYSTAGE), "proxy", "--listen", "127.0.0.1:0", "--hash-tag", "{}"]
    proxy += ["--distribution", distribution, "--hash", hashed_with]
    proxy += [word for name in names for word in ("--server", name)]
    processes = [subprocess.Popen([*MEMCACHED, str(port)]) for port in ports]
    try:
        for port in ports:
            connect(port).close()
        processes.append(subprocess.Popen(nutcracker))
        processes.append(subprocess.Popen(proxy, stdout=subprocess.PIPE, text=True))
        ours_port = int(re.search(r"ready on \S+:(\d+)", processes[-1].stdout.readline()).group(1))
        theirs, ours = connect(nutcracker_port), connect(ours_port)
        keys = [f"key-{number}" for number in range(500)] + [f"{{user{number}}}field" for number in range(50)]
        for number, key in enumerate(keys):
            writer, reader = (theirs, ours) if number % 2 else (ours, theirs)
            assert ask(writer, f"set {key} 0 0 3\r\nabc\r\n".encode(), b"\r\n") == b"STORED\r\n"
            assert ask(reader, f"get {key}\r\n".encode(), b"END\r\n").startswith(b"VALUE "), key
        assert ask(ours, f"get {' '.join(keys)}\r\n".encode(), b"END\r\n").count(b"VALUE ") == len(keys)
        theirs.close()
        ours.close()
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)
            if process.stdout:
                process.stdout.close()
