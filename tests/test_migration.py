"""The pages about migrations print what they show, and keys stay on the servers where twemproxy put them."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading

import pytest
from programs import ROOT, WAYSTAGE, connect, find, free_ports, need

PAGES = ("migration.md", "migration-from-mcrouter.md", "migration-from-memcached-proxy.md")
KEYS = [f"key-{number}" for number in range(960)] + [f"{{user{number}}}field" for number in range(40)]


def run(command, folder):
    """Run a command line of a page in a folder; return what it prints."""
    path = f"{WAYSTAGE.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    text = (ROOT / "docs" / page).read_text()
    files = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert files
    for name, content in files:
        (tmp_path / name).write_text(content)
    blocks = re.findall(r"^```\n(\$ waystage .*?)^```$", text, re.DOTALL | re.MULTILINE)
    commands = 0
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            assert run(command, tmp_path) == expected, command
            commands += 1
    assert commands >= 2


def test_a_file_that_cannot_be_converted_is_one_line(tmp_path):
    (tmp_path / "pipe.yml").write_text("a:\n  listen: 127.0.0.1:1\n  redis: true\n  servers:\n   - b:1:1\n")
    (tmp_path / "light.yml").write_text(
        "a:\n  listen: 127.0.0.1:1\n  servers:\n   - b:1:1\n   - c:1:900\n   - d:1:900\n"
    )
    (tmp_path / "broken.json").write_text('{\n "pools": \n')
    (tmp_path / "folder.yml").mkdir()
    os.mkfifo(tmp_path / "fifo.yml")
    (tmp_path / "bytes.yml").write_bytes(b"a:\n\xff\n")
    for name, expected in {
        "pipe.yml": "pipe.yml:3: redis: true: the proxy speaks memcached's protocol only; leave this pool out",
        "light.yml": "light.yml: the result would be invalid: result:",
        "broken.json": "broken.json:3: not JSON: ",
        "missing.yml": "missing.yml: cannot read the configuration: No such file",
        "folder.yml": "folder.yml: this is not a file",
        "fifo.yml": "fifo.yml: this is not a file",
        "bytes.yml": "bytes.yml:2: not UTF-8",
    }.items():
        done = subprocess.run(
            [WAYSTAGE, "proxy", "convert", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, ""), name
        assert done.stderr.startswith(f"waystage: {expected}"), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    refused = run("waystage proxy convert --route-prefix /a/b/ pipe.yml", tmp_path)
    assert refused.startswith("waystage: pipe.yml: a configuration of twemproxy has no routing prefixes"), (
        refused
    )


class Listener:
    """A server that knows no key, and remembers which keys it was asked for."""

    def __init__(self, listener):
        self.keys = set()
        self._listener = listener
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self):
        return self._listener.getsockname()[1]

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                command, *keys = line.decode().split()
                self.keys.update(keys)
                connection.sendall(b"VERSION 1.6.0\r\n" if command == "version" else b"END\r\n")


def pool_lines(name, port, servers, **settings):
    """A pool of nutcracker.yml."""
    lines = [f"{name}:", f"  listen: 127.0.0.1:{port}"]
    lines += [f"  {key}: {value}" for key, value in settings.items()]
    return "\n".join([*lines, "  servers:", *(f"   - {server}" for server in servers), ""])


def ask_for_all(port):
    """Request every key through a proxy, a part at a time."""
    with connect(port) as client:
        for start in range(0, len(KEYS), 50):
            part = KEYS[start : start + 50]
            client.sendall("".join(f"get {key}\r\n" for key in part).encode())
            reply = b""
            while reply.count(b"END\r\n") < len(part):
                piece = client.recv(1 << 16)
                assert piece, reply
                reply += piece


def end(process):
    """Stop a process that the test has started."""
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)
    if process.stdout:
        process.stdout.close()


def test_keys_stay_where_twemproxy_put_them(tmp_path):
    """Seven pools in one file: both distributions, all hashes, weights, names, and 25 servers of equal weight."""
    need("nutcracker", instead="the key distribution recorded in crates/key_distribution/tests is checked")
    draw = random.Random(17)
    listeners = [Listener(socket.create_server(("127.0.0.1", 0))) for _ in range(25)]
    plain = [f"127.0.0.1:{listener.port}:1" for listener in listeners]
    weighted = [f"127.0.0.1:{listener.port}:{draw.choice([1, 2, 3, 7])}" for listener in listeners[:6]]
    named = [f"{server} cache-{draw.randrange(10**6)}" for server in weighted]
    shuffled = draw.sample(named, len(named))
    pools = {
        "ketama-fnv": (weighted, {"distribution": "ketama", "hash": "fnv1a_64"}),
        # twemproxy rounds the number of points down for 25 equal servers. md5 spreads keys enough to notice.
        "ketama-many": (plain, {"distribution": "ketama", "hash": "md5"}),
        "ketama-named": (
            named,
            {"hash": "crc32", "hash_tag": "'{}'", "auto_eject_hosts": "true", "timeout": 400},
        ),
        "modula-plain": (plain[:7], {"distribution": "modula", "hash": "md5"}),
        "modula-named": (shuffled, {"distribution": "modula", "hash": "crc32", "preconnect": "true"}),
        "modula-fnv": (weighted, {"distribution": "modula", "hash_tag": "'{}'"}),
        "one": (plain[:1], {"hash": "murmur"}),
    }
    *ports, statistics = free_ports(len(pools) + 1)
    texts = [
        pool_lines(name, port, servers, **settings)
        for port, (name, (servers, settings)) in zip(ports, pools.items(), strict=True)
    ]
    (tmp_path / "nutcracker.yml").write_text("\n".join(texts))
    assert run("waystage proxy convert nutcracker.yml > proxy.toml", tmp_path) == ""
    nutcracker = [str(find("nutcracker")), "-c", "nutcracker.yml", "-o", "log", "-a", "127.0.0.1"]
    process = subprocess.Popen([*nutcracker, "-s", str(statistics)], cwd=tmp_path)
    try:
        theirs = {name: places(port, listeners) for name, port in zip(pools, ports, strict=True)}
    finally:
        end(process)
    for name in pools:
        keys = " ".join(f"'{key}'" for key in KEYS)
        printed = run(f"waystage proxy route --config proxy.toml --pool {name} --json {keys}", tmp_path)
        ours = {
            route["key"]: int(route["primary"].rpartition(":")[2]) for route in json.loads(printed)["keys"]
        }
        assert ours == theirs[name], name
    # The converted file serves on the same ports.
    proxy = subprocess.Popen(
        [WAYSTAGE, "proxy", "--config", "proxy.toml"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert "ready on" in proxy.stdout.readline()
        for name, port in zip(pools, ports, strict=True):
            assert places(port, listeners) == theirs[name], name
    finally:
        end(proxy)
        for listener in listeners:
            listener.close()


def places(port, listeners):
    """Where the proxy on this port sends each key: the port of the server."""
    for listener in listeners:
        listener.keys.clear()
    ask_for_all(port)
    found = {key: listener.port for listener in listeners for key in listener.keys}
    assert sorted(found) == sorted(KEYS)
    return found


# What ModifyKeyRoute of mcrouter does to keys with a prefix, by its settings, and to an example of such a key.
CHANGES = {
    "strip/": ({"replace_key_prefix": "strip/"}, "strip/x", "x"),
    "replace/": ({"replace_key_prefix": "replace/", "ensure_key_prefix": "new/"}, "replace/x", "new/x"),
    "ensure/": ({"ensure_key_prefix": "in/"}, "ensure/x", "in/ensure/x"),
    "twice/": ({"ensure_key_prefix": "twice/in/"}, "twice/x", "twice/in/twice/x"),
    "twice/in/other/": ({}, "twice/in/other/x", "twice/in/other/x"),
    "place/": ({"ensure_key_prefix": "over/", "modify_inplace": True}, "place/x", "over//x"),
    "part/": ({"replace_key_prefix": "part/of/"}, "part/x", "part/x"),
}


def test_keys_are_changed_and_placed_as_by_mcrouter(tmp_path):
    """Servers receive the changed keys, and those are hashed: a pool that does not change them agrees."""
    listeners = {pool: [Listener(socket.create_server(("127.0.0.1", 0))) for _ in range(4)] for pool in "AB"}
    pools = {
        pool: {"servers": [f"127.0.0.1:{listener.port}" for listener in own]}
        for pool, own in listeners.items()
    }
    policies = {
        prefix: {"type": "ModifyKeyRoute", "target": "PoolRoute|B", **change}
        for prefix, (change, _, _) in CHANGES.items()
    }
    route = {"type": "PrefixSelectorRoute", "policies": policies, "wildcard": "PoolRoute|A"}
    (tmp_path / "mcrouter.json").write_text(json.dumps({"pools": pools, "route": route}))
    (tmp_path / "plain.json").write_text(json.dumps({"pools": pools, "route": "PoolRoute|B"}))
    (port,) = free_ports(1)
    for name in ("mcrouter", "plain"):
        assert run(f"waystage proxy convert {name}.json > {name}.toml", tmp_path) == ""
        checked = run(f"waystage proxy --check --config {name}.toml --listen 127.0.0.1:{port}", tmp_path)
        assert "invalid" not in checked and "pool     B: 4 servers, ch3" in checked, checked
    numbered = {
        key + str(number): changed + str(number)
        for _, key, changed in CHANGES.values()
        for number in range(40)
    }
    # These two depend on what follows the prefix of the policy.
    numbered |= {f"part/of/{number}": f"{number}" for number in range(40)}
    numbered |= {f"twice/in/{number}": f"twice/in/{number}" for number in range(40)}
    keys = " ".join(set(numbered.values()))
    printed = json.loads(run(f"waystage proxy route --config plain.toml --json {keys}", tmp_path))
    places = {route["key"]: int(route["primary"].rpartition(":")[2]) for route in printed["keys"]}
    assert len(set(places.values())) == 4
    proxy = subprocess.Popen(
        [WAYSTAGE, "proxy", "--config", "mcrouter.toml", "--listen", f"127.0.0.1:{port}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "ready on" in proxy.stdout.readline()
        with connect(port) as client, client.makefile("rb") as replies:
            for key in [*numbered, "else"]:
                client.sendall(f"get {key}\r\n".encode())
                assert replies.readline() == b"END\r\n"
        received = {listener.port: listener.keys for own in listeners.values() for listener in own}
        expected = {place: {key for key, own in places.items() if own == place} for place in places.values()}
        assert {place: received[place] for place in expected} == expected
        assert set().union(*(listener.keys for listener in listeners["A"])) == {"else"}
    finally:
        end(proxy)
        for own in listeners.values():
            for listener in own:
                listener.close()
