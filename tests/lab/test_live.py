"""The page of a running run, without a browser: its events, its limits, and its end."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hdrh.histogram import HdrHistogram
from live_page import (
    TIMEOUT_S,
    Events,
    judged,
    metrics_page,
    metrics_server,
    second,
    seconds_file,
    step,
)

from waylab.cli import live as live_module
from waylab.cli import main
from waylab.cli.live import Live
from waylab.errors import LabError
from waylab.live.board import FINISHED_MAX, SECONDS_MAX, Board, Cursor
from waylab.live.messages import Finished, Note
from waylab.live.seconds import TrialSeconds
from waylab.live.server import CONNECTIONS_MAX, PAGES_MAX, PageServer, _Handler
from waylab.live.stages import TrialStages, stage_totals
from waylab.runfolder import paths
from waylab.runfolder.files import read_run


def get(address, path="/", host=None, **headers):
    """Return status and content of a page; `host` may be several values of the header, or none."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for value in [parts.netloc] if host is None else host:
            connection.putheader("Host", value)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def wait_for(condition, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def refused(address):
    """Whether nothing listens at an address any more."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=5).close()
    except OSError:
        return True
    return False


def test_a_page_receives_progress_seconds_stages_gates_and_the_end(empty_run):
    with metrics_server() as metrics, Live(empty_run, 0) as live:
        page = Events(live.address)
        assert page.answer.headers["Content-Type"] == "text/event-stream"
        run = page.until("run")
        assert run["question"] == "Is the lab right?" and run["planned"] == 12 and run["measured_before"] == 0
        live.show(step(empty_run), None)
        assert page.until("trial", bool)["warm_up_s"] == 1.0
        with seconds_file(empty_run).open("w") as file:
            file.write(second(0, 10) + second(1, 20) + '{"second": 2, "requ')
        live.show(step(empty_run), None)
        assert [one["requests"] for one in page.until("seconds")] == [10, 20]
        # The rest of the line, and one that is not a second.
        with seconds_file(empty_run).open("a") as file:
            file.write('ests": 5}\n' + "{}\n[]\n1\n" + second(3, 40, p99_ns=None))
        (last,) = page.until("seconds")
        assert (last["second"], last["requests"], last["p99_ns"]) == (3, 40, None)
        time.sleep(live_module._PROGRESS_INTERVAL_S)
        live.show(step(empty_run, stage_metrics={"proxy": metrics}, left_s=41.0), None)
        assert page.until("state", lambda state: state["left_s"] == 41)["done"] == 0
        stages = page.until("stages", lambda stages: stages and stages[0]["window_ns"] is not None)
        assert [one["stage"] for one in stages[:2]] == ["parse", "route"]
        assert [one["last_ns"] for one in stages] == pytest.approx([1000 * (n + 1) for n in range(8)])
        assert stages[0]["window_ns"] == pytest.approx(1000)
        live.show(*judged(empty_run))
        live.show(*judged(empty_run, 1, used=False))
        ended = page.until("finished")
        first, failed = ended if len(ended) == 2 else (*ended, *page.until("finished"))
        assert first["passed"] and [gate["value"] for gate in first["gates"]] == ["0.1 %", "5 %"]
        assert not failed["passed"] and "40 % <b>of" in failed["reasons"]
        live.note("analysing")
        state = page.until("state", lambda state: state["note"] == "analysing")
        assert (state["done"], state["passed"], state["failed"]) == (2, 1, 1)
    assert page.until("over") == {"type": "over", "text": "The run is over.", "report": True}
    assert page.next() is None and refused(live.address)


def test_a_failed_trial_which_runs_again_is_not_counted_as_measured(run_folder):
    first, *_ = read_run(run_folder).plan
    path = run_folder / "trials" / first.id / "trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "failed", "reason": "it died"}))
    with Live(run_folder, 0) as live:
        page = Events(live.address)
        planned = page.until("run")
        assert planned["measured_before"] == planned["planned"] - 1
        assert page.until("state")["done"] == planned["planned"] - 1
        page.close()


def test_a_page_that_connects_again_receives_everything(empty_run):
    with Live(empty_run, 0) as live:
        live.show(*judged(empty_run))
        live.show(step(empty_run, 1), None)
        seconds_file(empty_run, 1).write_text(second(0, 7))
        first = Events(live.address)
        assert len(first.until("seconds")) == 1
        first.close()
        again = Events(live.address)
        names = []
        while "seconds" not in names:
            names.append(again.next()[0])
        assert names == ["run", "finished", "trial", "state", "seconds"]
        again.close()


def test_the_seconds_of_an_earlier_measurement_are_not_shown(empty_run):
    path = seconds_file(empty_run)
    path.write_text(second(0, 1) + second(1, 2))
    began_ns = path.stat().st_mtime_ns + 1
    followed = TrialSeconds(path.parent, 1, began_ns)
    assert followed.poll() == []
    path.write_text(second(0, 3))
    os.utime(path, ns=(began_ns, began_ns))
    assert [one["requests"] for one in followed.poll()] == [3]


def test_the_seconds_of_several_generators_are_added_up(tmp_path):
    """Percentiles come from the histograms of all, with failed requests as the slowest, as in a merged summary."""
    drawn = random.Random(5)
    values = [[drawn.randint(1_000, 50_000_000) for _ in range(count)] for count in (400, 90)]
    folder = tmp_path / "trial"
    folder.mkdir()
    for generator, times in enumerate(values):
        histograms = {}
        for name, half in (("get", times[::2]), ("set", times[1::2])):
            histogram = HdrHistogram(1, 3_600_000_000_000, 3)
            for time_ns in half:
                histogram.record_value(time_ns)
            histograms[name] = histogram.encode().decode()
        line = second(0, len(times), errors=3, sum_ns=sum(times), max_ns=max(times), histograms=histograms)
        (folder / f"seconds-{generator}.jsonl").write_text(line)
    with (folder / "seconds-1.jsonl").open("a") as file:
        file.write(second(1))
    (one,) = TrialSeconds(folder, 2, 0).poll()
    everything = sorted(time_ns for times in values for time_ns in times)
    assert (one["requests"], one["errors"]) == (490, 6)
    assert one["mean_ns"] == pytest.approx(sum(everything) / 490)
    # Ranks 248 and 492 of 496: the second one is a failed request.
    assert one["p50_ns"] == pytest.approx(everything[247], rel=0.002) and one["p99_ns"] is None


def test_stage_times_are_increases_over_all_processes():
    assert stage_totals(metrics_page(400))["route"] == (pytest.approx(400 * 2e-6), 400)
    assert stage_totals('waystage_stage_seconds_sum{stage="a"} x\nother 1\n') == {}
    with metrics_server() as one, metrics_server() as other:
        stages = TrialStages()
        assert stages.poll({"proxy-0": one, "proxy-1": other}, measuring=False) == []
        found = stages.poll({"proxy-0": one, "proxy-1": other}, measuring=False)
        assert found[1]["last_ns"] == pytest.approx(2000) and found[1]["window_ns"] is None
        # A process that does not answer is left out, and nothing is shown if none answers.
        assert stages.poll({"proxy-0": "http://127.0.0.1:1/metrics"}, measuring=True) == []
        found = stages.poll({"proxy-0": one}, measuring=True)
        assert found[7]["last_ns"] == found[7]["window_ns"] == pytest.approx(8000)


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        (["127.0.0.1"], {}, 200),
        (["LocalHost:8080"], {}, 200),
        (["localhost:8080"], {"Origin": "http://localhost:8080"}, 200),
        (["evil.example"], {}, 403),
        (["127.0.0.1.evil.example"], {}, 403),
        (["localhost.evil.example:8080"], {}, 403),
        (["127.0.0.1:80@evil.example"], {}, 403),
        ([], {}, 403),
        (["localhost", "evil.example"], {}, 403),
        (["localhost:8080"], {"Origin": "http://evil.example"}, 403),
        (["localhost:8080"], {"Origin": "http://localhost:8081"}, 403),
        (["localhost:8080"], {"Origin": "null"}, 403),
        # Images, frames and scripts of other pages have no origin.
        (["localhost:8080"], {"Sec-Fetch-Site": "same-origin"}, 200),
        (["localhost:8080"], {"Sec-Fetch-Site": "none"}, 200),
        (["localhost:8080"], {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403),
        (["localhost:8080"], {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, 403),
        (["localhost:8080"], {"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_only_pages_of_this_machine_are_answered(server, host, headers, status):
    for path in ("/", "/events") if status != 200 else ("/",):
        found, content = get(server.address, path, host, **headers)
        assert found == status and ("Is the lab right?" not in content)


def test_a_link_on_another_page_opens_the_page_and_nothing_else(server):
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert get(server.address, "/", **linked)[0] == 200
    assert get(server.address, "/report.html", **linked)[0] == 403
    events = Events(server.address, **linked)
    assert events.status == 403
    events.close()


def test_an_image_of_another_page_takes_no_place(server):
    """Otherwise a page that was open in the same browser could keep the pages of the user away."""
    pages = [Events(server.address, **{"Sec-Fetch-Site": "cross-site"}) for _ in range(3)]
    assert [page.status for page in pages] == [403] * 3 and server.pages.taken == 0
    for page in pages:
        page.close()


@pytest.mark.parametrize("path", ["http://[::1/", "//[", "http://[/?x", "*", "%00"])
def test_a_path_that_is_no_address_is_not_found(server, path):
    assert get(server.address, path)[0] == 404


def test_the_head_of_a_page_can_be_requested(server):
    parts = urlsplit(server.address)
    for path, status in (("/", 200), ("/events", 200), ("/run.json", 404)):
        with socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S) as client:
            client.sendall(f"HEAD {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            head, end, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 %d " % status) and end and not body
    assert server.pages.taken == 0


def test_other_paths_and_methods_are_refused(server):
    assert get(server.address, "/report.html")[0] == 404
    assert get(server.address, "/../run.json")[0] == get(server.address, "/run.json")[0] == 404
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    connection.request("POST", "/", b"x")
    assert connection.getresponse().status == 501
    connection.close()
    assert server.address.startswith("http://127.0.0.1:") and server.socket.getsockname()[0] == "127.0.0.1"


def test_the_page_has_everything_in_itself(server):
    content = get(server.address)[1]
    assert "EventSource" in content and "/* page." not in content
    assert (
        content.count("http://") == content.count("http://www.w3.org/2000/svg") and "https://" not in content
    )
    assert ".innerHTML" not in content and "<script src" not in content


@pytest.fixture
def server(empty_run):
    """A server in this process, whose pages receive nothing yet."""
    serving = PageServer(0, Board(read_run(empty_run), str(empty_run), 0), empty_run)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_hundred_pages_are_limited_and_the_rest_is_refused(server):
    pages = [Events(server.address) for _ in range(PAGES_MAX)]
    assert [page.status for page in pages] == [200] * PAGES_MAX
    for _ in range(100 - PAGES_MAX):
        more = Events(server.address)
        assert more.status == 503
        more.close()
    # The page itself still loads, and a page that is closed makes room.
    assert get(server.address)[0] == 200
    pages.pop().close()
    server.board.note(Note("news"))

    def opened():
        server.board.publish()
        page = Events(server.address)
        pages.append(page)
        return page.status == 200

    # The server notices a closed page when it writes to it.
    count = 0

    def with_news():
        nonlocal count
        count += 1
        server.board.note(Note(f"news {count}"))
        return opened()

    wait_for(with_news, "a closed page still has its place")
    for page in pages:
        page.close()


def test_connections_that_send_nothing_are_limited_and_closed(server, monkeypatch):
    monkeypatch.setattr(_Handler, "timeout", 3.0)
    parts = urlsplit(server.address)
    idle = [socket.create_connection((parts.hostname, parts.port)) for _ in range(CONNECTIONS_MAX)]
    wait_for(lambda: server._connections.taken == CONNECTIONS_MAX, "not all connections were accepted")
    with socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S) as more:
        assert more.recv(100).startswith(b"HTTP/1.0 503")
    wait_for(lambda: server._connections.taken == 0, "idle connections were not closed")
    assert get(server.address)[0] == 200
    for connection in idle:
        connection.close()


def test_a_client_that_sends_its_request_byte_by_byte_is_closed(server, monkeypatch):
    """Otherwise such clients could keep all connections, and the page of the user away."""
    monkeypatch.setattr(_Handler, "timeout", 2.0)
    parts = urlsplit(server.address)
    with socket.create_connection((parts.hostname, parts.port)) as slow:

        def closed():
            try:
                slow.sendall(b"G")
            except OSError:
                return True
            return False

        wait_for(closed, "a client that sends a byte from time to time keeps its connection")
    wait_for(lambda: server._connections.taken == 0, "its connection is still counted")
    # A page is open for longer than that.
    page = Events(server.address)
    time.sleep(2.5)
    server.board.note(Note("news"))
    assert page.until("state", lambda state: state["note"] == "news")
    page.close()


def test_a_page_that_reads_nothing_is_dropped(server, monkeypatch):
    monkeypatch.setattr(_Handler, "timeout", 1.0)
    parts = urlsplit(server.address)
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((parts.hostname, parts.port))
        stalled.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: server.pages.taken == 1, "the page was not opened")
        other = Events(server.address)

        def dropped():
            server.board.note(Note(f"{time.monotonic()} " + "x" * (1 << 20)))
            other.until("state", lambda state: state["note"])
            return server.pages.taken == 1

        wait_for(dropped, "a page that reads nothing keeps its place")
        other.close()


def test_the_board_is_bounded(empty_run):
    board = Board(read_run(empty_run), "", 0)
    trial = read_run(empty_run).plan[0].id
    board.began(trial)
    early = Cursor()
    board.wait(early, 0.0)
    line = {"requests": 1, "errors": 0, "mean_ns": 1.0, "p50_ns": 1.0, "p99_ns": 1.0}
    for number in range(SECONDS_MAX + 50):
        board.add([{"second": number, **line}], [])
    for number in range(FINISHED_MAX + 50):
        board.finished(Finished(trial, number, 1000, 1.0, True, "", []))
    for cursor in (early, Cursor()):
        news = dict(board.wait(cursor, 0.0))
        assert [one["second"] for one in news["seconds"]] == list(range(50, SECONDS_MAX + 50))
        assert len(news["finished"]) == FINISHED_MAX and news["state"]["passed"] == FINISHED_MAX + 50
        assert board.wait(cursor, 0.0) == []


def test_a_port_in_use_is_one_line(capsys, empty_run, spec_path, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ["run", spec_path, "--results", tmp_path / "other", "--live", "--live-port", port]
        code = main([str(word) for word in words])
        error = capsys.readouterr().err.splitlines()[-1]
        assert code == 2
        assert error.startswith(f"waylab: run: --live: port {port}: Address already in use; give another")
        with pytest.raises(LabError, match="in use"):
            Live(empty_run, port)


@pytest.mark.parametrize("value", ["-1", "65536", "x", "1e3", "²"])
def test_a_wrong_port_is_one_line(capsys, value):
    with pytest.raises(SystemExit) as found:
        main(["run", "demo", "--live", "--live-port", value])
    assert found.value.code == 2 and "should be a port" in capsys.readouterr().err


def test_a_port_without_the_page_is_refused(capsys):
    assert main(["run", "demo", "--live-port", "8080"]) == 2
    assert capsys.readouterr().err.endswith("--live-port 8080 is given without --live; add --live\n")


def test_a_run_that_fails_says_so_on_the_page(empty_run):
    with pytest.raises(LabError, match="three"), Live(empty_run, 0) as live:
        page = Events(live.address)
        page.until("state")
        raise LabError("three trials failed")
    assert page.until("over") == {"type": "over", "text": "three trials failed", "report": False}
    assert refused(live.address)


# Opens the page of a run, prints its address, and waits.
OPENED = """
import sys, time
from pathlib import Path
from waylab.cli.live import Live
with Live(Path(sys.argv[1]), 0) as live:
    print(live.address, live._process.pid, flush=True)
    time.sleep(600)
"""


def test_the_page_ends_with_a_lab_that_is_killed(empty_run):
    lab = subprocess.Popen(
        [sys.executable, "-c", OPENED, str(empty_run)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(live_module.__file__).parents[2])},
    )
    try:
        address, pid = lab.stdout.readline().split()
        page = Events(address)
        page.until("state")
        lab.send_signal(signal.SIGKILL)
        assert page.next() is None
        wait_for(lambda: not cmdline(pid) and refused(address), "it still runs")
    finally:
        lab.kill()
        lab.wait()
        lab.stdout.close()


def cmdline(pid):
    """The command line of a process, which a zombie does not have."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_lab_never_waits_for_a_page_that_hangs(empty_run, monkeypatch):
    monkeypatch.setattr(live_module, "_ENDED_WITHIN_S", 1.0)
    with Live(empty_run, 0) as live:
        os.kill(live._process.pid, signal.SIGSTOP)
        ended = judged(empty_run)
        for _ in range(500):
            live.show(*ended)
            live.show(step(empty_run, 1), None)
        # More than the pipe holds.
        assert len(live._unsent) > 1000
    assert live._process.poll() == -signal.SIGKILL


def test_what_a_slow_page_did_not_take_is_sent_later(empty_run):
    with Live(empty_run, 0) as live:
        os.kill(live._process.pid, signal.SIGSTOP)
        ended = judged(empty_run)
        for _ in range(500):
            live.show(*ended)
        os.kill(live._process.pid, signal.SIGCONT)

        def taken():
            live.note("later")
            return not live._unsent

        wait_for(taken, "the rest is not sent")
        page = Events(live.address)
        assert page.until("state", lambda state: state["note"] == "later")["passed"] == 500
        page.close()


def test_the_run_continues_without_a_page_that_was_killed(empty_run):
    with Live(empty_run, 0) as live:
        live._process.kill()
        live._process.wait()
        for _ in range(3):
            live.show(*judged(empty_run))
        live.note("over")


def test_the_names_of_the_files_of_seconds():
    assert paths.seconds_of(paths.LOAD) == "seconds.jsonl"
    assert paths.seconds_of(paths.part_of_load(3)) == "seconds-3.jsonl"
