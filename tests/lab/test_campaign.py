"""The page over several experiments, small samples of reports, and the noise floor of a machine."""

import json
import math
import re
import shutil
from types import SimpleNamespace

import pytest

from waylab.analysis.across.contrasts.noise import noise_floor
from waylab.analysis.statistics import paired_ratio
from waylab.cli import main
from waylab.cli.interrupt import Interrupt
from waylab.cli.noise import measure_noise
from waylab.program import find_waystage
from waylab.report.page.content import read_content
from waylab.report.sample import FIGURES_MAX, _beside, deciding_figures
from waylab.report.tables.result import result_columns
from waylab.runfolder.analysis import FindingResult, PublishedResults

BYTES_MAX = 150_000


def campaign(*arguments):
    return main(["campaign", *map(str, arguments)])


def test_the_campaign_page_summarises_several_experiments(reported, tmp_path, capsys):
    page = tmp_path / "pages" / "campaign.html"
    assert campaign(reported.parent, "--output", page, "--title", "Both <halves>") == 0
    text = page.read_text()
    assert "Both &lt;halves&gt;" in text and "It is &lt;b&gt;right&lt;/b&gt; &amp; exact." in text
    assert "Is the lab right?" in text and "Every trial passed every gate." in text
    (link,) = re.findall(r'href="([^"#]*report\.html)"', text)
    assert (page.parent / link).resolve() == (reported / "report.html").resolve()
    assert "data:image/svg+xml;base64," in text and "http" not in re.sub(r"base64,[^\"]*", "", text)
    known = {str(value) for value in json.loads((reported / "analysis.json").read_text()).values()}
    assert all(number in known for number in re.findall(r'<data value="([^"]*)"', text))
    assert str(page) in capsys.readouterr().out


def test_an_unreadable_run_is_listed_with_the_reason(reported, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(reported, broken, ignore=shutil.ignore_patterns("trials", "analysis.json"))
    page = tmp_path / "campaign.html"
    assert campaign(reported, broken, "--output", page) == 0
    text = page.read_text()
    assert "make it with: waylab analyse" in text and text.count("Is the lab right?") >= 1


def test_a_path_without_a_run_raises_one_line(tmp_path, capsys):
    for arguments in ((tmp_path / "nothing",), (tmp_path,)):
        assert campaign(*arguments) == 2
        said = capsys.readouterr().err
        assert "neither is nor contains a run folder" in said and said.count("\n") == 1


def test_a_sample_is_small_and_complete(reported, tmp_path):
    page = tmp_path / "study.md"
    assert main(["report", str(reported), "--sample", str(page)]) == 0
    text = page.read_text()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.*")) < BYTES_MAX
    assert r"It is \<b\>right\</b\> & exact." in text
    assert "| 16 clients, 2 replicas | 3 of 3 |" in text and "12 of 12 trials passed every gate" in text
    figures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert 0 < len(figures) <= FIGURES_MAX
    assert sorted(figures) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.svg"))


def test_a_sample_shows_every_column_of_the_results(reported, tmp_path):
    """Samples had three of the five percentiles, and no CPU time."""
    page = tmp_path / "study.md"
    assert main(["report", str(reported), "--sample", str(page)]) == 0
    lines = page.read_text().splitlines()
    content = read_content(reported)
    headings, rows = result_columns(content)
    assert {"p50", "p90", "p95", "p99", "CPU time per request"} < set(headings)
    report = (reported / "report.html").read_text()
    assert all(f'<th scope="col">{heading}</th>' in report for heading in headings)
    start = lines.index(f"| configuration | trials used | {' | '.join(headings)} |")
    table = lines[start : start + 2 + len(rows)]
    assert {line.count("|") for line in table} == {len(headings) + 3}
    # Throughput, times and percentiles have their intervals.
    assert all(line.count(" [") == 0 and line.count(r"\[") >= 6 for line in table[2:])
    assert content.analysis.headline.sentences[0][:20] in page.read_text()


def finding(**parts):
    nothing = {"text": "t", "kind": "ratio", "metric": "", "of": {}, "to": {}, "theirs": None, "rule": ""}
    return FindingResult(**nothing | {"reproduced": "yes"} | parts)


def test_a_sample_has_the_figures_that_decide_its_findings():
    rate = finding(metric="throughput_per_s", of={"a.b": ["2"]}, to={"a.b": ["1"]})
    reply = finding(metric="set.response_mean_ns", of={"r_s": ["2"]}, to={"r_s": ["1"]})
    stage = finding(kind="stage")
    everything = [
        "response-by-r-s",
        "response-mean",
        "response-by-r-s-set",
        "stage-times",
        "throughput",
        "throughput-by-a-b",
    ]
    found = deciding_figures([stage, rate, rate, reply], everything)
    assert found == ["throughput-by-a-b", "stage-times", "response-by-r-s-set"]
    assert deciding_figures([rate, reply], ["response-mean", "throughput"]) == ["throughput", "response-mean"]
    assert deciding_figures([], everything) == ["throughput-by-a-b"]
    assert deciding_figures([stage], ["other"]) == ["other"]


def test_the_noise_floor_is_the_half_width_of_the_ratio():
    logs = [0.01, -0.01, 0.02, -0.02, 0.0]
    found = noise_floor(SimpleNamespace(metric="throughput_per_s", overall=paired_ratio(logs)))
    half = 2.776445 * 0.0158114 / math.sqrt(5)
    assert found.floor == pytest.approx(math.expm1(half), rel=1e-4) and found.flagged is False
    assert "differences below 2.0 % cannot be seen in 5 blocks" in found.text
    alone = noise_floor(SimpleNamespace(metric="throughput_per_s", overall=paired_ratio([0.1])))
    assert alone.floor is None and "1 block cannot decide; it takes 3" in alone.text


def test_the_noise_of_this_machine_is_measured(capsys):
    find_waystage()
    assert measure_noise(Interrupt(), blocks=3, test_time_s=0.4) == 0
    said = capsys.readouterr().out
    assert "noise floor (6 of 6 trials used)" in said and said.count("two identical arms") == 3


def test_a_sample_compares_the_run_with_its_study():
    half = finding(text="half | of it", theirs=0.5, ours=0.52, low=0.5, high=0.54, reproduced="yes")
    alone = finding(text="half | of it", kind="effect", ours=0.25, reproduced="undecided")
    published = PublishedResults(source="A16", findings=[half, alone], counts={})
    lines = _beside(SimpleNamespace(analysis=SimpleNamespace(published=published)))
    assert lines[-3:] == [
        "| half \\| of it | 0.5 | 0.52 | 0.5 to 0.54 | yes |",
        "| half \\| of it | – | 25.00 % | – | undecided |",
        "",
    ]
    assert _beside(SimpleNamespace(analysis=SimpleNamespace(published=None))) == []
