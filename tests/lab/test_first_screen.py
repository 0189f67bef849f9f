"""The first screen of a report: question, answer, verdicts and trust, each once."""

import dataclasses
import json
import re
from html import escape

from msgspec.structs import replace
from page_text import Page, summary
from synthetic import Truth, write_trial

from waylab.analysis import analyse, read_analysis
from waylab.predict import predict
from waylab.report import write_report
from waylab.report.page.content import read_content
from waylab.report.page.reliance import reliance
from waylab.report.page.rules import comparisons
from waylab.report.tables.trust import gate_limits_table
from waylab.runfolder.files import read_run
from waylab.runfolder.results import seal
from waylab.runfolder.trial_numbers import Gate
from waylab.runfolder.words import levels_text

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
        "All 12 trials failed \u201csteal time (share of the machine)\u201d, for example block 1 with "
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


def test_a_law_that_does_not_hold_is_a_reservation(reported):
    content = read_content(reported)
    assert not any("laws" in line.text for line in reliance(content))
    first, *others = content.analysis.configurations
    broken = [replace(first.laws[0], residual=-0.053, limit=0.04, broken=1), *first.laws[1:]]
    analysis = replace(content.analysis, configurations=[replace(first, laws=broken), *others])
    (line,) = (one for one in reliance(dataclasses.replace(content, analysis=analysis)) if "laws" in one.text)
    assert line.kind == "note" and line.text.startswith("1 of ")
    assert f"with {content.label(first.name)}, interactive response time law" in line.text
    assert line.text.endswith("is off by -5.30 %, limit 4.00 %.")


def test_only_lines_that_are_drawn_are_explained(reported):
    text = (reported / "report.html").read_text()
    curves = read_analysis(reported).curves
    assert ("Vertical lines" in text) == any(
        bend and bend.load is not None for curve in curves for bend in (curve.knee, curve.first_slow)
    )


def test_a_loosened_limit_stands_beside_the_usual_one(reported):
    content = read_content(reported)
    gates = replace(content.spec.gates, steal_max=0.3, loosened=["steal_max"], usual={"steal_max": 0.1})
    changed = dataclasses.replace(content, run=replace(content.run, spec=replace(content.spec, gates=gates)))
    lines = [line.text for line in reliance(changed) if line.text.startswith("Loosened")]
    assert "steal time (share of the machine), limit 30 % instead of the usual 10 %" in lines[0]
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
