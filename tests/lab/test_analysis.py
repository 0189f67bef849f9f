"""The analysis of run folders whose true values are known."""

import json
import math
import shutil

import numpy as np
import pytest
from conftest import BLOCKS, CLIENTS, REPLICAS, true_throughput
from scipy import stats
from synthetic import AFTER_NS, PROXY_STAGES_NS, WINDOW_S, Truth, write_trial

from waylab.analysis import analyse, read_analysis
from waylab.errors import LabError
from waylab.run import create_run
from waylab.runfolder.files import read_run


def by_levels(content, clients, replicas):
    return next(c for c in content.configurations if c.levels == {"clients": clients, "replicas": replicas})


def test_throughput_and_its_interval(run_folder):
    content = analyse(run_folder)
    assert content == read_analysis(run_folder) and content.complete and content.trials_used == 12
    for clients, base in CLIENTS.items():
        for replicas, share in REPLICAS.items():
            values = [base * share * block for block in BLOCKS.values()]
            found = by_levels(content, clients, replicas).throughput_per_s
            mean, error = np.mean(values), stats.sem(values)
            low, high = np.exp(stats.t.interval(0.95, 2, loc=np.log(mean), scale=error / mean))
            assert found.count == 3
            assert (found.mean, found.low, found.high) == pytest.approx((mean, low, high))


def test_response_times_and_the_interactive_law(run_folder):
    content = analyse(run_folder)
    found = by_levels(content, "16", "1")
    means_ns = [1e9 * 16 / (20_000 * block) for block in BLOCKS.values()]
    assert found.operations["all"].response_mean_ns.mean == pytest.approx(np.mean(means_ns), rel=1e-5)
    assert abs(found.interactive_law_error.mean) < 1e-5
    p95_ns = -math.log(0.05) * np.mean(means_ns)
    assert found.operations["all"].percentiles_ns["95"] == pytest.approx(p95_ns, rel=0.03)
    assert found.operations["all"].count == 120_400 and "set" not in found.operations
    shares = [point.share for point in found.distribution]
    assert shares == sorted(shares) and max(shares) * 120_400 <= 120_390


def test_stages_sum_to_the_total_and_have_their_lengths(run_folder):
    stages = by_levels(analyse(run_folder), "4", "2").stages["get"].stages
    for stage, length_ns in PROXY_STAGES_NS.items():
        assert stages[stage].mean_ns.mean == stages[stage].p50_ns == stages[stage].p95_ns == length_ns
    assert stages["total"].mean_ns.mean == sum(PROXY_STAGES_NS.values())


def test_both_views_differ_by_the_time_between_client_and_proxy(run_folder):
    view = by_levels(analyse(run_folder), "4", "1").proxy_view
    inside_ns = sum(PROXY_STAGES_NS.values())
    assert view.joined.mean == 400 and view.unmatched.mean == 0
    assert view.proxy_mean_ns.mean == inside_ns
    # Four clients obey the interactive law, in blocks of different throughput.
    response_ns = sum(4e9 / (10_000 * factor) for factor in BLOCKS.values()) / len(BLOCKS)
    assert view.client_mean_ns.mean == pytest.approx(response_ns, abs=1)
    assert view.difference_mean_ns.mean == pytest.approx(response_ns - inside_ns, abs=1)
    assert view.before_mean_ns.mean == pytest.approx(response_ns - inside_ns - AFTER_NS, abs=1)
    assert view.after_mean_ns.mean == AFTER_NS


def test_cpu_time_is_interpolated_to_the_window(run_folder):
    content = analyse(run_folder)
    trial = content.trials[0]
    requests = round(true_throughput(read_run(run_folder).plan[0]) * WINDOW_S)
    cost = trial.numbers.cpu.cpu_per_request_ns
    assert cost["proxy"] == pytest.approx(0.8e9 / requests, rel=1e-6)
    assert cost["backends"] == pytest.approx(0.3e9 / requests, rel=1e-6)
    assert cost["load"] == pytest.approx(0.4e9 / requests)
    assert cost["total"] == pytest.approx(1.5e9 / requests, rel=1e-6)
    assert trial.numbers.cpu.foreign_share == pytest.approx(0, abs=1e-9)


def test_the_largest_second_is_a_measured_value(run_folder):
    found = by_levels(analyse(run_folder), "4", "1")
    assert found.largest_second_per_s == round(1.1 * 10_000 * BLOCKS[3])


def test_a_comparison_is_paired_within_blocks(run_folder):
    comparison = analyse(run_folder).comparisons[0]
    assert comparison.pairs == 6 and comparison.overall.blocks == 3
    assert comparison.overall.ratio == pytest.approx(0.9)
    # The blocks differ and the ratio within them does not: pairing removes the blocks.
    assert (comparison.overall.low, comparison.overall.high) == pytest.approx((0.9, 0.9))
    assert comparison.overall.excludes_1 and comparison.overall.equivalent
    assert [stratum.levels for stratum in comparison.strata] == ["4 clients", "16 clients"]


def test_a_missing_trial_does_not_shift_the_ratio(run_folder):
    planned = next(p for p in read_run(run_folder).plan if p.levels == {"clients": "4", "replicas": "1"})
    write_trial(run_folder, planned, Truth(throughput_per_s=1e6, share=0.95))
    comparison = analyse(run_folder).comparisons[0]
    assert (comparison.pairs, comparison.overall.blocks) == (5, 3)
    assert comparison.overall.ratio == pytest.approx(0.9)


BAD = [
    ("generator_cpu", Truth(share=0.95)),
    ("foreign_cpu", Truth(foreign_share=0.4)),
    ("steal", Truth(steal_share=0.15)),
    ("hit_ratio", Truth(misses=1000)),
    ("interactive_law", Truth(law_error=0.05)),
    ("dropped_records", Truth(dropped=1)),
    ("errors", Truth(errors=1)),
    ("verification", Truth(wrong=1)),
]


@pytest.mark.parametrize(("gate", "truth"), BAD)
def test_a_trial_that_fails_a_gate_is_reported_but_not_used(run_folder, gate, truth):
    planned = read_run(run_folder).plan[0]
    shutil.rmtree(run_folder / "trials" / planned.id)
    truth.throughput_per_s = 5_000_000.0 if gate == "nothing" else 10 * true_throughput(planned)
    write_trial(run_folder, planned, truth)
    content = analyse(run_folder)
    trial = next(trial for trial in content.trials if trial.id == planned.id)
    assert not trial.used and [reason.split(":")[0] for reason in trial.reasons] == [gate]
    assert {g.name: g.passed for g in trial.gates}[gate] is False
    assert content.trials_used == 11
    found = by_levels(content, planned.levels["clients"], planned.levels["replicas"])
    assert found.used == 2 and found.throughput_per_s.mean < 2 * true_throughput(planned)


def test_a_gate_can_be_overridden(spec_path, fake, tmp_path):
    text = (
        spec_path.read_text()
        + '\n[gates]\ngenerator_cpu_max = 0.99\nreason = "the load is what we measure"\n'
    )
    spec_path.write_text(text)
    directory = create_run(spec_path, tmp_path / "other").directory
    for planned in read_run(directory).plan:
        write_trial(directory, planned, Truth(throughput_per_s=true_throughput(planned), share=0.95))
    assert analyse(directory).trials_used == 12
    assert read_run(directory).spec.gates.loosened == ["generator_cpu_max"]


def test_closed_loops_have_no_offered_load(run_folder):
    gates = {gate.name: gate.passed for gate in analyse(run_folder).trials[0].gates}
    assert gates["achieved_offered"] is None and gates["complete"] is True


def spoil(run_folder, name, change):
    planned = read_run(run_folder).plan[0]
    path = run_folder / "trials" / planned.id / name
    change(path)
    content = analyse(run_folder)
    return next(trial for trial in content.trials if trial.id == planned.id)


def test_missing_and_damaged_files_give_a_reason_instead_of_a_traceback(run_folder):
    trial = spoil(run_folder, "records/proxy-1.way", lambda path: path.write_bytes(path.read_bytes()[:-5]))
    assert not trial.used and "has no footer" in trial.reasons[0]
    trial = spoil(run_folder, "records/proxy-1.way", lambda path: path.unlink())
    assert trial.reasons == ["complete: proxy: left no records"]
    trial = spoil(run_folder, "processes.csv", lambda path: path.unlink())
    assert not trial.used and "telemetry" in "".join(trial.reasons)
    trial = spoil(
        run_folder, "load.json", lambda path: path.write_text(json.dumps({"format": "waystage-load/1"}))
    )
    assert (
        not trial.used
        and "Object missing required field `measure_from_clock_ns`; docs/load-summary.md describes it"
        in (trial.reasons[0])
    )
    trial = spoil(
        run_folder, "load.json", lambda path: path.write_text(json.dumps({"format": "waystage-load/9"}))
    )
    assert "format is 'waystage-load/9'" in trial.reasons[0]
    trial = spoil(run_folder, "load.json", lambda path: path.unlink())
    assert "the load wrote no summary" in trial.reasons[0]
    trial = spoil(run_folder, "trial.json", lambda path: path.unlink())
    assert trial.reasons == ["complete: has not been run"] and not trial.run


def test_a_failed_program_is_the_reason_of_the_trial(run_folder):
    planned = read_run(run_folder).plan[0]
    write_trial(run_folder, planned, Truth(), status="failed", reason="proxy: ended with 1")
    trial = next(trial for trial in analyse(run_folder).trials if trial.id == planned.id)
    assert trial.reasons == ["complete: proxy: ended with 1"]


def test_a_run_without_usable_trials_has_no_aggregates(empty_run):
    content = analyse(empty_run)
    assert content.trials_used == 0 and not content.complete
    assert all(c.throughput_per_s.mean is None for c in content.configurations)
    assert content.comparisons[0].overall.ratio is None


@pytest.mark.parametrize("text", ['{"format": "waylab-run/9"}', "[]", "not json"])
def test_another_run_format_raises_one_line(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(LabError) as caught:
        analyse(tmp_path)
    assert str(tmp_path / "run.json") in str(caught.value) and "\n" not in str(caught.value)


def test_facts_quote_the_numbers(run_folder):
    facts = analyse(run_folder).facts
    assert facts[0].startswith("12 of 12 trials passed")
    assert any("at 16 clients" in fact for fact in facts)
    # The verdict of an announced comparison is part of the answer, not repeated among the facts.
    (answered,) = analyse(run_folder).answer
    assert answered.startswith(
        "Throughput with 2 replicas against 1 replica, averaged over 4 and 16 clients: "
    )
    assert "ratio 0.9000" in answered and "95 % interval 0.9000 to 0.9000" in answered
    assert not any("95 % interval 0.9000" in fact for fact in facts)
