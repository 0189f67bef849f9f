"""Progress of work that takes longer than two seconds: one line on the terminal, removed at the end."""

import time
from threading import Timer
from types import TracebackType

from rich.console import Console
from rich.status import Status

from waylab.cli.interrupt import Interrupt

_PATIENCE_S = 2.0


class Patience:
    """Shows progress on standard error, on terminals only, once the work takes longer than two seconds."""

    def __init__(self, work: str, interrupt: Interrupt, total: int | None = None) -> None:
        self._work = work
        self._interrupt = interrupt
        self._total = total
        self._begun_s = time.monotonic()
        self._status = Status(f"{work} …", console=Console(stderr=True))
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

    def report(self, done: int) -> None:
        """Show how many steps are done, and stop if the user interrupted."""
        self.check()
        of = f" of {self._total:,}" if self._total else ""
        self.show(f"{done:,}{of} done")

    def show(self, text: str) -> None:
        """Show the progress as text."""
        self._status.update(f"{self._work}: {text}, {time.monotonic() - self._begun_s:.0f} s")

    def check(self) -> None:
        """Stop if the user interrupted."""
        self._interrupt.check()
