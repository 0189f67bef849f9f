"""A cache keeps its content when twemproxy is exchanged for waystage, or the other way round."""

import re
import signal
import subprocess

from programs import MEMCACHED, WAYSTAGE, connect, find, free_ports, need


def ask(connection, request, ends):
    """Send a request; return the reply up to its end."""
    connection.sendall(request)
    reply = b""
    while not reply.endswith(ends):
        piece = connection.recv(1 << 16)
        assert piece, reply
        reply += piece
    return reply


def test_placements_are_those_of_twemproxy(tmp_path):
    need("nutcracker", "memcached", stand_in="the placements recorded in crates/proxy/tests are checked")
    *ports, nutcracker_port, statistics_port = free_ports(6)
    names = [f"127.0.0.1:{port}" for port in ports]
    config = tmp_path / "nutcracker.yml"
    servers = "".join(f"   - {name}:1\n" for name in names)
    config.write_text(
        f"pool:\n  listen: 127.0.0.1:{nutcracker_port}\n  hash: md5\n  hash_tag: '{{}}'\n"
        f"  distribution: ketama\n  servers:\n{servers}"
    )
    nutcracker = [find("nutcracker"), "-c", str(config)]
    nutcracker += [
        "-m",
        "16384",
        "-a",
        "127.0.0.1",
        "-s",
        str(statistics_port),
        "-o",
        str(tmp_path / "nutcracker.log"),
    ]
    proxy = [str(WAYSTAGE), "proxy", "--listen", "127.0.0.1:0", "--hash-tag", "{}"]
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
