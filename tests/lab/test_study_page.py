"""The parts of a study's page: precision, models on unseen configurations, and all configurations of an experiment."""

import pytest
from msgspec.structs import replace

from waylab.analysis import read_analysis
from waylab.predict import bounds, left_out_errors, response_law
from waylab.predict.operational import bottleneck
from waylab.report import ExperimentFindings, write_findings
from waylab.report.findings import reasons_section
from waylab.report.page.content import read_content
from waylab.report.study.configurations import configurations_page, law_sentence
from waylab.report.study.precision import half_width, precision_section, precision_sentence
from waylab.runfolder.analysis import FindingResult


def finding(half, blocks_for_aim=None, kind="ratio"):
    return FindingResult(
        text="t",
        kind=kind,
        metric="throughput_per_s",
        of={},
        to={},
        theirs=1.0,
        ours=2.0,
        low=2.0 / half if half else None,
        high=2.0 * half if half else None,
        blocks=3,
        rule="r",
        reproduced="yes",
        blocks_for_aim=blocks_for_aim,
    )


def test_wide_intervals_are_listed_with_the_blocks_that_they_need():
    narrow, wide, endless = finding(1.04), finding(1.2, 11), finding(1.5)
    others = [finding(1.5, kind="link"), finding(None)]
    assert half_width(wide) == pytest.approx(0.2) and [half_width(one) for one in others] == [None, None]
    sentence = precision_sentence([narrow, wide, endless, *others])
    assert sentence.startswith("1 of 3 ratios and rates have a 95 % interval of at most ±5 %.")
    assert sentence.endswith("The others need up to 11 blocks.")
    lines = "\n".join(precision_section([("e", "f", one) for one in (narrow, wide, endless, *others)]))
    assert "| e | f | 20 % | 3 | 11 |" in lines and "| e | f | 50 % | 3 | over 1000 |" in lines
    assert lines.count("| e |") == 2
    assert precision_sentence(others) == "" and list(precision_section([])) == []


def test_a_reason_that_findings_share_stands_once():
    one = replace(finding(1.04), text="a", of={"x": ["1"]}, reproduced="no", reason="r.")
    series = [one, replace(one, of={"x": ["2"]}, reproduced="undecided"), replace(one, of={"x": ["3"]})]
    others = [replace(one, text="b", reason="s."), replace(one, text="c", reason="t.", reproduced="yes")]
    lines = [line for line in reasons_section([*series, *others]) if line]
    assert lines == ["- **2 contradicted, 1 undecided:** “a” r.", "- **Contradicted:** “b” s."]
    (alone,) = [line for line in reasons_section([*series[:1], replace(series[1], reason="")]) if line]
    assert alone == "- **Contradicted:** “a (x 1)” r.", "a point of a series has its levels"


def test_configurations_are_predicted_from_the_others_only(reported):
    errors = {one.model: one for one in left_out_errors([reported])}
    nearest, chain = errors["nearest"], errors["chain"]
    assert nearest.configurations == chain.configurations == 4
    # Two replicas cost 10 %, so the nearest configuration is off by a tenth; the models know more.
    assert nearest.throughput == pytest.approx(0.1, abs=0.03)
    assert left_out_errors([reported, reported]) == [], "a run that is given twice teaches nothing"


def test_a_bound_is_the_throughput_at_full_use_of_the_busiest_part(reported):
    found = bounds(reported)
    analysis = read_analysis(reported)
    assert set(found) == {one.name for one in analysis.configurations}
    for one in analysis.configurations:
        bound = found[one.name]
        assert bound.part.startswith("CPU time of") and 0 < bound.utilisation
        rate = one.throughput_per_s.mean
        assert bound.throughput_per_s * bound.utilisation == pytest.approx(rate)
        least_s = one.load.clients / bound.throughput_per_s - (one.think_mean_s or 0.0)
        assert bound.response_s == pytest.approx(max(0.0, least_s))


def test_workers_that_wait_for_a_link_are_not_called_the_bottleneck():
    assert bottleneck({"link a up": 0.98, "workers": 1.0, "CPU time of b": 0.4}) == "link a up"
    assert bottleneck({"link a up": 0.96, "workers": 1.0}) == "workers"


def test_the_response_law_is_compared_with_every_used_trial(reported):
    analysis = read_analysis(reported)
    law = response_law([analysis])
    assert law.trials == 12 and abs(law.mean) <= abs(law.largest) < 0.05
    trial = analysis.trials[0]
    numbers = trial.numbers
    response_s = numbers.operations["all"].response_mean_ns * 1e-9
    clients = int(trial.levels["clients"])
    by_law_s = clients / numbers.throughput_per_s - numbers.think_mean_s
    alone = response_law([replace(analysis, trials=[trial])])
    assert alone.mean == pytest.approx(by_law_s / response_s - 1, abs=1e-3)
    assert "in 1 trial:" in law_sentence(alone) and "12 trials" in law_sentence(law)
    assert response_law([replace(analysis, trials=[])]) is None and law_sentence(None) == ""


def test_the_page_of_an_experiment_has_all_configurations(reported):
    content = read_content(reported)
    text = "\n".join(configurations_page(content, bounds(reported), [("a", "a.svg")]))
    for heading in ("in the proxy", "p90", "gamma shape", "## Bottlenecks", "![a](a.svg)"):
        assert heading in text
    for one in content.configurations:
        assert text.count(f"| {content.label(one.name)} |") == 2
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") in (12, 8) for line in rows)


def test_times_and_rates_are_those_of_the_described_hosts(reported):
    content = read_content(reported)
    slow = [replace(trial, time_scale=10.0) for trial in content.run.plan]
    scaled = type(content)(
        content.directory,
        replace(content.run, plan=slow),
        content.environment,
        content.analysis,
        content.predictions,
    )
    text = "\n".join(configurations_page(scaled, {}, []))
    rate = content.configurations[0].throughput_per_s.mean
    assert f"| {10 * rate:,.0f} |" in text and "one second of the study took 10 seconds here" in text
    assert "Bottlenecks" not in text


def test_the_page_of_a_study_links_to_its_parts(reported, tmp_path):
    page = write_findings(
        [ExperimentFindings("e", [reported], None)], tmp_path / "s.md", "S", "waylab study s"
    )
    text = page.read_text()
    assert "[All configurations](s/e.md)" in text and (tmp_path / "s" / "e.md").is_file()
    assert (tmp_path / "s" / "e-stage-times.svg").is_file()
    assert "## Models on configurations that they have not seen" in text and "| capped chain |" in text
    assert "N/X − Z" in text
