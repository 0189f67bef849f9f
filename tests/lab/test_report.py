"""The report: complete, self-contained, and with only the numbers of the run folder."""

import dataclasses
import json
import re
import shutil
from html import escape
from html.parser import HTMLParser

from msgspec.structs import replace
from rich.console import Console
from synthetic import Truth, write_trial

from waylab.analysis import analyse, read_analysis
from waylab.predict import predict
from waylab.report import show_run, write_report
from waylab.report.page.content import read_content
from waylab.report.page.gates import has_words
from waylab.report.page.reliance import reliance
from waylab.report.page.rules import comparisons
from waylab.report.show import LINES_MAX
from waylab.report.tables.limits import utilisation_table
from waylab.report.tables.result import operations_table, results_table
from waylab.report.tables.trust import conditions_table, gate_limits_table
from waylab.runfolder.files import read_run
from waylab.runfolder.results import seal
from waylab.runfolder.trial_numbers import Gate
from waylab.runfolder.words import levels_text

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
    "response-mean",
    "response-percentiles",
    "stage-distribution",
    "stage-shares",
    "stage-times",
    "throughput",
    "throughput-by-replicas",
    "throughput-per-client",
]
# Screen one in its order, and the groups of evidence below it.
FIRST = [
    "answer",
    "question",
    "sentences",
    "figure-throughput",
    "figure-response-mean",
    "figure-stage-shares",
]
FIRST += ["rules", "trusted"]
GROUPS = ["speed", "time", "limits", "models", "trust", "set-up"]


class Page(HTMLParser):
    """The resources, texts and numbers of a page."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.ids, self.numbers, self.stack, self.styles, self.text = [], [], [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.loads += [named[key] for key in ("src", "href", "data", "srcset", "action") if key in named]
        self.ids += [named["id"]] if "id" in named else []
        self.numbers += [named["value"]] if tag == "data" else []
        self.stack.append(tag)

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop() != tag:
            pass

    def handle_data(self, data):
        inside = self.stack[-1] if self.stack else ""
        if inside == "style":
            self.styles += data
        elif inside != "script":
            self.text += data


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


def test_screen_one_answers_before_the_evidence(reported):
    text = (reported / "report.html").read_text()
    page = Page(text)
    assert [name for name in page.ids if name in {*FIRST, *GROUPS}] == [*FIRST, *GROUPS]
    assert len(set(page.ids)) == len(page.ids)
    first = text[text.index('id="answer"') : text.index("<nav")]
    assert "<details" not in first and first.count("<figure") <= 3
    for sentence in read_analysis(reported).headline.sentences:
        assert escape(sentence).replace(" %", "\u00a0%") in first
    assert "Hypothesis: " in first and "Can the data be trusted?" in first
    assert "12 of 12 trials passed" in first
    # Everything else is folded.
    assert re.findall(r'<details class="group" id="([a-z-]+)">', text) == GROUPS
    assert "<details open" not in text.replace("<details open><summary>The processes", "")


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
    assert "CPU time of other programs, of the machine< 20 %" in text
    assert "keys found, of the keys read≥ 99.9 %100 %" in text
    # A gate that does not apply to this load is in no table.
    assert "requests answered, of those due in an open loop" not in text


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
    assert "0.950 of one core for each thread of the load, limit 0.8" in text


def test_a_failed_trial_is_named_on_the_first_screen_with_its_gate_and_number(run_folder, monkeypatch):
    monkeypatch.setattr("waylab.report.write.draw", lambda content: [])
    planned = read_run(run_folder).plan[0]
    write_trial(run_folder, planned, Truth(throughput_per_s=10_000.0, share=0.95))
    analyse(run_folder)
    predict(run_folder)
    text = write_report(run_folder).read_text()
    first = Page(text[text.index('id="answer"') : text.index("<nav")]).text
    named = f"block {planned.block} with {levels_text(planned.levels)} (95\u00a0%, required < 80\u00a0%)"
    assert "1 trial failed" in first and named in first


def test_a_gate_that_every_trial_failed_has_one_example(reported):
    content = read_content(reported)
    failed = Gate(name="steal", passed=False, value=0.5, limit=0.1, text="")
    trials = [replace(trial, gates=[failed], used=False) for trial in content.analysis.trials]
    changed = dataclasses.replace(content, analysis=replace(content.analysis, trials=trials, trials_used=0))
    (line,) = (line.text for line in reliance(changed) if "failed" in line.text)
    assert line.startswith(
        "All 12 trials failed \u201csteal time, of the machine\u201d, for example block 1 with "
    )
    assert line.endswith("(50 %, required < 10 %).")


def test_trials_and_blocks_are_defined_before_they_are_used(reported):
    text = Page((reported / "report.html").read_text()).text
    defined = text.index(
        "A trial measures one configuration once; a block is one trial of every configuration."
    )
    assert "3 blocks of 4 trials" in text
    assert defined < text.index("Hypothesis: ") and defined < text.index("Every mean is over 3 blocks")
    # The text must call the intervals thin lines, because the figures have no error bars.
    assert "thin lines through the marks" in text.lower() and "bars are 95" not in text.lower()


def test_percentiles_with_intervals_are_on_the_first_screen(reported):
    text = (reported / "report.html").read_text()
    first = text[text.index('id="answer"') : text.index("<nav")]
    table = first[first.index('class="summary"') :]
    assert "p50 (median)" in table and ">p99<" in table and "4 clients, 1 replica" in table
    assert table.count('class="interval"') >= 4 * 4


def test_no_sentence_of_the_first_screen_is_repeated_below(reported):
    text = (reported / "report.html").read_text()
    below = text[text.index("<nav") :]
    said = [*read_analysis(reported).answer, *(rule.said for rule in read_analysis(reported).rules)]
    assert len(said) == 2 and not any(escape(one) in below for one in said)


def test_a_comparison_of_the_same_contrast_as_a_rule_is_not_said_twice(reported):
    content = read_content(reported)
    assert len(comparisons(content)) == 1
    (rule,) = content.analysis.rules
    for of, to in ((["2"], ["1"]), (["1"], ["2"])):
        same = replace(
            rule, kind="ratio", metric="throughput_per_s", of={"replicas": of}, to={"replicas": to}
        )
        analysis = replace(content.analysis, rules=[same])
        assert comparisons(dataclasses.replace(content, analysis=analysis)) == []


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


def test_a_loosened_limit_stands_beside_the_usual_one(reported):
    content = read_content(reported)
    gates = replace(content.spec.gates, steal_max=0.3, loosened=["steal_max"], usual={"steal_max": 0.1})
    changed = dataclasses.replace(content, run=replace(content.run, spec=replace(content.spec, gates=gates)))
    lines = [line.text for line in reliance(changed) if line.text.startswith("Loosened")]
    assert "steal time, of the machine, limit 30 % instead of the usual 10 %" in lines[0]
    assert "<b>loosened</b>, usually &lt; 10 %" in gate_limits_table(changed)


def test_a_busy_machine_is_the_first_thing_said(run_folder, monkeypatch, capsys):
    monkeypatch.setattr("waylab.report.write.draw", lambda content: [])
    content = analyse(run_folder)
    warning = "Busy machine: other programs used 40 % of its CPU time (worst trial: 50 %)."
    assert content.headline.warnings == []
    predict(run_folder)
    path = run_folder / "analysis.json"
    stored = json.loads(path.read_text())
    stored["headline"]["warnings"] = [warning]
    path.write_text(json.dumps(stored))
    seal(run_folder)
    text = Page(write_report(run_folder).read_text()).text.replace("\u00a0", " ")
    assert text.index(warning) < text.index("From 4 to 16 clients")
    said = summary(run_folder, capsys, 200)
    assert said.index(warning) < said.index("From 4 to 16 clients")


def test_a_run_without_results_still_reports_why(empty_run):
    analyse(empty_run)
    predict(empty_run)
    page = Page(write_report(empty_run).read_text())
    assert "No trial passed its gates" in page.text and "has not been run" in page.text
    assert list((empty_run / "figures").iterdir()) == []


def summary(directory, capsys, width=80):
    show_run(directory, Console(width=width, highlight=False))
    return capsys.readouterr().out


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
