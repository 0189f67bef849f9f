"""The process of the page: `python -m waylab.live RUN PORT`. It ends when its standard input does.

The first line of its output is `ready ADDRESS`, or `error REASON`.
"""

import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from waylab.errors import LabError
from waylab.live.board import Board
from waylab.live.messages import Began, Finished, Message, Note, Over, Running
from waylab.live.seconds import TrialSeconds
from waylab.live.server import PageServer
from waylab.live.stages import TrialStages
from waylab.runfolder import paths
from waylab.runfolder.files import read_run, read_trial
from waylab.runfolder.run import Run
from waylab.runfolder.trial import MEASURED

_POLL_S = 1.0
# Pages receive the end of the run, and load its report, within this time.
_LINGER_S, _LINGER_POLL_S = 5.0, 0.02


class Follower:
    """Reads the files and the metrics of the running trial once a second."""

    def __init__(self, directory: Path, run: Run, board: Board) -> None:
        self._directory = directory
        self._plan = {trial.id: trial for trial in run.plan}
        self._board = board
        self._lock = threading.Lock()
        self._seconds: TrialSeconds | None = None
        self._stages = TrialStages()
        self._addresses: dict[str, str] = {}
        self._measuring_from = 0.0
        self._passed = 0

    def hear(self, message: Message) -> None:
        """Apply one line of the lab."""
        if isinstance(message, Running):
            self._addresses = message.stage_metrics
            self._board.progress(message)
        elif isinstance(message, Began):
            self._begin(message)
        elif isinstance(message, Finished):
            # The last seconds were written when the load ended.
            self.poll()
            self._addresses = {}
            self._board.finished(message)
        elif isinstance(message, Note):
            self._board.note(message)
        else:
            self._board.end(message)

    def poll(self) -> None:
        """Read once."""
        with self._lock:
            seconds = self._seconds.poll() if self._seconds else []
            self._passed += len(seconds)
            measuring = self._passed > 0 and self._passed >= self._measuring_from
            stages = self._stages.poll(self._addresses, measuring) if self._addresses else []
            self._board.add(seconds, stages)

    def run(self) -> None:
        """Read once a second."""
        next_s = time.monotonic()
        while True:
            self.poll()
            self._board.publish()
            next_s = max(next_s + _POLL_S, time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _begin(self, message: Began) -> None:
        planned = self._plan.get(message.trial)
        with self._lock:
            self._addresses, self._stages, self._passed = {}, TrialStages(), 0
            self._seconds = None
            if planned:
                folder = paths.trial_directory(self._directory, planned.id)
                generators = max(1, len(planned.assignment.get("load", [])))
                self._seconds = TrialSeconds(folder, generators, message.at_ns)
                self._measuring_from = planned.load.warm_up_s
            self._board.began(message.trial)


def main() -> int:
    """Serve the page until the lab ends."""
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    try:
        run = read_run(directory, whole=True)
        # Failed trials run again.
        outcomes = [read_trial(directory, trial.id) for trial in run.plan]
        measured = sum(outcome is not None and outcome.status == MEASURED for outcome in outcomes)
        board = Board(run, str(directory.resolve()), measured)
        server = PageServer(port, board, directory)
    except LabError as error:
        print(f"error {error}", flush=True)
        return 1
    except OSError as error:
        print(f"error {error.strerror or error}", flush=True)
        return 1
    print(f"ready {server.address}", flush=True)
    follower = Follower(directory, run, board)
    for target in (server.serve_forever, follower.run):
        threading.Thread(target=target, daemon=True).start()
    decoder = msgspec.json.Decoder(Message)
    for line in sys.stdin.buffer:
        message = decoder.decode(line)
        open_pages = server.pages.taken
        follower.hear(message)
        if isinstance(message, Over):
            _linger(server, open_pages if message.report else 0)
            break
    return 0


def _linger(server: PageServer, reports: int) -> None:
    """Wait until every open page has the end of the run, and so many have loaded its report."""
    deadline = time.monotonic() + _LINGER_S
    while (server.pages.taken or len(server.reports) < reports) and time.monotonic() < deadline:
        time.sleep(_LINGER_POLL_S)


if __name__ == "__main__":
    code = main()
    # Threads that serve stalled clients are not waited for.
    sys.stdout.flush()
    os._exit(code)
