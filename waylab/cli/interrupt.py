"""A signal that asks the lab to stop: heard at once, and not forgotten when the exception is lost on its way."""

from types import FrameType
from typing import Never


class Interrupt:
    """Handler of SIGINT and SIGTERM.

    An exception that is raised while a finaliser or a weak reference's callback runs is printed and dropped by
    Python; so whoever works for long also calls `check` now and then.
    """

    def __init__(self) -> None:
        self._asked = False

    def ask(self, number: int, frame: FrameType | None) -> Never:
        """Take the signal."""
        self._asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt when a signal has come, even if that was noticed before."""
        if self._asked:
            raise KeyboardInterrupt
