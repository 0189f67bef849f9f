"""A relay between services and a PostgreSQL server. Open connections can fall silent without being closed."""

import contextlib
import socket
import threading
from pathlib import Path

PIECE_BYTES = 64 * 1024


class Relay:
    """Forwards TCP connections to a Unix socket. It ends with the process."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.connections, self.silent_below, self.is_isolated = 0, 0, False
        threading.Thread(target=self.accept, daemon=True).start()

    def silence_open_connections(self) -> None:
        """Forward nothing more on the open connections. New ones work."""
        self.silent_below = self.connections

    def isolate(self) -> None:
        """Forward nothing more, on new connections neither."""
        self.is_isolated = True

    def restore(self) -> None:
        """Let new connections work again."""
        self.silence_open_connections()
        self.is_isolated = False

    def accept(self) -> None:
        """Forward every connection in two threads."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = self.connections
            self.connections += 1
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self.target))
            except OSError:
                # The server is down: the connection is closed, as its host would refuse it.
                client.close()
                server.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=(source, sink, number), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        # A close alone would not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def forward(self, source: socket.socket, sink: socket.socket, number: int) -> None:
        """Forward bytes until a side ends. While the connection is silent, drop them, and hide its end."""
        with source:
            while True:
                try:
                    piece = source.recv(PIECE_BYTES)
                except OSError:
                    piece = b""
                is_silent = self.is_isolated or number < self.silent_below
                if is_silent and piece:
                    continue
                if is_silent:
                    return
                try:
                    if not piece:
                        raise OSError
                    sink.sendall(piece)
                except OSError:
                    with contextlib.suppress(OSError):
                        sink.shutdown(socket.SHUT_RDWR)
                    return
