"""`waylab run --live`: starts the process of the page, and writes to it what the progress bar shows.

The lab never waits for the page: what its pipe cannot hold is kept until the next step, and progress is left out.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from waylab.errors import LabError
from waylab.live.messages import Began, Finished, JudgedGate, Message, Note, Over, Running
from waylab.run import Step
from waylab.runfolder.gate_words import gate_limit, gate_value, gate_words, reasons_words
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.testbed.processes import popen_tied

_READY_WITHIN_S = 30.0
_PROGRESS_INTERVAL_S = 1.0
# Open pages receive the end and load the report; the process limits this itself.
_ENDED_WITHIN_S = 10.0


class Live:
    """The page of a run, as a context: leaving it tells the open pages that the run is over, and why."""

    def __init__(self, directory: Path, port: int) -> None:
        """Start the process; port 0 is any free one.

        Raises:
            LabError: if the page cannot be served.
        """
        command = [sys.executable, "-P", "-m", "waylab.live", str(directory), str(port)]
        # The package that runs now, wherever Python would search for one.
        package = str(Path(__file__).parents[2])
        search = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = popen_tied(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": search}
        )
        self._directory = directory
        self._pipe: IO[bytes] | None = self._process.stdin
        self._unsent = bytearray()
        self._progress_s = 0.0
        self._trial: str | None = None
        try:
            self.address = self._wait_until_ready(port)
            assert self._pipe
            os.set_blocking(self._pipe.fileno(), False)
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> "Live":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end(Over("The run is over.", report=True))
            else:
                self._end(Over(str(error) or "The run was stopped.", report=False))
        finally:
            self._kill()

    def show(self, step: Step, judged: AnalysedTrial | None) -> None:
        """Report a step; `judged` is the trial that it ended, if it ended one."""
        if judged is not None:
            self._trial = None
            self._send(_finished(step, judged))
            return
        if step.trial.id != self._trial:
            self._trial = step.trial.id
            self._progress_s = 0.0
            self._send(Began(step.trial.id, time.time_ns()))
        now_s = time.monotonic()
        if now_s >= self._progress_s + _PROGRESS_INTERVAL_S and not self._unsent:
            self._progress_s = now_s
            self._send(Running(step.trial.id, step.done, step.total, step.left_s, dict(step.stage_metrics)))

    def note(self, text: str) -> None:
        """Show what the lab does now."""
        self._send(Note(text))

    def _send(self, message: Message) -> None:
        """Write a line, as far as the pipe has room; the rest is written with the next one."""
        if self._pipe is None:
            return
        self._unsent += msgspec.json.encode(message) + b"\n"
        self._flush()

    def _flush(self) -> None:
        if self._pipe is None:
            return
        try:
            while self._unsent:
                del self._unsent[: os.write(self._pipe.fileno(), self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The page is gone; the run continues without it.
            self._close()

    def _end(self, message: Over) -> None:
        """Send the end, and wait until the process has passed it on."""
        self._send(message)
        deadline_s = time.monotonic() + _ENDED_WITHIN_S
        while self._pipe and self._unsent and (left_s := deadline_s - time.monotonic()) > 0:
            select.select([], [self._pipe], [], left_s)
            self._flush()
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))

    def _close(self) -> None:
        self._unsent.clear()
        if self._pipe:
            with contextlib.suppress(OSError):
                self._pipe.close()
        self._pipe = None

    def _kill(self) -> None:
        self._close()
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _wait_until_ready(self, port: int) -> str:
        """Return the address of the page."""
        output = self._process.stdout
        assert output
        readable, _, _ = select.select([output], [], [], _READY_WITHIN_S)
        word, _, rest = (output.readline().decode() if readable else "").strip().partition(" ")
        if word == "ready":
            return rest
        where = f"port {port}: " if port else ""
        raise LabError(
            f"run: --live: {where}{rest or 'the page was not ready in time'}; "
            "give another --live-port, or leave it out for a free one"
        )


def _finished(step: Step, judged: AnalysedTrial) -> Finished:
    numbers = judged.numbers
    everything = numbers.operations.get("all") if numbers else None
    return Finished(
        trial=judged.id,
        done=step.done,
        total=step.total,
        left_s=step.left_s,
        passed=judged.used,
        reasons=reasons_words(judged.reasons),
        gates=[
            JudgedGate(
                gate_words(gate.name),
                gate.passed,
                gate_value(gate.name, gate.value),
                gate_limit(gate.name, gate.limit),
            )
            for gate in judged.gates
            if gate.passed is not None
        ],
        throughput_per_s=numbers.throughput_per_s if numbers else None,
        response_mean_ns=everything.response_mean_ns if everything else None,
        response_p99_ns=everything.percentiles_ns.get("99") if everything else None,
    )
