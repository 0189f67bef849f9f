"""Helpers of the tests of systems that a specification describes itself: specifications, a small server, leftovers."""

import secrets
import sys
from pathlib import Path

from waylab.plan import make_plan
from waylab.spec import read_spec
from waylab.testbed import Testbed, programs_of, running_system

HEAD = """
name = "own"
question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[design]
blocks = 1
[load]
clients = 2
warm_up_s = 0.0
test_time_s = 0.3
[gates]
foreign_cpu_max = 1.0
steal_max = 1.0
generator_cpu_max = 1.5
interactive_law_max = 9.0
reason = "a test"
"""
# Answers /health with 503 and then 200, and /metrics; leaves a daemon of its own behind if it is asked to.
SERVER = """
import http.server, os, subprocess, sys
if "daemon" in sys.argv:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
class Page(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Page.asked += self.path == "/health"
        self.send_response(200 if self.path == "/metrics" or Page.asked > 2 else 503)
        self.end_headers()
        self.wfile.write(b'# HELP asked_total x\\nasked_total{of="a \\\\" }b"} %d\\nnot a sample\\n' % Page.asked)
    def log_message(self, *parts):
        pass
server = http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Page)
print("now listening", os.environ.get("WORD", ""), flush=True)
server.serve_forever()
"""
# Test machines are slow: only a program that never becomes ready waits for so long.
PATIENT = "\nready = { within_s = 300 }"
MARK = "WAYLAB_TEST_MARK"


class Described:
    """A specification of one test, whose programs carry a mark by which they can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self.server = folder / "server.py"
        self.server.write_text(SERVER)

    def path(self, text: str) -> Path:
        """Write the specification, with `SERVER`, `PYTHON` and `MARKED` replaced."""
        path = self.folder / "own.toml"
        replaced = text.replace("SERVER", str(self.server)).replace("PYTHON", sys.executable)
        path.write_text(HEAD + replaced.replace("MARKED", f'environment = {{ {MARK} = "{self.mark}" }}'))
        return path

    def system(self, text: str):
        """Return the running half of the system in the first trial."""
        trial = make_plan(read_spec(self.path(text))).trials[0]
        directory = self.folder / "trial"
        directory.mkdir()
        return running_system(trial, programs_of((trial,)), directory, Testbed())

    def left(self) -> list[str]:
        """Return the commands of the processes with the mark that still run."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0")
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if marked and state not in "ZX":
                    found.append((path / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def role(program: str, arguments: str, further: str = "", name: str = "cache") -> str:
    """Return a role as a specification has it."""
    return f"""
[system]
kind = "command"
[system.roles.{name}]
program = "{program}"
arguments = '''{arguments}'''
MARKED
{further if "ready" in further else further + PATIENT}
"""


def web(further: str = "", daemon: bool = False) -> str:
    """Return a role that runs the small server."""
    return role("PYTHON", f"SERVER {{address}} {{port}}{' daemon' if daemon else ''}", further)
