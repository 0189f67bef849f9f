"""The page with sliders: its grid holds exactly what the fitted model predicts, and it works in a browser offline."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from browser import Browser, program
from test_fit_runs import run_of_known_truth, settings

from waylab.errors import LabError
from waylab.fit.layered import LayeredModel
from waylab.predict.runs import fit_runs
from waylab.predict.runs.what_if import Grid, GridFactor, what_if
from waylab.report.what_if import write_what_if

CALIBRATION = [one for one in run_of_known_truth(2) if one.role == "calibration"]
TITLE = "What if? </script><b>known</b>"


@pytest.fixture(scope="module")
def fitted():
    return fit_runs(CALIBRATION, models=[LayeredModel()])


@pytest.fixture(scope="module")
def grid(fitted) -> Grid:
    return what_if(fitted, settings(8, 3), CALIBRATION)


@pytest.fixture(scope="module")
def page(grid, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "what-if.html"
    write_what_if(grid, path, TITLE, ["Not identified: <i>nothing</i>"])
    return path


def at(grid: Grid, **wanted: float):
    """The cell of these levels."""
    index = 0
    for factor in grid.factors:
        index = index * len(factor.levels) + factor.levels.index(wanted[factor.name])
    return grid.cells[index]


def test_every_cell_is_the_prediction_of_its_settings(fitted, grid):
    assert [factor.name for factor in grid.factors] == ["clients", "servers"]
    clients = grid.factors[0]
    assert clients.measured == (2, 8, 32)
    assert clients.levels[0] == 2 and clients.levels[-1] == 64 and 16 in clients.levels
    assert clients.levels[clients.start] == 8
    for count, servers in ((8, 3), (16, 1), (64, 6)):
        expected = fitted.predict(settings(count, servers))
        found = at(grid, clients=count, servers=servers).prediction
        assert found.throughput_per_s == expected.throughput_per_s
        assert bool(found.extrapolates) == (count > 32 or servers > 3)
    assert len(at(grid, clients=8, servers=3).throughputs_per_s) == 2
    assert at(grid, clients=16, servers=3).throughputs_per_s == ()


def test_the_page_has_all_cells_and_no_text_ends_its_script(page, grid):
    text = page.read_text()
    assert "<b>known" not in text and "<i>nothing" not in text
    assert not re.search(r"(?:src|href)=|https?://", text)
    data = json.loads(re.search(r'id="grid">(.*?)</script>', text)[1])
    assert len(data["cells"]) == len(grid.cells)
    assert data["cells"][0]["x"][0] == pytest.approx(
        grid.cells[0].prediction.throughput_per_s.value, rel=1e-3
    )


def test_a_cell_that_cannot_be_predicted_says_why(fitted):
    """Nobody measured another value size."""
    found = what_if(fitted, settings(8, 3, value_bytes=4096), CALIBRATION)
    assert all(cell.prediction is None and "measure a second level" in cell.refused for cell in found.cells)


def test_many_levels_are_thinned_and_measured_ones_are_kept(fitted, monkeypatch):
    monkeypatch.setattr("waylab.predict.runs.what_if._CELLS_MAX", 30)
    found = what_if(fitted, settings(8, 3), CALIBRATION)
    assert len(found.cells) <= 30
    assert found.factors == (
        GridFactor("clients", found.factors[0].levels, (2, 8, 32), found.factors[0].levels.index(8)),
        GridFactor("servers", found.factors[1].levels, (1, 3), found.factors[1].levels.index(3)),
    )


def test_a_run_without_a_second_level_is_one_line(fitted):
    levels = {name: levels[:1] for name, levels in fitted.domain.levels.items()}
    constant = dataclasses.replace(fitted, domain=dataclasses.replace(fitted.domain, levels=levels))
    with pytest.raises(LabError, match="--page: no setting was measured at two levels"):
        what_if(constant, settings(8, 3), [])


def test_a_folder_that_does_not_exist_is_one_line(grid, tmp_path):
    with pytest.raises(LabError, match="cannot be written"):
        write_what_if(grid, tmp_path / "none" / "page.html", "title")


def test_sliders_work_offline_on_a_desk_and_on_a_phone(page):
    if program() is None:
        if os.environ.get("WAYSTAGE_REQUIRE_PEERS"):
            pytest.fail("Chromium is not installed")
        pytest.skip("Chromium is not installed")
    move = """(() => { const slider = document.querySelectorAll('#sliders input')[0];
      slider.value = slider.max; slider.dispatchEvent(new Event('input'));
      return document.getElementById('state').textContent; })()"""
    with Browser() as browser:
        for width, dark in ((1100, False), (380, True)):
            browser.open(page, width, dark, "document.querySelector('#chart-r svg')")
            assert browser.value("document.documentElement.scrollWidth") <= width
            before = browser.value("document.querySelector('#answer-now b').textContent")
            assert "clients = 64 is above the largest calibrated" in browser.value(move)
            assert browser.value("document.querySelector('#answer-now b').textContent") != before
            # Six measured trials of three servers, and a dashed end.
            assert browser.value("document.querySelectorAll('#chart-x .dot').length") == 6
            assert browser.value("document.querySelectorAll('#chart-x .beyond').length") > 0
            assert browser.errors == []
            assert [url for url in browser.requests if not url.startswith("file:")] == []
