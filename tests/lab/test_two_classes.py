"""A16's network from measured times: known answers where the measurement is the network itself."""

from dataclasses import replace

import pytest

from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.models import solve
from waylab.predict import two_classes
from waylab.report.study.models import two_class_section

SHARE = 0.05
# The reply takes a part of the delay inside of the proxy.
DELAY_S, REPLY_S, BALANCER_S, READER_S, WRITER_S = 5.7e-3, 0.9e-3, 3.9e-6, 3.0e-3, 3.1e-3
NAMES = ("two populations", "one population", "one population, SETs without a queue")
# Of the stages, only these are not empty.
EMPTY = dict.fromkeys(("parse", "route", "send"), 0.0)


def observation(servers, **measured):
    settings = ModelSettings(
        clients=180,
        writes_share=SHARE,
        proxies=1,
        servers=servers,
        readers=32,
        others=(("proxy.dispatch", "per-backend"),),
    )
    times = {"get": READER_S, "set": WRITER_S}
    stages = {
        name: EMPTY | {"admit": BALANCER_S, "queue": 0.0, "backend": time, "reply": REPLY_S}
        for name, time in times.items()
    }
    for values in stages.values():
        values["total"] = sum(values.values())
    stages["all"] = stages["get"]
    responses = {name: DELAY_S + BALANCER_S + time for name, time in times.items()}
    found = {
        "throughput_per_s": 1.0,
        "response_s": 1.0,
        "responses_s": responses,
        "stages_s": stages,
    } | measured
    return TrialObservation(
        run="r", trial="t", configuration=f"servers={servers}", block=1, role="", settings=settings, **found
    )


def true_system(servers, kind):
    """A measurement of one of the three networks itself."""
    start = observation(servers)
    result = solve(two_classes.networks(start, start)[kind])
    # Waiting is in the queue, so that the stages give the same service times and delays again.
    stages = {name: dict(values) for name, values in start.stages_s.items()}
    responses = dict(zip(("get", "set"), map(float, result.response_s), strict=True))
    for name, response_s in responses.items():
        stages[name]["total"] = response_s - DELAY_S + REPLY_S
    return observation(
        servers, throughput_per_s=result.throughput_total_per_s, responses_s=responses, stages_s=stages
    )


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_measurement_of_a_network_is_predicted_without_error(monkeypatch, kind):
    systems = [true_system(servers, kind) for servers in (3, 5)]
    monkeypatch.setattr(two_classes, "observe", lambda directories: systems)
    found = two_classes.two_class_predictions([])
    assert [(one.learned_from, one.predicted) for one in found] == [
        ("servers=3", "servers=3"),
        ("servers=5", "servers=3"),
        ("servers=3", "servers=5"),
        ("servers=5", "servers=5"),
    ]
    assert [one.description for one in found] == [True, False, False, True]
    for one in found:
        right, *wrong = [
            one.errors[name] for name in sorted(one.errors, key=lambda name: name != NAMES[kind])
        ]
        for error in (right.throughput, right.get_response, right.set_response):
            assert error == pytest.approx(0, abs=1e-6)
        assert all(abs(error.set_response) > 0.05 for error in wrong)


def test_fixed_populations_make_too_few_sets():
    """Nine of 180 customers who are slower make less than 5 % of the requests; the study has 3.9 %."""
    fixed, drawn, _ = (solve(network) for network in two_classes.networks(observation(5), observation(5)))
    share = fixed.throughput_per_s[1] / fixed.throughput_per_s.sum()
    assert share == pytest.approx(0.039, abs=0.002)
    assert drawn.throughput_per_s[1] / drawn.throughput_per_s.sum() == pytest.approx(SHARE)


@pytest.mark.parametrize(
    "change", [{"replicas": 3}, {"writes_share": 0.0}, {"others": (("proxy.dispatch", "shared"),)}]
)
def test_other_systems_are_left_out(monkeypatch, change):
    one = true_system(3, 1)
    one = replace(one, settings=replace(one.settings, **change))
    monkeypatch.setattr(two_classes, "observe", lambda directories: [one])
    assert two_classes.two_class_predictions([]) == []


def test_the_table_has_predictions_only(monkeypatch):
    monkeypatch.setattr(
        two_classes, "observe", lambda directories: [true_system(servers, 1) for servers in (3, 5)]
    )
    rows = list(two_class_section([("e", one) for one in two_classes.two_class_medians([])]))
    assert [row.split(" | ")[:3] for row in rows[6:-1]] == [["| e", "2", name] for name in NAMES]
    assert all(float(cell.split()[0]) < 1e-6 for cell in rows[7].split(" | ")[3:])
    assert not list(two_class_section([]))
