"""Published findings compared with a run: each rule is tested on known trials, for both verdicts."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from made import made_trial, with_numbers, without_use
from msgspec import convert

from waylab.analysis import analyse, findings_of
from waylab.analysis.across.answer.blocks_needed import blocks_needed
from waylab.analysis.across.answer.published import published_facts, published_results
from waylab.analysis.statistics.blocks import contrast_of_mean
from waylab.errors import LabError
from waylab.predict import predict
from waylab.report.page.content import read_content
from waylab.report.page.html import page
from waylab.runfolder.run import ExperimentSpec
from waylab.spec import read_spec, spec_as_dict
from waylab.spec.findings import Finding, Published

HEAD = """question = "q"
hypothesis = "h"
refuted_by = [{ metric = "failed_trials", above = 0 }]
[factors]
clients = [1, 10, 100]
replicas = [1, 2]
"""
BLOCKS = {1: 0.8, 2: 1.0, 3: 1.3}
STAGES = {"parse": 1e3, "queue": 3e5, "backend": 6e5, "reply": 1e3}


def a_trial(block, clients, replicas, throughput, used=True, stages=None, link=0.97):
    levels = {"clients": str(clients), "replicas": str(replicas)}
    means_ns = dict(stages or STAGES)
    means_ns["total"] = math.fsum(means_ns.values())
    percentiles = ("p5_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns")
    times = {
        name: {"mean_ns": mean_ns, **dict.fromkeys(percentiles, mean_ns)}
        for name, mean_ns in means_ns.items()
    }
    rest = {"count": 1, "response_std_ns": 0.0, "percentiles_ns": {}}
    return made_trial(
        levels,
        block,
        used=used,
        throughput_per_s=throughput,
        operations={
            "all": {"response_mean_ns": 5e6, **rest},
            "set": {"response_mean_ns": 2e6 * replicas, **rest},
            "get": {"response_mean_ns": 2e6, **rest},
        },
        stages={"get": {"count": 1, "stages": times}},
        links={"utilisation": {"server-1 up": link + 0.001 * block}},
    )


def throughput_of(block, clients, replicas):
    """Throughput rises up to 10 clients, a second replica costs a fifth, and block effects cancel in every ratio."""
    wobble = 1 + 0.005 * ((block + clients + replicas) % 3 - 1)
    return BLOCKS[block] * {1: 1000, 10: 9500, 100: 10000}[clients] * {1: 1.0, 2: 0.8}[replicas] * wobble


def trials(**settings):
    return [
        a_trial(block, clients, replicas, throughput_of(block, clients, replicas), **settings)
        for block in BLOCKS
        for clients in (1, 10, 100)
        for replicas in (1, 2)
    ]


def finding(tmp_path, text, found=None):
    path = tmp_path / "x.toml"
    path.write_text(f'{HEAD}[published]\nsource = "A"\n[[published.finding]]\ntext = "t"\n{text}\n')
    spec = read_spec(path)
    content = convert(spec_as_dict(spec), ExperimentSpec)
    used = [trial.content for trial in (trials() if found is None else found)]
    (result,) = published_results(content.published, used).findings
    return result


RATIO = 'metric = "throughput_per_s"\nof = { replicas = 2 }\nto = { replicas = 1 }\n'


@pytest.mark.parametrize(
    ("rest", "verdict"),
    [
        ("theirs = 0.82\nwithin = 0.1", "yes"),
        ("theirs = 1.2\nwithin = 0.1", "no"),
        ("theirs = 0.73\nwithin = 0.1", "undecided"),
        ("theirs = 0.9", "yes"),
        ("theirs = 1.1", "no"),
        ('expect = "below"', "yes"),
        ('expect = "above"', "no"),
    ],
)
def test_a_ratio_is_judged_by_its_interval(tmp_path, rest, verdict):
    found = finding(tmp_path, RATIO + rest)
    assert found.ours == pytest.approx(0.8, rel=0.01) and found.blocks == 3
    assert found.low < found.ours < found.high and found.reproduced == verdict
    if "within" in rest:
        assert f"{'the other' if 'theirs = 1.2' in rest else 'the same'} side of 1" in found.said


def test_an_undecided_finding_needs_more_blocks_the_closer_the_border_is(tmp_path):
    decided = finding(tmp_path, RATIO + "theirs = 0.82\nwithin = 0.1")
    half = math.log(decided.high / decided.ours)
    near, nearer = (
        finding(
            tmp_path,
            RATIO
            + f'theirs = {decided.ours / 1.1 * math.exp(share * half)}\nwithin = 0.1\nreason = "Noise."',
        )
        for share in (0.6, 0.3)
    )
    assert (near.reproduced, nearer.reproduced, decided.blocks_needed) == ("undecided", "undecided", None)
    assert 3 < near.blocks_needed < nearer.blocks_needed
    assert (near.reason, decided.reason) == ("Noise.", "")


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.5])
def test_the_needed_blocks_decide_in_four_of_five_cases(spread):
    random = np.random.default_rng(3)
    pilot = [spread * value for value in (-1.0, 0.0, 1.0)]
    needed = blocks_needed(contrast_of_mean(pilot), 3, 0.1, 0.05)
    decided = []
    for _ in range(400):
        bounds = contrast_of_mean(random.normal(0.0, spread, needed).tolist()).interval()
        decided.append(bounds is not None and bounds[1] < 0.1)
    assert np.mean(decided) == pytest.approx(0.8, abs=0.07) or needed == 4


def test_the_blocks_of_several_runs_are_judged_together(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        f'{HEAD}[published]\nsource = "A"\n[[published.finding]]\ntext = "t"\n{RATIO}theirs = 0.8\n'
    )
    published = convert(spec_as_dict(read_spec(path)), ExperimentSpec).published
    run = SimpleNamespace(trials=[trial.content for trial in trials()])
    one, two = (findings_of(published, [run] * count).findings[0] for count in (1, 2))
    assert (one.blocks, two.blocks) == (3, 6) and two.ours == pytest.approx(one.ours)
    assert two.high - two.low < one.high - one.low


def test_a_ratio_of_one_block_has_no_interval_and_no_verdict(tmp_path):
    one_block = [trial for trial in trials() if trial.content.block == 2]
    assert finding(tmp_path, RATIO + "theirs = 0.8", one_block).reproduced == "undecided"


def test_failed_trials_and_unpaired_levels_are_excluded(tmp_path):
    found = trials()
    # One failed trial excludes its levels from every block, so its wrong number has no effect.
    found[0] = a_trial(1, 1, 1, 1e9, used=False)
    assert finding(tmp_path, RATIO + "theirs = 0.8", found).ours == pytest.approx(0.8, rel=0.01)
    failed = [without_use(trial) for trial in found]
    assert finding(tmp_path, RATIO + "theirs = 0.8", failed).reproduced == "not run"


def test_a_finding_can_compare_two_operations_of_the_same_trials(tmp_path):
    text = (
        'metric = "set.response_mean_ns"\nto_metric = "get.response_mean_ns"\ntheirs = 2.0\nwithin = 0.05\n'
    )
    found = finding(tmp_path, text + "of = { replicas = 2 }\nto = { replicas = 2 }")
    assert found.ours == pytest.approx(2.0) and found.reproduced == "yes"


@pytest.mark.parametrize(("theirs", "verdict"), [(5, "yes"), (10, "yes"), (1, "no"), (60, "no")])
def test_a_plateau_is_located_between_measured_loads(tmp_path, theirs, verdict):
    text = (
        'kind = "plateau"\nmetric = "throughput_per_s"\nfactor = "clients"\nof = { replicas = 1 }\n'
        + f"theirs = {theirs}"
    )
    found = finding(tmp_path, text)
    assert (found.low, found.ours, found.high) == (10, 10, 10) and found.reproduced == verdict


def test_a_plateau_that_differs_between_blocks_has_no_verdict(tmp_path):
    found = [trial for trial in trials() if trial.content.levels["replicas"] == "1"]
    for place, trial in enumerate(found):
        if (trial.content.block, trial.content.levels["clients"]) == (1, "100"):
            rate = 2 * trial.numbers.throughput_per_s
            found[place] = with_numbers(trial, throughput_per_s=rate)
    text = 'kind = "plateau"\nmetric = "throughput_per_s"\nfactor = "clients"\nof = { replicas = 1 }\ntheirs = 10'
    result = finding(tmp_path, text, found)
    assert (result.low, result.high) == (10, 100) and result.reproduced == "undecided"


@pytest.mark.parametrize(
    ("stage", "place", "verdict"), [("backend", 1, "yes"), ("queue", 2, "yes"), ("queue", 1, "no")]
)
def test_the_longest_stage(tmp_path, stage, place, verdict):
    text = f'kind = "stage"\noperation = "get"\nof = {{ clients = 100 }}\nstage = "{stage}"\nplace = {place}'
    found = finding(tmp_path, text)
    assert found.reproduced == verdict and "the longest is backend in 6" in found.said
    assert found.ours == pytest.approx({"backend": 0.665, "queue": 0.333}[stage], abs=0.001)


def test_a_stage_that_is_longest_only_in_some_trials_has_no_verdict(tmp_path):
    found = trials()
    found[0] = a_trial(1, 1, 1, 1000.0, stages=STAGES | {"queue": 9e5})
    text = 'kind = "stage"\noperation = "get"\nof = { clients = 1 }\nstage = "backend"'
    assert finding(tmp_path, text, found).reproduced == "undecided"


@pytest.mark.parametrize(("link", "verdict"), [(0.97, "yes"), (0.5, "no")])
def test_a_full_link(tmp_path, link, verdict):
    text = 'kind = "link"\nof = { clients = 100 }\nlink = "server-1 up"'
    assert finding(tmp_path, text, trials(link=link)).reproduced == verdict


def test_the_largest_effect(tmp_path):
    two_by_two = [trial for trial in trials() if trial.content.levels["clients"] != "1"]
    text = 'kind = "effect"\nmetric = "throughput_per_s"\n'
    mine = finding(tmp_path, text + 'factor = "replicas"', two_by_two)
    assert mine.reproduced == "yes" and mine.ours > 0.2 and mine.blocks == 3
    other = finding(tmp_path, text + 'factor = "clients"', two_by_two)
    assert other.reproduced == "no" and "effect is that of replicas" in other.said
    # With three levels it is not a two-level design.
    assert finding(tmp_path, text + 'factor = "replicas"').reproduced == "not run"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[published]\n", "published.source: is missing"),
        (
            '[published]\nsource = "A"\nfindings = 3',
            "published.findings is not a key; did you mean published.finding?",
        ),
        (
            '[published]\nsource = "A"\n[[published.finding]]\ntext = "t"',
            "published.finding[0].metric: is missing",
        ),
        (
            f'[published]\nsource = "A"\n[[published.finding]]\ntext = "t"\n{RATIO}',
            "needs theirs, a ratio, or expect",
        ),
        (
            '[published]\nsource = "A"\n[[published.finding]]\ntext = "t"\nof = { copies = 2 }',
            "published.finding[0].of[0].copies: is not a factor",
        ),
        (
            '[published]\nsource = "A"\n[[published.finding]]\ntxt = "t"',
            "published.finding[0].txt is not a key",
        ),
        (
            '[published]\nsource = "A"\n[[published.series]]\ntext = "t"',
            "published.series[0].points: should be a list of tables",
        ),
    ],
)
def test_an_invalid_finding_raises_one_line(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    with pytest.raises(LabError) as caught:
        read_spec(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_series_becomes_one_finding_per_point(tmp_path):
    path = tmp_path / "x.toml"
    series = (
        '[published]\nsource = "A"\n[[published.series]]\ntext = "t"\nmetric = "throughput_per_s"\nwithin = 0.1\n'
        "base = { replicas = 1 }\npoints = [\n{ at = { replicas = 2 }, theirs = 0.9 },\n"
        "{ at = { clients = 100 }, base = { clients = 1 }, theirs = 10 }]\n"
    )
    path.write_text(HEAD + series)
    first, second = read_spec(path).published.findings
    assert first.of == {"replicas": ("2",)} and first.to == {"replicas": ("1",)} and first.theirs == 0.9
    assert second.to == {"clients": ("1",)} and second.within == 0.1


def test_findings_appear_in_the_analysis_and_on_the_page(run_folder, monkeypatch):
    """The synthetic run has a finding whose true value is known."""
    # The test reads only the page's text, and the drawing program takes seconds to load.
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda *_: "")
    run = json.loads((run_folder / "run.json").read_text())
    assert analyse(run_folder).published is None
    predict(run_folder)
    assert "What did others find?" not in page(read_content(run_folder), [])
    told = Finding("more <b>copies</b> cost a tenth", metric="throughput_per_s", theirs=0.9, within=0.05)
    told = dataclasses.replace(told, of={"replicas": ("2",)}, to={"replicas": ("1",)})
    run["spec"]["published"] = dataclasses.asdict(Published("A study", (told,)))
    (run_folder / "run.json").write_text(json.dumps(run))
    content = analyse(run_folder)
    # The predictions of an earlier analysis would be refused.
    predict(run_folder)
    assert content.published.counts["yes"] == 1
    assert content.facts[-1] == "Of 1 findings of A study, 1 are reproduced and 0 are not."
    text = page(read_content(run_folder), [])
    assert "What did others find?" in text and "more &lt;b&gt;copies&lt;/b&gt; cost a tenth" in text
    assert "throughput_per_s: 2 replicas, against 1 replica" in text


def test_facts_count_the_verdicts():
    counts = {"yes": 2, "no": 1, "undecided": 1, "not run": 0}
    found = SimpleNamespace(source="A", findings=[None] * 4, counts=counts)
    assert published_facts(found) == ["Of 4 findings of A, 2 are reproduced and 1 are not; 1 undecided."]
    assert published_facts(None) == []
