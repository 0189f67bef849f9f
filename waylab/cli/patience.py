"""What a user sees of work that takes longer than two seconds: a line that says what and how far, then gone again."""

import time
from threading import Timer
from types import TracebackType

from rich.console import Console
from rich.status import Status

from waylab.cli.interrupt import Interrupt

_PATIENCE_S = 2.0


class Patience:
    """Shows itself on a terminal only, on standard error, and only when the work takes long."""

    def __init__(self, what: str, interrupt: Interrupt, total: int | None = None) -> None:
        self._what = what
        self._interrupt = interrupt
        self._total = total
        self._begun_s = time.monotonic()
        self._status = Status(f"{what} …", console=Console(stderr=True))
        self._timer = Timer(_PATIENCE_S, self._status.start)
        self._timer.daemon = True

    def __enter__(self) -> "Patience":
        if self._status.console.is_terminal:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()
        self._status.stop()

    def tell(self, done: int) -> None:
        """So much is done."""
        self.check()
        of = f" of {self._total:,}" if self._total else ""
        self.say(f"{done:,}{of} done")

    def say(self, text: str) -> None:
        """How far it is, in words."""
        self._status.update(f"{self._what}: {text}, {time.monotonic() - self._begun_s:.0f} s")

    def check(self) -> None:
        """Stop if the user asked for it."""
        self._interrupt.check()
