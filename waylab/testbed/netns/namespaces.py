"""Network namespaces by name: creates, enters and removes them, also those of owners that no longer run.

The only place that imports pyroute2, and only when it is called.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from waylab.testbed.netns.owner import owner_of
from waylab.testbed.processes import TestbedError

_Result = TypeVar("_Result")

DIRECTORY = Path("/var/run/netns")
_CLONE_NEWNET = 0x40000000
# Loaded before any fork: the child must not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)


def pyroute2() -> Any:
    """Import the netlink library; the error says how to install it."""
    try:
        import pyroute2 as library  # noqa: PLC0415
    except ImportError:
        raise TestbedError("pyroute2: is not installed; install it with: pip install pyroute2") from None
    return library


def create(name: str) -> None:
    """Make a namespace; it stays until it is removed, whatever becomes of this process."""
    library = pyroute2()

    def make() -> None:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        library.netns.attach(name, threading.get_native_id())

    # The library would fork for this, and its child would run our signal handlers.
    _in_thread(make)


def remove(name: str) -> None:
    """Remove a namespace, if it is there, with all that is in it."""
    with contextlib.suppress(FileNotFoundError):
        pyroute2().netns.remove(name)


def names() -> list[str]:
    """List the namespaces that have a name, ours and others."""
    try:
        return sorted(entry.name for entry in DIRECTORY.iterdir())
    except FileNotFoundError:
        return []


def remove_leftovers() -> list[str]:
    """Remove the namespaces of killed runs and return their names."""
    removed = []
    for name in names():
        owner = owner_of(name)
        if owner and owner.gone():
            remove(name)
            removed.append(name)
    return removed


def open_namespace(name: str) -> int:
    """Return a descriptor of a namespace, for `enter`."""
    return os.open(DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int) -> None:
    """Move the calling thread into a namespace; makes system calls only, so that a new child may call it."""
    if _LIBC.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def with_netlink(descriptor: int, function: Callable[[Any], _Result]) -> _Result:
    """Call a function with a netlink socket of a namespace; the library wants it used in one thread only."""
    library = pyroute2()

    def call() -> _Result:
        with library.IPRoute() as route:
            return function(route)

    return inside(descriptor, call)


def inside(descriptor: int, function: Callable[[], _Result]) -> _Result:
    """Call a function in a namespace and return its result; sockets opened there stay there."""

    def call() -> _Result:
        enter(descriptor)
        return function()

    return _in_thread(call)


def _in_thread(function: Callable[[], _Result]) -> _Result:
    """Call a function in a thread, which can change its namespace and receives no signals."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
