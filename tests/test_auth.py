"""Users and passwords as with `memcached -Y`: pymemcache at the proxy, and the proxy at memcached servers."""

import importlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from programs import MEMCACHED, WAYSTAGE, connect, free_ports, need
from test_clients import pymemcache_source  # noqa: F401
from test_programs import run

# Words that appear nowhere else.
USER, PASSWORD, CACHE_USER, CACHE_PASSWORD = "ultramarine", "vermilion", "celadon", "heliotrope"
LOGIN = f"{USER} {PASSWORD}".encode()


@contextmanager
def memcached(folder):
    """A memcached whose clients must authenticate; yields its port."""
    users = folder / "memcached-users"
    users.write_text(f"{CACHE_USER}:{CACHE_PASSWORD}\n")
    (port,) = free_ports(1)
    process = subprocess.Popen([*MEMCACHED, str(port), "-Y", str(users)])
    try:
        connect(port).close()
        yield port
    finally:
        process.kill()
        process.wait()


class Proxy:
    """A proxy with users, in front of servers that require a login, and everything that it prints."""

    def __init__(self, folder, server):
        self.users, self.login, self.file = folder / "users", folder / "login", folder / "proxy.toml"
        self.users.write_text(f"{USER}:{PASSWORD}\n")
        self.login.write_text(f"{CACHE_USER}:{CACHE_PASSWORD}\n")
        self.file.write_text(
            f'listen = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\nclient-auth-file = "{self.users}"\n'
            f'slow-requests = "1ns"\nrecords = "{folder / "records"}"\nsample = 1\n'
            f'[[pools]]\nservers = ["127.0.0.1:{server}"]\nserver-auth-file = "{self.login}"\n'
        )
        command = [str(WAYSTAGE), "proxy", "--config", str(self.file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.changed = [], threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        ready = self.wait_for("waystage proxy ready on ")
        self.port = int(ready.split("ready on ")[1].split()[0].rsplit(":", 1)[1])

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    def wait_for(self, text):
        """Return the first line with this text, when it is there."""
        found = lambda: [line for line in self.lines if text in line]  # noqa: E731
        with self.changed:
            assert self.changed.wait_for(found, 30), self.lines
            return found()[0]


@pytest.fixture
def pymemcache(pymemcache_source):  # noqa: F811
    """Return the module with the clients of pymemcache, which has the exceptions, too."""
    sys.path.insert(0, str(pymemcache_source))
    try:
        yield importlib.import_module("pymemcache.client.base")
    finally:
        sys.path.remove(str(pymemcache_source))


@pytest.fixture
def proxy(tmp_path):
    """Yield a proxy that must end with code 0."""
    need("memcached", instead="auth.rs covers the protocol with the embedded cache")
    with memcached(tmp_path) as server:
        proxy = Proxy(tmp_path, server)
        try:
            yield proxy
            proxy.process.send_signal(signal.SIGTERM)
            assert proxy.process.wait(timeout=30) == 0
        finally:
            proxy.process.kill()
            proxy.process.wait()
            proxy.reader.join()
            proxy.process.stdout.close()


def test_pymemcache_authenticates_with_a_set(pymemcache, proxy):
    client = pymemcache.Client(("127.0.0.1", proxy.port), timeout=20)
    for attempt in (
        lambda: client.get("k"),
        lambda: client.set("any", f"{USER} wrong".encode(), noreply=False),
    ):
        with pytest.raises(pymemcache.MemcacheClientError):
            attempt()
    # pymemcache connects again after an error.
    assert client.set("any", LOGIN, noreply=False)
    assert client.set("k", b"value", noreply=False)
    assert client.get("k") == b"value"
    assert client.get_many(["k", "none"]) == {"k": b"value"}
    assert client.incr("none", 1) is None
    assert client.get("any") is None
    client.close()
    proxy.wait_for("to authenticate failed")


def test_a_pool_of_connections_authenticates_each(pymemcache, proxy):
    class Authenticated(pymemcache.Client):
        """A client that authenticates on each new connection."""

        def _connect(self):
            super()._connect()
            self.sock.sendall(b"set any 0 0 %d\r\n%b\r\n" % (len(LOGIN), LOGIN))
            assert self.sock.recv(100) == b"STORED\r\n"

    class Pooled(pymemcache.PooledClient):
        client_class = Authenticated

    pool = Pooled(("127.0.0.1", proxy.port), timeout=20, max_pool_size=4)

    def work(number):
        for round_number in range(50):
            key = f"k{number}-{round_number}"
            assert pool.set(key, key.encode(), noreply=False)
            assert pool.get(key) == key.encode()

    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(work, range(4)))) == 4
    pool.close()


def test_users_are_read_again_and_nothing_is_printed(pymemcache, proxy, tmp_path):
    def ask(client, password):
        """Authenticate, and return a value."""
        with closing(client):
            assert client.set("any", f"{USER} {password}".encode(), noreply=False)
            return client.get("k")

    def client():
        return pymemcache.Client(("127.0.0.1", proxy.port), timeout=20)

    old = client()
    assert old.set("any", LOGIN, noreply=False)
    proxy.users.write_text(f"{USER}:other\n")
    proxy.process.send_signal(signal.SIGHUP)
    proxy.wait_for("waystage proxy reloaded on")
    assert old.set("k", b"value", noreply=False)
    with pytest.raises(pymemcache.MemcacheClientError):
        ask(client(), PASSWORD)
    assert ask(client(), "other") == b"value"
    # The servers refuse another login, and are down.
    proxy.login.write_text(f"{CACHE_USER}:{PASSWORD}\n")
    proxy.process.send_signal(signal.SIGHUP)
    proxy.wait_for("is down, because it refuses the user and password in server-auth-file")
    with pytest.raises(pymemcache.MemcacheServerError):
        ask(client(), "other")
    # A bad file changes nothing.
    proxy.login.write_text(PASSWORD)
    proxy.process.send_signal(signal.SIGHUP)
    line = proxy.wait_for("the configuration stays as it was")
    assert f"cannot use {proxy.login} for authentication: line 1 has no colon; write user:password" in line
    proxy.login.write_text(f"{CACHE_USER}:{CACHE_PASSWORD}\n")
    proxy.process.send_signal(signal.SIGHUP)
    proxy.wait_for("is up again")
    assert ask(client(), "other") == b"value"
    checked = run("proxy", "--check", "--config", proxy.file)
    assert checked.returncode == 0, checked.stderr
    assert f"users    clients authenticate with a user of {proxy.users}\n" in checked.stdout
    assert f"  login    the proxy authenticates with the user of {proxy.login}\n" in checked.stdout
    old.close()
    proxy.process.send_signal(signal.SIGTERM)
    proxy.process.wait(timeout=30)
    shown = "".join(proxy.lines).encode() + checked.stdout.encode()
    shown += b"".join(path.read_bytes() for path in (tmp_path / "records").iterdir())
    for secret in (USER, PASSWORD, CACHE_USER, CACHE_PASSWORD):
        assert secret.encode() not in shown, secret
