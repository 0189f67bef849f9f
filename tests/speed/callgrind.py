"""Counts instructions of a program with valgrind's callgrind, in total and by function.

valgrind maps no vDSO, but valgrind 3.19 lets the kernel list it, and a program that uses rustix then crashes. `command`
therefore runs this file, which makes the kernel refuse the list and then becomes valgrind.
"""

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FUNCTION = re.compile(r"^\s*([\d,]+) \([ \d.]+%\)\s+\S*?:(.+?)(?: \[.*\])?$")
TOTAL = re.compile(r"^\s*([\d,]+) \([ \d.]+%\)\s+PROGRAM TOTALS")
FILE = "callgrind.out"
# Constants of Linux: prctl(2), seccomp(2), and the numbers of the system call prctl on x86-64 and aarch64.
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_GET_AUXV = 22, 38, 0x41555856
SECCOMP_MODE_FILTER = 2
PRCTL = {"x86_64": 157, "aarch64": 167}


@dataclass(frozen=True)
class Counts:
    """What one request needs, in total and by function or system call."""

    total: float
    parts: list[tuple[str, float]]


def command(folder: Path, program: list[str]) -> list[str]:
    """Return the command that runs a program and writes its counts into the folder."""
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / FILE}"]
    return [sys.executable, __file__, *valgrind, *program]


@contextmanager
def counted(pid: int, folder: Path, requests: int) -> Iterator[list[Counts]]:
    """Count the instructions of a process of `command` in the block; the list has their counts per request after it."""
    found: list[Counts] = []
    subprocess.run(["callgrind_control", "--zero", str(pid)], check=True, capture_output=True)
    yield found
    subprocess.run(["callgrind_control", "--dump=all", str(pid)], check=True, capture_output=True)
    (dump,) = (path for path in folder.glob(f"{FILE}.*") if path.suffix.lstrip(".").isdigit())
    found.append(read(dump, requests))


def read(file: Path, requests: int) -> Counts:
    """Read a file of callgrind, and delete it."""
    annotate = ["callgrind_annotate", "--auto=no", "--threshold=100", str(file)]
    text = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
    file.unlink()
    return parsed(text, requests)


def parsed(text: str, requests: int) -> Counts:
    """Read the counts of callgrind_annotate."""
    parts: dict[str, float] = {}
    whole = 0.0
    for line in text.splitlines():
        if found := TOTAL.match(line):
            whole = number(found[1]) / requests
        elif found := FUNCTION.match(line):
            name = found[2].strip()
            parts[name] = parts.get(name, 0.0) + number(found[1]) / requests
    # The first functions of the event loop have the counts of all that they call, because counting began within them.
    own = ((name, count) for name, count in parts.items() if count < whole)
    return Counts(whole, sorted(own, key=lambda part: -part[1]))


def number(text: str) -> int:
    """Read a number with commas."""
    return int(text.replace(",", ""))


class Filter(ctypes.Structure):
    """A filter of system calls: the number of its instructions, and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def hide_vdso() -> None:
    """Make the kernel refuse to list the vDSO. This applies to the process and to the program that it becomes."""
    load, is_equal, reply = 0x20, 0x15, 0x06
    instructions = [
        (load, 0, 0, 0),
        (is_equal, 0, 3, PRCTL[os.uname().machine]),
        (load, 0, 0, 16),
        (is_equal, 0, 1, PR_GET_AUXV),
        (reply, 0, 0, 0x00050000 | 22),
        (reply, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code)
    libc = ctypes.CDLL(None, use_errno=True)
    found = Filter(len(instructions), ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(found)
    ):
        raise OSError(ctypes.get_errno(), "the vDSO cannot be hidden")


if __name__ == "__main__":
    hide_vdso()
    os.execvp(sys.argv[1], sys.argv[1:])
