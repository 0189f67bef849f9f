"""Records the README's terminal: runs the commands of SESSION, and draws what they print as an animated SVG.

    make recording      # writes first-minute.svg beside this file; needs the built program, an idle machine and free ports

The commands run at a terminal of COLUMNS columns, so they print what a user sees. The picture has its own dark
background, so it is readable on light and on dark pages. A reader who has switched animations off, and a program that
cannot animate, gets the last scene.
"""

import html
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

ROOT = Path(__file__).resolve().parents[3]
PICTURE = Path(__file__).with_name("first-minute.svg")
COLUMNS = 120
# Long, because test machines are slow: it limits only commands that never end.
PATIENCE_S = 300.0
# Servers that run before the recording begins.
SERVERS = ("waystage cache --listen 127.0.0.1:11221", "waystage cache --listen 127.0.0.1:11222")


@dataclass(frozen=True)
class Scene:
    """One command and what the picture shows of it; the next scene begins with an empty screen."""

    command: str
    # Seconds for which the output stays.
    reading_s: float
    # A server shows this when it is ready, and runs until the end. Other commands end by themselves.
    ready: str = ""


SESSION = (
    Scene(
        "waystage proxy --server 127.0.0.1:11221 --server 127.0.0.1:11222 --replicas 2 --listen 127.0.0.1:11311"
        " --records records &",
        4.0,
        ready="Ctrl-C",
    ),
    Scene("waystage load --server 127.0.0.1:11311 --clients 8 --test-time 3s", 7.0),
    Scene("waylab stages --partial records", 7.0),
    Scene("waylab model network experiments/models/three-tiers.json", 12.0),
)

FONT_PX, LINE_PX, MARGIN_PX = 14, 18, 14
# A monospaced font has characters of 0.6 times its size; textLength makes it exact.
CHARACTER_PX = 0.6 * FONT_PX
TYPING_S, PAUSE_S, LINE_S = 0.02, 0.5, 0.03
BACKGROUND, TEXT, PROMPT = "#1d2430", "#e3e8ee", "#7fd1b9"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def programs(folder: Path) -> dict[str, str]:
    """Prepare a folder in which the commands work as written; return the environment for it."""
    waystage = Path(os.environ.get("WAYSTAGE_BIN", ROOT / "target/release/waystage"))
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "waystage").symlink_to(waystage)
    (bin_folder / "waylab").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m waylab "$@"\n')
    (bin_folder / "waylab").chmod(0o755)
    (folder / "experiments").symlink_to(ROOT / "experiments")
    more = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
    }
    return {key: value for key, value in os.environ.items() if key != "COLUMNS"} | more


class Terminal:
    """A program at a terminal of its own, and what it has printed."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._leader, follower = pty.openpty()
        ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env=environment,
        )
        os.close(follower)
        self._printed = b""

    def read_until(self, text: str) -> str:
        """Return the output when it has this text, or, without one, when the program has ended; raises RuntimeError."""
        deadline = time.monotonic() + PATIENCE_S
        while not (text and text.encode() in self._printed):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._process.args!r} printed only {self._printed!r}")
            if not select.select([self._leader], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(self._leader, 65536)
            except OSError:  # how a terminal says that its last program has ended
                part = b""
            if part:
                self._printed += part
                continue
            if text or self._process.wait() != 0:
                raise RuntimeError(f"{self._process.args!r} failed: {self._printed.decode()}")
            break
        # Up to the end of the line with the text: a log line may follow it.
        end = self._printed.find(b"\n", self._printed.find(text.encode())) if text else -1
        return self._printed[: end if end >= 0 else None].decode()

    def close(self) -> None:
        """Stop the program."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._leader)


def record(session: tuple[Scene, ...], servers: tuple[str, ...]) -> list[list[str]]:
    """Run all commands; return the lines that each has printed. Raises RuntimeError if one fails."""
    outputs = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        environment = programs(folder)
        for command in servers:
            server = Terminal(command, folder, environment)
            stack.callback(server.close)
            server.read_until("ready on")
        for scene in session:
            terminal = Terminal(scene.command.removesuffix("&"), folder, environment)
            stack.callback(terminal.close)
            outputs.append(lines_of(terminal.read_until(scene.ready)))
    return outputs


def lines_of(output: str) -> list[str]:
    """Return the lines without escape codes, each cut at the width of the terminal as words allow."""
    shown: list[str] = []
    for line in ESCAPE.sub("", output).replace("\r\n", "\n").split("\n"):
        rest = line.rsplit("\r", 1)[-1].rstrip()
        while len(rest) > COLUMNS:
            end = rest.rfind(" ", 0, COLUMNS + 1)
            end = COLUMNS if end <= 0 else end
            shown.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        shown.append(rest)
    while shown and not shown[-1]:
        shown.pop()
    while shown and not shown[0]:
        shown.pop(0)
    return shown


def draw(session: tuple[Scene, ...], outputs: list[list[str]]) -> str:
    """Return the SVG: a group for each scene, whose lines appear one after the other, in a loop."""
    screens = [(lines_of(f"$ {scene.command}"), lines) for scene, lines in zip(session, outputs, strict=True)]
    starts, now = [], 0.0
    for scene, (typed, lines) in zip(session, screens, strict=True):
        starts.append(now)
        now += PAUSE_S + TYPING_S * sum(map(len, typed)) + PAUSE_S + LINE_S * len(lines) + scene.reading_s
    total_s, ends = now, [*starts[1:], now]
    rows = max(len(typed) + len(lines) for typed, lines in screens)
    width, height = COLUMNS * CHARACTER_PX + 2 * MARGIN_PX, rows * LINE_PX + 2 * MARGIN_PX
    rules, groups = [], []
    for number, (start, end, (typed, lines)) in enumerate(zip(starts, ends, screens, strict=True)):
        is_last = number == len(screens) - 1
        at_s, parts = start + PAUSE_S, []
        for row, line in enumerate([*typed, *lines]):
            kind = "p" if row < len(typed) else "o"
            parts.append(_text(line, row, kind, f"s{number}r{row}"))
            at_s += TYPING_S * len(line) if kind == "p" else LINE_S
            at_s += PAUSE_S if row == len(typed) - 1 else 0
            rules.append(_appears(f"s{number}r{row}", at_s / total_s, 1.0))
        rules.append(_appears(f"s{number}", start / total_s, end / total_s))
        hidden = "" if is_last else ' opacity="0"'
        groups.append(f'<g id="s{number}"{hidden}>\n' + "\n".join(parts) + "\n</g>")
    title = "; ".join(scene.command for scene in session)
    style = (
        f"text{{font:{FONT_PX}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{TEXT};white-space:pre}}"
        f".p{{fill:{PROMPT}}}\n"
        "@media (prefers-reduced-motion:no-preference){\n"
        f"g,text{{animation-duration:{total_s:.2f}s;animation-iteration-count:infinite;animation-timing-function:step-end}}\n"
        + "\n".join(rules)
        + "\n}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
        f' role="img">\n<title>{html.escape(title)}</title>\n<style>{style}</style>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n' + "\n".join(groups) + "\n</svg>\n"
    )


def _text(line: str, row: int, kind: str, name: str) -> str:
    y = MARGIN_PX + row * LINE_PX + FONT_PX
    length = len(line) * CHARACTER_PX
    size = f' textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"' if line else ""
    return f'<text id="{name}" class="{kind}" x="{MARGIN_PX}" y="{y}" xml:space="preserve"{size}>{html.escape(line)}</text>'


def _appears(name: str, start: float, end: float) -> str:
    """Return the rules that show an element in this part of the loop only."""
    frames = "0%{opacity:0}" if start > 0 else ""
    frames += f"{100 * start:.2f}%{{opacity:1}}"
    frames += f"{100 * end:.2f}%{{opacity:0}}" if end < 1 else "to{opacity:1}"
    return f"#{name}{{animation-name:{name}}}@keyframes {name}{{{frames}}}"


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(SESSION, record(SESSION, SERVERS)))
    print(PICTURE)


if __name__ == "__main__":
    main()
