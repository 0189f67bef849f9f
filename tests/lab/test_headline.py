"""The answer in two sentences: what changes along the figures, where the time goes, and what limits."""

from msgspec.structs import replace

from waylab.analysis import read_analysis
from waylab.analysis.across.answer.headline import LIMIT_MIN, headline
from waylab.analysis.across.axes import axes
from waylab.analysis.trial.numbers import TrialResult
from waylab.plan import make_plan
from waylab.report.page.content import read_content
from waylab.runfolder.numbers import Interval
from waylab.spec import read_spec


def fixed(mean):
    return Interval(count=3, mean=mean, low=None, high=None)


def answer(reported, **changed):
    """The headline of the shared run whose configurations differ as `changed` says."""
    content = read_analysis(reported)
    return headline(content.axes, [replace(one, **changed) for one in content.configurations], [])


def test_the_first_sentence_has_the_course_of_each_line(reported):
    found = read_analysis(reported).headline
    assert found.busiest == "clients=16, replicas=1"
    assert found.sentences[0] == (
        "From 4 to 16 clients with 1 replica, throughput rises from 10,033 to 20,067 requests/s, and mean response "
        "time rises from 399 µs to 798 µs. With 2 replicas, throughput rises from 9,030 to 18,060 requests/s, and mean "
        "response time rises from 443 µs to 886 µs."
    )
    assert "At the highest throughput (16 clients, 1 replica)" in found.sentences[1]
    assert len(found.sentences) == 2 and found.longest_stage in found.sentences[1]


def test_a_full_machine_is_the_limit_and_nothing_else_is(reported):
    found = answer(reported, busy_share=fixed(0.97), generator_cpu_share=fixed(0.99))
    assert found.limit == "CPU of the machine"
    assert "the limit is the CPU of the machine (97 % busy)" in found.sentences[1]
    assert "still adds" not in found.sentences[1]


def test_without_a_full_resource_no_limit_is_claimed(reported):
    found = answer(reported, busy_share=fixed(0.5), generator_cpu_share=fixed(0.2), cpu_per_request_ns={})
    assert found.limit is None and found.utilisation[found.busiest][0].share < LIMIT_MIN
    assert (
        "no measured resource is the limit: the busiest is the CPU of the machine with 50 %"
        in found.sentences[1]
    )
    assert "the last step still adds 100 % throughput" in found.sentences[1]


def test_a_full_link_is_the_limit(reported):
    found = answer(reported, busy_share=fixed(0.5), link_utilisation={"server up": fixed(0.98)})
    assert found.limit == "link server up"


def test_a_peak_within_the_loads_is_reported(reported):
    content = read_analysis(reported)
    line = [one for one in content.configurations if one.series == content.configurations[0].series]
    three = [
        replace(line[0], x=x, throughput_per_s=fixed(rate))
        for x, rate in ((4, 100.0), (8, 300.0), (16, 200.0))
    ]
    levels = replace(content.axes, levels=[4.0, 8.0, 16.0])
    assert (
        "rises from 100 to 300 requests/s at 8 and then falls to 200"
        in headline(levels, three, []).sentences[0]
    )


def test_without_used_trials_there_is_no_sentence(reported):
    content = read_analysis(reported)
    found = headline(content.axes, [replace(one, used=0) for one in content.configurations], [])
    assert found.sentences == [] and found.busiest is None


def test_factors_with_one_level_are_in_no_name_and_no_figure(tmp_path, reported):
    path = tmp_path / "one.toml"
    text = (reported.parent.parent / "synthetic.toml").read_text()
    path.write_text(text.replace("replicas = [1, 2]", 'replicas = [1, 2]\n"load.threads" = [1]\nloops = [1]'))
    spec = read_spec(path)
    assert {trial.configuration for trial in make_plan(spec).trials} == {
        f"clients={clients}, replicas={replicas}" for clients in (4, 16) for replicas in (1, 2)
    }
    resolved = read_content(reported).spec
    fixed_factor = replace(resolved.factors[0], name="fixed", levels=resolved.factors[0].levels[:1])
    chosen = axes(replace(resolved, factors=[fixed_factor, *resolved.factors]))
    assert chosen.x == "clients" and chosen.series == ["replicas"]
    assert [view.x for view in chosen.views] == ["replicas"]


def noisy(reported, spread):
    """The trials of the shared run, whose throughput with 16 clients differs between the blocks by this factor."""
    changed = []
    for trial in read_analysis(reported).trials:
        rate = 10_000.0 + 1000 * (trial.block % 2)
        if trial.levels["clients"] == "16":
            rate *= 1.3 * spread ** (1 if trial.block % 2 else -1)
        changed.append(TrialResult(replace(trial, numbers=replace(trial.numbers, throughput_per_s=rate))))
    return changed


def test_a_change_that_the_trials_do_not_decide_is_not_called_one(reported):
    """The means differ by 30 %, but the interval of their ratio contains 1."""
    content = read_analysis(reported)
    course = headline(content.axes, content.configurations, noisy(reported, 3.0)).sentences[0]
    assert "(undecided: the 95 % interval of the ratio is " in course
    course = headline(content.axes, content.configurations, noisy(reported, 1.01)).sentences[0]
    assert "undecided" not in course
