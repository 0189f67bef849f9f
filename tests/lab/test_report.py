"""The report: complete, self-contained, and with only the numbers of the run folder."""

import dataclasses
import json
import re

from msgspec.structs import replace
from page_text import Page
from synthetic import Truth, write_trial

from waylab.analysis import analyse, read_analysis
from waylab.analysis.across.intervals import share
from waylab.predict import predict
from waylab.report import write_report
from waylab.report.page.content import read_content
from waylab.report.page.numbers import signed_percent_text
from waylab.report.tables.limits import utilisation_table
from waylab.report.tables.result import operations_table, results_table
from waylab.report.tables.table import filled
from waylab.report.tables.trust import conditions_table, failed_trials, within_table
from waylab.runfolder.files import read_run
from waylab.runfolder.gate_words import has_words

FIGURES = [
    "both-views",
    "comparisons",
    "cpu-time",
    "factorial-effects",
    "factorial-variation",
    "models",
    "relative-response",
    "relative-throughput",
    "residuals-normal",
    "residuals-order",
    "residuals-previous",
    "residuals-spread",
    "response-by-replicas",
    "response-distribution",
    "response-histogram",
    "response-histograms",
    "response-mean",
    "response-percentiles",
    "stage-distribution",
    "stage-shares",
    "stage-times",
    "throughput",
    "throughput-by-replicas",
    "throughput-per-client",
]


def numbers_in(content):
    if isinstance(content, dict):
        for value in content.values():
            yield from numbers_in(value)
    elif isinstance(content, list):
        for value in content:
            yield from numbers_in(value)
    elif content is not None:
        yield str(content)


def all_numbers(directory):
    return {
        number for path in directory.glob("*.json") for number in numbers_in(json.loads(path.read_text()))
    }


def test_every_figure_is_on_the_page_and_in_a_file(reported):
    directory, text = reported, (reported / "report.html").read_text()
    page = Page(text)
    assert sorted(path.stem for path in (directory / "figures").glob("*.svg")) == FIGURES
    for name in FIGURES:
        assert f"chart-{name}" in page.ids
        assert (directory / "figures" / f"{name}.svg").read_text().startswith("<svg")
        assert (directory / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_set_up_names_no_default_that_does_not_apply(reported):
    text = (reported / "report.html").read_text()
    set_up = Page(text[text.index('id="set-up"') : text.index('id="environment"')]).text
    assert "closed loop: clients varied" in set_up and "no think time" in set_up
    for useless in (
        "rate 0",
        "arrivals",
        "key size ,",
        "key size –",
        "readers 16",
        "multi get",
        "think time none",
    ):
        assert useless not in set_up, useless


def test_every_gate_has_words(reported):
    names = {gate.name for trial in read_analysis(reported).trials for gate in trial.gates}
    assert [name for name in names if not has_words(name)] == []


def test_gates_are_words_with_units_and_limits(reported):
    text = Page((reported / "report.html").read_text()).text
    assert "CPU time of other programs (share of the machine)< 20 %" in text
    assert "keys found (share of the keys read)≥ 99.9 %100 %" in text
    # A gate that does not apply to this load is in no table.
    assert "requests answered (share of those due in an open loop)" not in text


def test_the_page_loads_nothing(reported):
    text = (reported / "report.html").read_text()
    page = Page(text)
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert "@import" not in page.styles and "url(" not in page.styles
    assert 'type="module"' not in text


def test_every_number_in_the_tables_is_in_a_json_of_the_run_folder(reported):
    directory, text = reported, (reported / "report.html").read_text()
    page = Page(text)
    known = all_numbers(directory)
    assert len(page.numbers) > 200
    assert [number for number in page.numbers if number not in known] == []


def test_every_number_in_the_figures_is_in_a_json_of_the_run_folder(reported):
    directory, text = reported, (reported / "report.html").read_text()
    known = all_numbers(directory)
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    figures = json.loads(found[1])
    assert sorted(figures) == FIGURES
    for name, figure in figures.items():
        data = [
            part["data"]["values"]
            for part in [figure, *figure.get("layer", [])]
            if "values" in part.get("data", {})
        ]
        data += list(figure.get("datasets", {}).values())
        assert data, name
        for row in (row for rows in data for row in rows):
            for key, value in row.items():
                if isinstance(value, int | float) and key != "rank" and row != {"ratio": 1}:
                    assert str(value) in known, (name, key, value)


def test_numbers_have_as_many_digits_as_they_need():
    assert signed_percent_text(-0.000001) == "0 %" and signed_percent_text(0.01234) == "+1.23 %"
    assert signed_percent_text(-0.1234) == "-12.3 %" and signed_percent_text(14.95) == "+1,495 %"


def test_a_share_of_a_whole_has_no_interval_above_one():
    found = share([0.9, 0.95, 1.0])
    assert found.high == 1 and found.low is not None and 0 < found.low < found.mean


def test_columns_without_any_value_are_left_out():
    assert filled(["a", "b", "c"], [["x", "–", "–"], ["y", "–", "1"]]) == (
        ["a", "c"],
        [["x", "–"], ["y", "1"]],
    )


def test_trials_that_are_too_short_for_intervals_are_one_sentence(reported):
    text = within_table(read_content(reported))
    assert "<table" not in text and "No trial has an interval of its own" in text and "too short" in text


def test_text_from_the_specification_is_escaped(reported):
    assert "It is &lt;b&gt;right&lt;/b&gt; &amp; exact." in (reported / "report.html").read_text()


def test_failed_trials_are_prominent(run_folder, monkeypatch):
    # The test reads only the text.
    monkeypatch.setattr("waylab.report.write.draw", lambda content: [])
    planned = read_run(run_folder).plan[0]
    write_trial(run_folder, planned, Truth(throughput_per_s=10_000.0, share=0.95))
    analyse(run_folder)
    predict(run_folder)
    text = Page(write_report(run_folder).read_text()).text
    assert "11 of 12 trials passed every gate" in text
    assert "These trials are not used in any aggregate" in text and planned.id in text
    assert "95 % of one core for each thread of the load, limit 80 %" in text


def test_trials_that_ran_again_are_named_with_the_reasons(reported):
    content = read_content(reported)
    assert "Measured again" not in failed_trials(content)
    first, *rest = content.analysis.trials
    again = replace(content.analysis, trials=[replace(first, refused=["steal: <0.5>", "steal: 0.4"]), *rest])
    text = failed_trials(dataclasses.replace(content, analysis=again))
    assert "disturbed the machine: 1</summary>" in text and f"<b>{first.id}</b>" in text
    assert "steal time: &lt;0.5&gt;; then steal time: 0.4" in text


def test_a_factor_with_one_level_is_in_no_name(reported):
    """At quick scale, some factors have one level. Such a factor distinguishes no configurations."""
    content = read_content(reported)
    clients, replicas = content.spec.factors
    single = replace(replicas, levels=replicas.levels[:1])
    spec = replace(content.spec, factors=[clients, single])
    kept = [c for c in content.analysis.configurations if c.levels["replicas"] == "1"]
    analysis = replace(content.analysis, configurations=kept)
    changed = dataclasses.replace(content, run=replace(content.run, spec=spec), analysis=analysis)
    assert [changed.label(c.name) for c in kept] == ["4 clients", "16 clients"]
    for build in (results_table, operations_table, utilisation_table, conditions_table):
        assert "4 clients" in build(changed) and "replica" not in build(changed), build
    assert "4 clients, 1 replica" in results_table(content)


def test_a_run_without_results_still_reports_why(empty_run):
    analyse(empty_run)
    predict(empty_run)
    page = Page(write_report(empty_run).read_text())
    assert "No trial passed its gates" in page.text and "has not been run" in page.text
    assert list((empty_run / "figures").iterdir()) == []
