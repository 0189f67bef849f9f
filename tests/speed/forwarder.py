"""Forwards connections to a proxy, and begins each with bytes that the load generator does not send.

So features that begin a connection can be measured: a header of the PROXY protocol, or a login. Compare them with a
forwarder that sends nothing, because it changes how many requests arrive together.
"""

import asyncio
import threading

# More clients than any workload has.
BACKLOG = 4096
PIECE_BYTES = 1 << 16


class Forwarder:
    """Listens on `port` and forwards to `proxy_port`, until the program ends.

    On each connection to the proxy it sends `first` first, and expects `reply`.
    """

    def __init__(self, port: int, proxy_port: int, first: bytes, reply: bytes) -> None:
        self._port, self._proxy_port, self._first, self._reply = port, proxy_port, first, reply
        self._listens = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._listens.wait()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", self._port, backlog=BACKLOG)
        self._listens.set()
        await server.serve_forever()

    async def _forward(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        proxy, to_proxy = await asyncio.open_connection("127.0.0.1", self._proxy_port)
        to_proxy.write(self._first)
        # Another reply closes the connection, so the workload fails.
        if await proxy.readexactly(len(self._reply)) == self._reply:
            await asyncio.gather(_copy(client, to_proxy), _copy(proxy, to_client))
        to_proxy.close()
        to_client.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends, and then end the target."""
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
    target.write_eof()
