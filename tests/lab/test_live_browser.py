"""The page of a running run in a browser: figures, charts, tables, reconnection, and the report at the end.

Needs Chromium (Debian package `chromium`); if WAYSTAGE_REQUIRE_PEERS is set, its absence is a failure.
"""

import os
import shutil
import time

import pytest
from browser import Browser, program
from live_page import Live, judged, metrics_server, second, seconds_file, step
from test_browser import brightness

from waylab.cli import live as live_module
from waylab.runfolder import paths

# What the page shows once it has seconds and stages of a trial, and two finished ones.
READY = "document.querySelectorAll('.chart svg').length === 3 && document.querySelectorAll('#rows tr').length === 2"
BEYOND = """[...document.querySelectorAll('body *')].filter(part =>
  !part.parentElement.closest('.frame, .chart')
  && part.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(part => part.outerHTML.slice(0, 80))"""
# Headings and results of tables that take more than one line.
BROKEN = """[...document.querySelectorAll('th, .pass, .fail')].filter(part => {
  const range = document.createRange();
  range.selectNodeContents(part);
  return range.getClientRects().length > 1;
}).map(part => part.textContent)"""
# Of every text in a chart: how far it reaches beyond its chart.
CUT = """[...document.querySelectorAll('.chart svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].map(text => {
    const place = text.getBoundingClientRect();
    return Math.max(place.right - frame.right, frame.left - place.left, frame.top - place.top);
  });
})"""


@pytest.fixture(scope="module")
def browser():
    if program() is None:
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, (
            "chromium is required here (Debian package chromium)"
        )
        pytest.skip("chromium not installed; test_live reads the events without drawing them")
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def directory(reported, tmp_path_factory):
    """A run folder with its report; tests write seconds into it."""
    copy = tmp_path_factory.mktemp("live") / reported.name
    shutil.copytree(reported, copy)
    return copy


def wait_until(browser, expression):
    deadline = time.monotonic() + 120
    while not browser.value(expression):
        assert time.monotonic() < deadline, f"{expression} does not come true; errors: {browser.errors}"
        time.sleep(0.05)


def fill(live, directory, metrics):
    """Show two finished trials and one that runs."""
    live.show(*judged(directory))
    live.show(*judged(directory, 1, used=False))
    live.show(step(directory, 2), None)
    lines = [second(number, 900 + 20 * (number % 5), p99_ns=600_000 + 90_000 * number) for number in range(3)]
    seconds_file(directory, 2).write_text("".join(lines))
    time.sleep(live_module._PROGRESS_INTERVAL_S)
    live.show(step(directory, 2, left_s=75.0, stage_metrics={"proxy": metrics}), None)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_the_running_trial_is_drawn_and_readable(browser, directory, tmp_path, width, dark):
    with metrics_server() as metrics, Live(directory, 0) as live:
        fill(live, directory, metrics)
        browser.open(live.address, width=width, dark=dark, ready=READY)
        wait_until(browser, "stages.length && stages[0].window_ns !== null")
        browser.screenshot(tmp_path / f"live-{width}-{'dark' if dark else 'light'}.png")
        assert browser.errors == []
        assert [url for url in browser.requests if not url.startswith(("http://127.0.0.1:", "data:"))] == []
        assert browser.value(BEYOND) == []
        assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert max(browser.value(CUT)) <= 1
        assert browser.value(BROKEN) == []
        text = brightness(browser.value("getComputedStyle(document.body).color"))
        back = brightness(browser.value("getComputedStyle(document.body).backgroundColor"))
        chart = brightness(browser.value("getComputedStyle(document.querySelector('.chart text')).fill"))
        assert (text > 0.7 and back < 0.2 and chart > 0.7) if dark else (text < 0.3 and back > 0.9)
        figures = browser.value("document.getElementById('last').textContent")
        assert figures == "second2requests/s940p50200 µsmean250 µsp99780 µserrors0"
        assert browser.value("document.title") == "2/12 synthetic"
        progress = browser.value("document.getElementById('progress').textContent")
        assert progress == (
            "2 of 12 trials · 1 passed, 1 failed their gates · 12 measured before this start · about 1 min 15 s left"
        )
        rows = browser.value(
            "[...document.querySelectorAll('#rows tr')].map(row => row.cells[2].textContent)"
        )
        # The newest first; a reason is text, whatever is in it.
        assert rows[1] == "passed" and rows[0].startswith("FAILED") and "<b>of the machine</b>" in rows[0]
        gates = browser.value(
            "[...document.querySelectorAll('#gate-rows tr')].map(row => row.cells[1].textContent)"
        )
        assert gates == ["passed", "FAILED"]


def test_the_page_follows_the_seconds(browser, directory):
    with metrics_server() as metrics, Live(directory, 0) as live:
        fill(live, directory, metrics)
        browser.open(live.address, ready=READY)
        line = "document.querySelector('#chart-throughput path').getAttribute('d').split('L').length"
        assert browser.value(line) == 3
        with seconds_file(directory, 2).open("a") as file:
            file.write(second(3, 1700, errors=7, p99_ns=None))
        wait_until(browser, f"{line} === 4")
        figures = browser.value("document.getElementById('last').textContent")
        assert figures == "second3requests/s1,700p50200 µsmean250 µsp99–errors7"
        live.show(step(directory, 3), None)
        wait_until(browser, "!document.getElementById('no-seconds').hidden")
        assert browser.value("document.querySelectorAll('figure:not([hidden])').length") == 0
        assert browser.errors == []


def test_the_page_connects_again_and_the_report_outlives_the_server(browser, directory):
    with metrics_server() as metrics:
        with pytest.raises(RuntimeError), Live(directory, 0) as first:
            port = int(first.address.rsplit(":", 1)[1].strip("/"))
            fill(first, directory, metrics)
            browser.open(first.address, ready=READY)
            # As after kill -9 of the lab: no end is sent.
            first._process.kill()
            first._process.wait()
            wait_until(browser, "!document.getElementById('connection').hidden")
            assert str(directory) in browser.value("document.getElementById('connection').textContent")
            raise RuntimeError
        with Live(directory, port) as live:
            fill(live, directory, metrics)
            wait_until(browser, f"document.getElementById('connection').hidden && {READY}")
            # The browser reports the lost connection.
            browser.errors.clear()
        # The server has ended.
        wait_until(browser, "!document.getElementById('over').hidden")
        wait_until(browser, "!document.getElementById('report').hidden")
        assert browser.value("document.getElementById('over-text').textContent") == "The run is over."
        path = browser.value("document.getElementById('report-path').textContent")
        assert path == str(directory.resolve() / paths.REPORT)
        browser.value("document.getElementById('report').click()")
        wait_until(browser, "document.querySelectorAll('.key .chart svg.marks').length === 3")
        assert browser.errors == []


def test_a_run_that_was_stopped_says_so(browser, directory):
    with pytest.raises(RuntimeError), Live(directory, 0) as live:
        browser.open(live.address, ready="run")
        raise RuntimeError("stopped; continue with: waylab run --resume <b>X</b>")
    wait_until(browser, "!document.getElementById('over').hidden")
    text = browser.value("document.getElementById('over-text').textContent")
    assert text == "stopped; continue with: waylab run --resume <b>X</b>"
    assert browser.value("document.getElementById('report').hidden")


def test_a_hidden_page_gives_its_connection_up(browser, directory):
    with Live(directory, 0) as live:
        browser.open(live.address, ready="run")
        hidden = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => HIDDEN }); "
        hidden += "document.dispatchEvent(new Event('visibilitychange')); 0"
        browser.value(hidden.replace("HIDDEN", "true"))
        assert browser.value("source === null")
        browser.value(hidden.replace("HIDDEN", "false"))
        wait_until(browser, "source && source.readyState === EventSource.OPEN")
        live.note("analysing")
        wait_until(browser, "document.getElementById('note').textContent === 'analysing'")
