"""What the page shows at this moment. Every open page has a cursor; it receives what changed since its last event.

Its size is bounded: old seconds and old trials are forgotten. A page that connects again receives all of it.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from waylab.live.messages import Finished, Note, Over, Running
from waylab.live.seconds import Second
from waylab.live.stages import StageTime
from waylab.runfolder.run import Run

SECONDS_MAX = 600
FINISHED_MAX = 200
# A name of an event, and its content.
Event = tuple[str, object]


@dataclass
class Cursor:
    """How much of the board one page has received."""

    ran: bool = False
    state: int = 0
    trial: int = -1
    seconds: int = 0
    stages: int = 0
    finished: int = 0
    over: bool = False


@dataclass
class _Trial:
    """The running trial. `first` is the number of the oldest second that is kept, counted from the first one read."""

    number: int = 0
    name: str = ""
    seconds: list[Second] = field(default_factory=list)
    first: int = 0
    stages: list[StageTime] = field(default_factory=list)


class Board:
    """The state of the page, shared by the threads of the process."""

    def __init__(self, run: Run, folder: str, measured: int) -> None:
        self._changed = threading.Condition()
        self._run = {
            "name": run.name,
            "question": run.spec.question,
            "folder": folder,
            "planned": len(run.plan),
            "measured_before": measured,
        }
        self._plan = {trial.id: trial for trial in run.plan}
        self._state: dict[str, object] = {"done": measured, "total": len(run.plan), "left_s": None}
        self._judged = {"passed": 0, "failed": 0}
        self._state |= {**self._judged, "note": "", "trial": None}
        self._state_number = 1
        self._trial = _Trial()
        self._stages_number = 0
        self._finished: list[dict[str, object]] = []
        self._finished_number = 0
        self.over: Over | None = None

    def progress(self, message: Running) -> None:
        """Set the progress; pages receive it with the next `publish`."""
        with self._changed:
            self._change(done=message.done, total=message.total, left_s=round(message.left_s))

    def began(self, trial: str) -> None:
        """Forget the previous trial."""
        with self._changed:
            self._trial = _Trial(self._trial.number + 1, trial)
            self._stages_number += 1
            self._change(trial=trial, note="")
            self._changed.notify_all()

    def add(self, seconds: list[Second], stages: list[StageTime]) -> None:
        """Add what was read of the running trial."""
        with self._changed:
            self._trial.seconds += seconds
            superfluous = max(0, len(self._trial.seconds) - SECONDS_MAX)
            del self._trial.seconds[:superfluous]
            self._trial.first += superfluous
            if stages:
                self._trial.stages = stages
                self._stages_number += 1

    def finished(self, message: Finished) -> None:
        """Add a trial that has ended."""
        planned = self._plan.get(message.trial)
        row = msgspec.to_builtins(message) | {
            "configuration": planned.configuration if planned else message.trial,
            "block": planned.block if planned else None,
        }
        with self._changed:
            self._finished.append(row)
            del self._finished[:-FINISHED_MAX]
            self._finished_number += 1
            self._judged["passed" if message.passed else "failed"] += 1
            self._change(done=message.done, total=message.total, left_s=round(message.left_s), **self._judged)
            self._changed.notify_all()

    def note(self, message: Note) -> None:
        """Show what the lab does."""
        with self._changed:
            self._change(note=message.text)
            self._changed.notify_all()

    def end(self, message: Over) -> None:
        """Show the end of the run."""
        with self._changed:
            self.over = message
            self._changed.notify_all()

    def publish(self) -> None:
        """Wake the pages that have news."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, cursor: Cursor, timeout_s: float) -> list[Event]:
        """Return what the page of this cursor does not have yet; wait for it at most so long."""
        with self._changed:
            found = self._news(cursor)
            end_s = time.monotonic() + timeout_s
            while not found and (left_s := end_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
                found = self._news(cursor)
            return found

    def _change(self, **values: object) -> None:
        if any(self._state[key] != value for key, value in values.items()):
            # A new object, because another thread may be writing the old one to a page.
            self._state = self._state | values
            self._state_number += 1

    def _news(self, cursor: Cursor) -> list[Event]:
        events: list[Event] = []
        if not cursor.ran:
            cursor.ran = True
            events.append(("run", self._run))
        missing = self._finished_number - cursor.finished
        if missing:
            cursor.finished = self._finished_number
            events.append(("finished", self._finished[-missing:]))
        if cursor.trial != self._trial.number:
            cursor.trial, cursor.seconds = self._trial.number, self._trial.first
            events.append(("trial", self._described()))
        if cursor.state != self._state_number:
            cursor.state = self._state_number
            events.append(("state", self._state))
        end = self._trial.first + len(self._trial.seconds)
        if cursor.seconds < end:
            new = self._trial.seconds[max(0, cursor.seconds - self._trial.first) :]
            cursor.seconds = end
            events.append(("seconds", new))
        if cursor.stages != self._stages_number:
            cursor.stages = self._stages_number
            events.append(("stages", self._trial.stages))
        if self.over and not cursor.over:
            cursor.over = True
            events.append(("over", self.over))
        return events

    def _described(self) -> Mapping[str, object] | None:
        """Return what the page shows of the running trial, None before the first one."""
        planned = self._plan.get(self._trial.name)
        if planned is None:
            return None
        return {
            "id": planned.id,
            "configuration": planned.configuration,
            "block": planned.block,
            "warm_up_s": planned.load.warm_up_s,
            "test_time_s": planned.load.test_time_s,
            "offered_per_s": planned.load.rate or None,
        }
