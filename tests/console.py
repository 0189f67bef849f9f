"""Runs the commands of a page of docs: its ```console blocks are one session of bash, with the expected output of each.

In the expected output, a line `...` stands for any lines, and a number for any number, with any unit of time.
Where it is `VALID`, a load may also end with the verdict that other programs delayed the generator.
Ports of 127.0.0.1 are replaced by free ones. A command that ends in `&` runs until the end of the page.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from programs import ROOT, WAYSTAGE, free_ports

# Long, because test machines are slow: it limits only commands that never end.
PATIENCE_S = 600.0
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}")
# What a load prints on a machine that is too busy to measure; its exit code is then 1.
_LATE = r"INVALID: the generator was late: .*\nwaystage: the run is not valid: .*\n"
_NUMBER = r"[\d][\d.,]*(?:\s?(?:ns|us|ms|s|k|M)\b)?"


@dataclass
class Step:
    """One command of a page, and the lines that the page shows below it."""

    command: str
    expected: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    """Return the commands of the console blocks, in order."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                found[-1].expected.append(line)
    return found


def pattern(lines: list[str]) -> re.Pattern[str]:
    """Return what an output must match as a whole."""
    parts = []
    for line in lines:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        if line == "READY":
            parts.append(r".*\bready\b.*\n")
            continue
        if line == "VALID":
            parts.append(rf"(?:VALID\n|{_LATE})")
            continue
        words = re.sub(_NUMBER, "\0", line).split()
        text = r"[ \t]+".join(re.escape(word).replace("\0", _NUMBER) for word in words)
        parts.append(rf"[ \t]*{text}[ \t]*\n" if words else r"[ \t]*\n")
    return re.compile("".join(parts))


class Session:
    """A shell in which the commands of one page run; all that it has started ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, str] = {}
        programs = folder / "bin"
        programs.mkdir()
        (programs / "waystage").symlink_to(WAYSTAGE)
        (programs / "waylab").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m waylab "$@"\n')
        (programs / "waylab").chmod(0o755)
        for name in ("experiments", "examples", "docs"):
            (folder / name).symlink_to(ROOT / name)
        variables = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            cwd=folder,
            env=os.environ | variables,
            text=True,
            start_new_session=True,
        )
        self._count = 0

    def close(self) -> None:
        """End the shell and every process that it has started."""
        os.killpg(self._shell.pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._alive():
            time.sleep(0.05)
        if self._alive():
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        if self._shell.stdin:
            self._shell.stdin.close()

    def run(self, step: Step) -> str:
        """Run one command and return its output; raises AssertionError if it is not as the page shows."""
        self._count += 1
        output, status = self.folder / f"output.{self._count}", self.folder / f"status.{self._count}"
        command = self._with_ports(step.command)
        background = command.endswith("&")
        if background:
            line = f"{command[:-1]} > {output} 2>&1 &\n"
        else:
            line = f"{{ {command}\n}} > {output} 2>&1; echo $? > {status}.part; mv {status}.part {status}\n"
        assert self._shell.stdin
        self._shell.stdin.write(line)
        self._shell.stdin.flush()
        expected = pattern([self._with_ports(line) for line in step.expected])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = status.exists()
            text = output.read_text() if output.exists() else ""
            text += "" if not text or text.endswith("\n") else "\n"
            if expected.fullmatch(text) and (background or done):
                break
            shown = f"$ {step.command}\n{text}\n--- is not as the page shows:\n" + "\n".join(step.expected)
            assert not done and time.monotonic() < deadline, shown
            time.sleep(0.05)
        failure = f"$ {step.command}\n{text}\nexit code {status.read_text() if done else None}"
        assert background or status.read_text().strip() == "0" or re.search(_LATE, text), failure
        return text

    def _alive(self) -> bool:
        try:
            os.killpg(self._shell.pid, 0)
        except ProcessLookupError:
            return False
        self._shell.poll()
        return True

    def _with_ports(self, text: str) -> str:
        for port in _PORT.findall(text):
            if port not in self._ports:
                self._ports[port] = str(free_ports(1)[0])
        return _PORT.sub(lambda found: self._ports[found.group()], text)


def main() -> None:
    """Print what the commands of a page print now: `python tests/console.py PAGE FOLDER`."""
    session = Session(Path(sys.argv[2]))
    try:
        for step in steps(Path(sys.argv[1]).read_text()):
            print("$", step.command)
            # A server that runs until the end says when it is ready; every other command ends.
            step.expected = ["...", "READY", "..."] if step.command.endswith("&") else ["..."]
            print(session.run(step), end="", flush=True)
    finally:
        session.close()


if __name__ == "__main__":
    main()
