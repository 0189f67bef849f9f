"""A proxy whose records cannot be written reports that at once and continues to serve."""

import re
import signal
import socket
import subprocess

from programs import WAYSTAGE, connect, free_ports
from proxies import PATIENCE_S, Lines, ask

# A limit on the length of files has the same effect as a full disk.
# SIGXFSZ stays ignored, so that the write fails instead of killing the process.
SHELL = 'trap \'\' XFSZ; ulimit -f 100; exec "$0" "$@"'
ROUNDS, REQUESTS = 100, 200


def test_records_that_cannot_be_written_are_reported_at_once(tmp_path):
    (backend_port,) = free_ports(1)
    backend = subprocess.Popen(
        [str(WAYSTAGE), "cache", "--listen", f"127.0.0.1:{backend_port}"], stdout=subprocess.DEVNULL
    )
    connect(backend_port).close()
    arguments = ("--listen", "127.0.0.1:0", "--server", f"127.0.0.1:{backend_port}", "--loops", "1")
    command = ["sh", "-c", SHELL, str(WAYSTAGE), "proxy", *arguments]
    records = ("--records", str(tmp_path), "--sample", "1", "--metrics", "127.0.0.1:0")
    proxy = subprocess.Popen([*command, *records], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complained = Lines(proxy.stdout), Lines(proxy.stderr)
        metrics = int(re.search(r"metrics on \S+:(\d+)", said.wait_for("metrics on")).group(1))
        port = int(re.search(r"ready on \S+:(\d+)", said.wait_for("ready on")).group(1))
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            for _ in range(ROUNDS):
                ask(client, b"get k\r\n" * REQUESTS, b"END\r\n" * REQUESTS)
            line = complained.wait_for("no further records are written")
            assert str(tmp_path) in line and "File too large" in line
            ask(client, b"get k\r\n" * REQUESTS, b"END\r\n" * REQUESTS)
        with socket.create_connection(("127.0.0.1", metrics), timeout=PATIENCE_S) as scrape:
            scrape.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            page = scrape.makefile("rb").read().decode()
        assert int(re.search(r"^waystage_records_dropped_total (\d+)", page, re.MULTILINE).group(1)) > 0
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(timeout=PATIENCE_S) != 0, "the records are not complete"
    finally:
        for process in (proxy, backend):
            process.kill()
            process.wait()
