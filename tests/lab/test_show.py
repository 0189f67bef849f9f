"""The summary of a run in the terminal: the answer first, in few lines."""

import json
import shutil

from page_text import summary

from waylab.analysis import analyse
from waylab.predict import predict
from waylab.report.show import LINES_MAX
from waylab.runfolder.results import seal


def test_show_answers_first_in_at_most_25_lines(reported, capsys):
    text = summary(reported, capsys)
    lines = text.splitlines()
    assert len(lines) <= LINES_MAX == 25
    assert all(len(line) <= 80 for line in lines if "report.html" not in line)
    parts = [
        "Is the lab right?",
        "From 4 to 16 clients",
        "██",
        "Not refuted: ",
        "2 replicas against 1 replica",
        "Every mean is over 3 blocks",
    ]
    places = [text.index(part) for part in [*parts, str(reported / "report.html")]]
    assert places == sorted(places)
    assert "16 clients, 1 replica" in text and "20,067" in text


def test_show_stays_short_with_many_configurations(reported, tmp_path, capsys):
    directory = tmp_path / "many"
    shutil.copytree(reported, directory, ignore=shutil.ignore_patterns("trials", "figures"))
    content = json.loads((directory / "analysis.json").read_text())
    one = content["configurations"][0]
    content["configurations"] = [
        {**one, "name": f"a rather long name of a configuration, number={index}"} for index in range(60)
    ]
    content["comparisons"] *= 7
    content["answer"] *= 7
    (directory / "analysis.json").write_text(json.dumps(content))
    seal(directory)
    for width in (60, 80, 200):
        text = summary(directory, capsys, width)
        assert len(text.splitlines()) <= LINES_MAX
        assert "fastest of 60 configurations" in text and "more verdicts in the report" in text


def test_show_of_a_run_without_results_says_why(empty_run, capsys):
    analyse(empty_run)
    predict(empty_run)
    text = summary(empty_run, capsys)
    assert "No trial passed its gates" in text and "✗ 0 of 12 trials" in text and "waylab report" in text
