"""Handles SIGINT and SIGTERM: raises at once, and again in `check` if Python dropped the first exception."""

from types import FrameType
from typing import Never


class Interrupt:
    """Handler of SIGINT and SIGTERM.

    Python prints and drops an exception that is raised inside a finaliser or a callback of a weak reference. Long work
    therefore calls `check` regularly.
    """

    def __init__(self) -> None:
        self._received = False

    def handle(self, number: int, frame: FrameType | None) -> Never:
        """Record the signal and raise KeyboardInterrupt."""
        self._received = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received, even if it was raised before."""
        if self._received:
            raise KeyboardInterrupt
