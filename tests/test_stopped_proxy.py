"""A proxy that was stopped, as when its machine is suspended, closes no client that sent something meanwhile."""

import os
import signal
import time
from pathlib import Path

from fault_proxy import Process
from fault_servers import Server
from programs import connect, free_ports

TIMEOUT_S = 1.0
CLIENTS = 20


def test_a_stopped_proxy_reads_what_has_arrived_before_it_closes_idle_clients(tmp_path: Path):
    server, (port,) = Server(), free_ports(1)
    file = tmp_path / "proxy.toml"
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nclient-idle-timeout = "{TIMEOUT_S * 1000:.0f}ms"\n'
        f'[[pools]]\nname = "main"\nservers = ["127.0.0.1:{server.port}"]\n'
    )
    proxy = Process(["--config", str(file)])
    clients = []
    try:
        clients += [connect(port) for _ in range(CLIENTS)]
        os.kill(proxy.process.pid, signal.SIGSTOP)
        for client in clients:
            client.sendall(b"mn\r\n")
        time.sleep(2 * TIMEOUT_S)
        os.kill(proxy.process.pid, signal.SIGCONT)
        assert [client.recv(100) for client in clients] == [b"MN\r\n"] * CLIENTS
    finally:
        for client in clients:
            client.close()
        proxy.kill()
        server.end()
