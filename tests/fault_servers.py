"""The servers of fault_run.py, what happens to them, and a relay that makes one of them slow."""

import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Set
from contextlib import suppress

from fault_end import End
from fault_policies import LOGIN
from programs import MEMCACHED, WAYSTAGE, connect, free_ports, missing

# How long a fault lasts, and how long the servers then run without a fault.
AWAY_S = (0.05, 3.0)
PAUSE_S = (0.1, 1.5)
# How long a slow server delays each piece of a reply: below and above the proxies' timeouts.
DELAYS_S = (0.02, 0.1, 0.5)
# A port is free when it is chosen, and another process can take it before the server listens.
PORTS_TRIED = 3
FAULTS = (
    "a server is killed",
    "a server is unreachable, and keeps its values",
    "a server is unreachable for one proxy",
    "a server is slow",
    "a server answers too late",
    "a server half-closes",
    "a server closes the connection with requests in flight",
)


class PortTakenError(Exception):
    """Another process listens on the port of a server."""


class Server:
    """A server process: memcached if it is installed, otherwise the embedded cache, which requires no login."""

    def __init__(self, login: str = "") -> None:
        self.login = login
        self.users = tempfile.NamedTemporaryFile("w", prefix="waystage-users-") if login else None
        if self.users:
            self.users.write(login + "\n")
            self.users.flush()
        for port in free_ports(PORTS_TRIED):
            self.port = port
            with suppress(PortTakenError):
                self.spawn()
                return
        raise PortTakenError(f"{PORTS_TRIED} ports were taken by other processes")

    def spawn(self) -> None:
        """Start the server, and wait until it listens.

        Raises:
            PortTakenError: if another server has its port; the clients would read values that they never wrote.
        """
        embedded = [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{self.port}"]
        command = embedded if missing("memcached") else [*MEMCACHED, str(self.port), "-m", "128", "-I", "2m"]
        if self.users and not missing("memcached"):
            command += ["-Y", self.users.name]
        # In a session of its own: Ctrl-C at a terminal must not end the servers before their clients.
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        with connect(self.port) as stream, stream.makefile("rb") as replies:
            if self.login:
                value = self.login.replace(":", " ", 1).encode()
                stream.sendall(b"set login 0 -1 %d\r\n%b\r\n" % (len(value), value))
                assert replies.readline() == b"STORED\r\n"
            stream.sendall(b"stats\r\n")
            lines = iter(replies.readline, b"END\r\n")
            pid = next(int(line.split()[2]) for line in lines if line.startswith(b"STAT pid "))
        if pid != self.process.pid:
            self.end()
            raise PortTakenError(f"process {pid} listens on port {self.port}, not server {self.process.pid}")

    def restart(self, away_s: float) -> None:
        """Kill the server, and start it again, empty, after this time."""
        self.process.kill()
        self.process.wait()
        time.sleep(away_s)
        self.spawn()

    def freeze(self, away_s: float) -> None:
        """Stop the server with SIGSTOP for this time; it then continues with its values and queued requests."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(away_s)
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill the server."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Relay:
    """Passes the bytes of connections to a server on, late if a delay is set. It can also half-close or close them."""

    def __init__(self, port: int):
        self.to = port
        self.delay_s = 0.0
        self.is_away = False
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.is_away:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.to), timeout=1)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self.lock:
                self.pairs.append((client, server))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(*ends, client, server), daemon=True).start()

    def _pass_on(
        self, source: socket.socket, to: socket.socket, client: socket.socket, server: socket.socket
    ) -> None:
        """Pass the bytes of one direction on until it ends. Only replies are late."""
        with suppress(OSError, ValueError):
            while piece := source.recv(1 << 18):
                if source is server and self.delay_s:
                    time.sleep(self.delay_s)
                to.sendall(piece)
        self._close(client, server)

    def _close(self, *pair: socket.socket) -> None:
        with self.lock:
            self.pairs = [known for known in self.pairs if known != pair]
        for side in pair:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def half_close(self) -> None:
        """End the replies of every connection; requests can still arrive."""
        self._shut_down(socket.SHUT_WR)

    def leave(self, away_s: float) -> None:
        """Close every connection, and refuse new ones for this time."""
        self.is_away = True
        self.cut()
        time.sleep(away_s)
        self.is_away = False

    def cut(self) -> None:
        """Close every connection."""
        self._shut_down(socket.SHUT_RDWR)

    def _shut_down(self, how: int) -> None:
        with self.lock:
            pairs = list(self.pairs)
        for client, _ in pairs:
            with suppress(OSError):
                client.shutdown(how)

    def end(self) -> None:
        """Close everything."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


class Servers:
    """The servers of a policy, pool by pool. Each proxy has a relay of its own to the first server of each pool."""

    def __init__(self, pools: dict[str, int], proxies: int, guarded: Set[str] = frozenset()):
        # Proxies before the same servers know different things when only one of them cannot reach a server.
        self.faults = FAULTS if proxies == 1 else (*FAULTS, *[FAULTS[2]] * 2)
        self.of_pool = {
            name: [Server(LOGIN if name in guarded else "") for _ in range(count)]
            for name, count in pools.items()
        }
        self.relays = {
            name: [Relay(servers[0].port) for _ in range(proxies)] for name, servers in self.of_pool.items()
        }

    def ports(self, proxy: int) -> dict[str, list[int]]:
        """Return the ports for the configuration of the proxy with this number."""
        return {
            name: [self.relays[name][proxy].port, *(server.port for server in servers[1:])]
            for name, servers in self.of_pool.items()
        }

    def disturb(self, end: End, source: random.Random, counts: dict[str, int]) -> None:
        """Let one fault after another happen until this end. The first pool has most of them."""
        names = list(self.of_pool)
        # A short run needs several, too.
        away_most_s = max(AWAY_S[0], min(AWAY_S[1], end.left_s() / 10))
        while not end.is_reached():
            pool = names[0] if source.random() < 0.6 else source.choice(names)
            longest_s = max(AWAY_S[0], min(away_most_s, end.left_s()))
            fault, away_s = source.choice(self.faults), source.uniform(AWAY_S[0], longest_s)
            counts[fault] = counts.get(fault, 0) + 1
            self._happen(fault, pool, away_s, source)
            end.sleep(source.uniform(*PAUSE_S))

    def _happen(self, fault: str, pool: str, away_s: float, source: random.Random) -> None:
        server, relay = source.choice(self.of_pool[pool]), source.choice(self.relays[pool])
        match FAULTS.index(fault):
            case 0:
                server.restart(away_s)
            case 1:
                server.freeze(away_s)
            case 2:
                relay.leave(away_s)
            case 3 | 4 as place:
                relay.delay_s = DELAYS_S[2] if place == 4 else source.choice(DELAYS_S[:2])
                time.sleep(away_s)
                relay.delay_s = 0.0
            case 5:
                relay.half_close()
            case _:
                relay.cut()

    def end(self) -> None:
        """Kill all servers."""
        for relays in self.relays.values():
            for relay in relays:
                relay.end()
        for servers in self.of_pool.values():
            for server in servers:
                server.end()
