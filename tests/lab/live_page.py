"""Helpers of the tests of `waylab run --live`: steps of a run, seconds of a load, metrics of a proxy, and a reader."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from waylab.cli.live import Live
from waylab.plan import make_plan
from waylab.run import Step
from waylab.runfolder import paths
from waylab.runfolder.trial_numbers import STAGES, TOTAL, AnalysedTrial, Gate
from waylab.spec import read_spec

# Long, because test machines are slow: it limits only conditions that never become true.
TIMEOUT_S = 120.0


def trials(directory):
    """Return the planned trials of a run folder."""
    return make_plan(read_spec(directory / paths.SPEC)).trials


def step(directory, number=0, left_s=60.0, stage_metrics=None):
    """Return a step within a trial of a run."""
    plan = trials(directory)
    return Step(number, len(plan), plan[number], left_s, stage_metrics=stage_metrics or {})


def judged(directory, number=0, used=True):
    """Return a trial that has ended, and its step."""
    plan = trials(directory)
    trial = plan[number]
    gates = [
        Gate(name="steal", passed=True, value=0.001, limit=0.1, text=""),
        Gate(name="foreign_cpu", passed=used, value=0.05 if used else 0.4, limit=0.2, text=""),
        Gate(name="links", passed=None, value=None, limit=None, text=""),
    ]
    found = AnalysedTrial(
        id=trial.id,
        order=trial.order,
        block=trial.block,
        configuration=trial.configuration,
        levels={},
        seed=1,
        run=True,
        used=used,
        reasons=[] if used else ["foreign_cpu: 40 % <b>of the machine</b>"],
        gates=gates,
    )
    return Step(number + 1, len(plan), trial, 30.0), found


def second(number, requests=1000, **values):
    """Return a line of `--seconds-file`."""
    times = {"mean_ns": 250_000.0, "p50_ns": 200_000, "p99_ns": 900_000, "sum_ns": 250_000 * requests}
    fields = {"second": number, "requests": requests, "errors": 0, "max_ns": 2_000_000, "histograms": {}}
    return json.dumps(fields | times | values) + "\n"


def seconds_file(directory, number=0, generator=None):
    """Return the file of a trial's seconds, whose folder exists then."""
    folder = paths.trial_directory(directory, trials(directory)[number].id)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / ("seconds.jsonl" if generator is None else f"seconds-{generator}.jsonl")


class Events:
    """One open page, as far as the server can see."""

    def __init__(self, address: str, **headers: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
        self._connection.request("GET", "/events", headers=headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def next(self):
        """Return the name and the content of the next event; None at the end of the stream."""
        name, deadline = "", time.monotonic() + TIMEOUT_S
        for line in self.answer:
            assert time.monotonic() < deadline, "no event in time"
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                return name, json.loads(line[6:])
        return None

    def until(self, wanted, condition=lambda content: True):
        """Return the content of the next event of this name that meets a condition."""
        while found := self.next():
            name, content = found
            if name == wanted and condition(content):
                return content
        raise AssertionError(f"the stream ended before {wanted}")

    def close(self):
        """Close the page."""
        self.answer.close()
        self._connection.close()


def metrics_page(requests):
    """Return the stage times of a proxy after so many gets and sets, each 1 us per stage and request, as a page."""
    lines = ["# TYPE waystage_stage_seconds histogram"]
    for operation, share in (("get", 0.75), ("set", 0.25)):
        for rank, stage in enumerate((*STAGES, TOTAL)):
            labels = f'{{operation="{operation}",stage="{stage}"}}'
            count = requests * share
            lines.append(f"waystage_stage_seconds_sum{labels} {count * (rank + 1) * 1e-6:.9f}")
            lines.append(f"waystage_stage_seconds_count{labels} {count:g}")
    return "\n".join(lines) + "\n"


@contextmanager
def metrics_server() -> Iterator[str]:
    """Serve the metrics of a proxy with more requests at each reading; yields the address."""
    readings = iter(range(1, 1_000_000))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(metrics_page(1000 * next(readings)).encode())

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


__all__ = ["Events", "Live", "judged", "metrics_page", "metrics_server", "second", "seconds_file", "step"]
