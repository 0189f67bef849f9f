"""A report in a browser: charts are drawn without errors, and it is readable on a phone, in dark mode and on paper.

Needs Chromium (Debian package `chromium`); if WAYSTAGE_REQUIRE_PEERS is set, its absence is a failure.
"""

import os
import re

import pytest
from browser import Browser, program

from waylab.report import write_campaign

# Charts in closed folds are drawn when those are opened.
DRAWN = """[...document.querySelectorAll('.chart')].every(
  chart => chart.querySelector('svg') || chart.textContent || chart.closest('details:not([open])'))"""
OPEN = "document.querySelectorAll('details').forEach(fold => { fold.open = true; }); 0"
# Of every chart: its name, whether it is wide enough, and how many marks are in it.
CHARTS = """[...document.querySelectorAll('.chart')].map(chart => {
  const svg = chart.querySelector('svg');
  return [chart.id, svg ? svg.getBoundingClientRect().width : 0,
          svg ? svg.querySelectorAll(MARKS).length : 0];
})""".replace("MARKS", "'.mark-symbol path, .mark-rect path, .mark-line path, .mark-rule line'")

# Of every chart of screen one: how far its contents reach beyond its right end.
CUT = """[...document.querySelectorAll('.key .chart svg.marks')].map(svg =>
  Math.max(...[...svg.querySelectorAll('text, path')].map(part => part.getBoundingClientRect().right))
  - svg.getBoundingClientRect().right)"""

# What reaches beyond the screen, outside frames and code that scroll by themselves.
BEYOND = """[...document.querySelectorAll('body *')].filter(part =>
  !part.parentElement.closest('.frame, pre, .chart')
  && part.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(part => part.outerHTML.slice(0, 80))"""
# Of every table: the text of its first heading, and whether it stands in a frame that scrolls and shows it.
FRAMES = """[...document.querySelectorAll('table')].map(table => {
  const frame = table.closest('.frame'), style = frame && getComputedStyle(frame);
  return [table.querySelector('th').textContent,
          Boolean(frame && style.overflowX === 'auto' && style.backgroundAttachment.includes('local'))];
})"""


@pytest.fixture(scope="module")
def browser():
    if program() is None:
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, (
            "chromium is required here (Debian package chromium)"
        )
        pytest.skip("chromium not installed; test_report reads the page without drawing it")
    with Browser() as opened:
        yield opened


def brightness(colour):
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 765


def colours(browser):
    text = browser.value("getComputedStyle(document.body).color")
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    chart = browser.value("getComputedStyle(document.querySelector('.chart svg text')).fill")
    return brightness(text), brightness(back), brightness(chart)


def scrolls(browser):
    return browser.value("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def open_all(browser, page, **settings):
    """Open a page with all its folds."""
    browser.open(page, ready=DRAWN, **settings)
    browser.value(OPEN)
    for _ in range(1000):
        if browser.value(DRAWN.replace("|| chart.closest('details:not([open])')", "")):
            return
    pytest.fail("charts in opened folds are not drawn")


def test_screen_one_fits_a_laptop(browser, reported):
    """Question, answer, figures and both boxes begin within 1280 x 800 pixels; only their evidence is below."""
    browser.open(reported / "report.html", width=1280, ready=DRAWN)
    top = "document.getElementById('{}').getBoundingClientRect().top"
    places = [browser.value(top.format(name)) for name in ("question", "sentences", "rules", "trusted")]
    assert places == sorted(places) and places[-1] < 700
    bottom = browser.value("document.querySelector('.key').getBoundingClientRect().bottom")
    assert places[1] < bottom <= places[2]
    assert browser.value("document.querySelectorAll('.key .chart svg.marks').length") == 3


@pytest.mark.parametrize("width", [400, 700, 800, 1000, 1280])
def test_no_legend_of_screen_one_is_cut_off(browser, reported, width):
    """A chart that is drawn wider than its place loses its right end: at 800 pixels, half of the stages' legend."""
    browser.open(reported / "report.html", width=width, ready=DRAWN)
    ends = browser.value(CUT)
    assert len(ends) == 3 and max(ends) <= 0, ends


def test_every_chart_is_drawn_without_console_messages(browser, reported):
    page = reported / "report.html"
    open_all(browser, page)
    assert browser.errors == []
    assert browser.requests == [page.resolve().as_uri()]
    charts = browser.value(CHARTS)
    assert len(charts) == len(list((reported / "figures").glob("*.svg"))) > 15
    assert [name for name, width, marks in charts if width < 300 or marks < 1] == []
    assert browser.value("document.querySelectorAll('.diagram rect').length") == 4
    text, back, chart = colours(browser)
    assert text < 0.3 and back > 0.9 and chart < 0.3


def test_it_is_readable_on_a_phone_in_the_dark(browser, reported):
    open_all(browser, reported / "report.html", width=390, dark=True)
    assert browser.errors == [] and not scrolls(browser)
    assert [name for name, width, marks in browser.value(CHARTS) if not 200 < width <= 390 or marks < 1] == []
    text, back, chart = colours(browser)
    assert text > 0.7 and back < 0.2 and chart > 0.7


def test_no_table_is_wider_than_a_phone_unless_it_scrolls_in_a_frame(browser, reported):
    """The percentiles of the first screen need no scrolling, and the names of rows stay in view in wide tables."""
    open_all(browser, reported / "report.html", width=400)
    assert browser.value(BEYOND) == []
    frames = browser.value(FRAMES)
    assert len(frames) > 10 and [heading for heading, scrolls in frames if not scrolls] == []
    summary = "document.querySelector('table.summary').closest('.frame')"
    assert browser.value(f"{summary}.scrollWidth <= {summary}.clientWidth")
    left = """(() => {
      const frame = [...document.querySelectorAll('.frame')].find(one => one.scrollWidth > one.clientWidth + 100);
      frame.scrollLeft = 100;
      return frame.querySelector('tbody th').getBoundingClientRect().left - frame.getBoundingClientRect().left;
    })()"""
    assert browser.value(left) == pytest.approx(0, abs=1)


def test_the_menu_draws_the_chosen_configuration(browser, reported):
    open_all(browser, reported / "report.html")
    drawn = "document.querySelector('#chart-response-histogram .mark-rect').innerHTML"
    before = browser.value(drawn)
    browser.value(
        """{ const list = document.querySelector('#chart-response-histogram select');
             list.selectedIndex = (list.selectedIndex + 1) % list.options.length;
             list.dispatchEvent(new Event('input')); list.dispatchEvent(new Event('change')); 0 }"""
    )
    for _ in range(100):
        if browser.value(drawn) != before:
            break
    else:
        pytest.fail("the list changes nothing")
    assert browser.errors == []


def test_the_printed_page_has_every_chart(browser, reported):
    browser.open(reported / "report.html", ready=DRAWN)
    assert browser.value("document.querySelectorAll('details[open].group').length") == 0
    paper = browser.pdf()
    # The folds are open on paper, and closed again afterwards.
    charts = "[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))"
    assert browser.value(charts) and browser.errors == []
    assert browser.value("document.querySelectorAll('details[open].group').length") == 0
    assert paper.startswith(b"%PDF") and len(paper) > 50_000
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 3


# How far from the top the verdicts and the first figure end, and how far above the figures the verdicts end.
FIRST_PAGE = """['#rules', '.two', '.key figure'].map(part =>
  document.querySelector(part).getBoundingClientRect().bottom + scrollY)"""
# Letter paper with the browser's margins of 0.4 inches has 979 pixels of height; it is lower than A4.
PAPER = (739, 979)


def test_the_first_printed_page_has_the_verdicts_and_a_figure(browser, reported):
    browser.open(reported / "report.html", width=PAPER[0], ready=DRAWN)
    browser.call("Emulation.setEmulatedMedia", media="print")
    rules, verdicts, figure = browser.value(FIRST_PAGE)
    browser.call("Emulation.setEmulatedMedia", media="")
    assert rules <= verdicts < figure < PAPER[1]


def test_the_campaign_page_fits_a_phone_without_console_messages(browser, reported, tmp_path):
    page = write_campaign([reported, reported.parent], tmp_path / "campaign.html", "All of it")
    for width, dark in ((1200, False), (390, True)):
        browser.open(page, width=width, dark=dark, ready="document.querySelector('img').complete")
        assert browser.errors == [] and not scrolls(browser)
        assert browser.value("document.querySelector('img').naturalWidth") > 300
        assert all(address.startswith(("file:", "data:")) for address in browser.requests)
