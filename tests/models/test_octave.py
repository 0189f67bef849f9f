"""A differential test: over a thousand random models, each answered by waylab and by GNU Octave's package queueing.

The two share no code. Where they differ by more than one in a million the reason is here, and a third method, which
shares code with neither, decides which is right. octave/make_answers.py wrote the models and Octave's answers.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import rational
from octave.ours import OURS, closed_one, qncmmva, qnom, with_rates

from waylab.models import MMm, closed_network
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.mva import solve_mva

ANSWERS = Path(__file__).parent / "octave/answers.json.gz"
TOLERANCE = 1e-6
# Answers are written with eleven digits.
AGREEMENT = 1e-10
MODELS = json.loads(gzip.decompress(ANSWERS.read_bytes()))
# The number of models that Octave answers differently, by reason; the tests below confirm each reason.
LOST_DIGITS = {"qncsmva": 3, "qncsmvald": 13, "qncsconv": 2}
NOT_ONE_SERVER = 20


def answers_of(model):
    return [np.array([np.nan if value is None else value for value in part]) for part in model["answers"]]


def deviation(model, ours, theirs):
    """Largest relative difference over all values that both return."""
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        if mine is None:
            continue
        values = np.ravel(np.asarray(mine, dtype=float))
        assert values.shape == other.shape, model
        said = ~np.isnan(values)
        size = np.maximum(np.maximum(np.abs(values), np.abs(other)), 1e-12)[said]
        apart = np.abs(values - other)[said] / size
        worst = max(worst, float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0)))
    return worst


def of(*names):
    return [model for model in MODELS if model["name"] in names]


def test_there_are_more_than_a_thousand_models():
    assert len(MODELS) >= 1000
    assert Counter(model["name"] for model in MODELS).keys() >= OURS.keys()
    assert len({json.dumps(model["given"]) + model["name"] for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("name", ["qsmmm", "qsmmmk", "qsmm1k", "qsmminf", "qnos", "qncscmva", "qncmmva"])
def test_waylab_and_octave_give_the_same_answers(name):
    for model in of(name):
        assert deviation(model, OURS[name](*model["given"]), answers_of(model)) < AGREEMENT, model


def test_mean_values_agree_with_theirs():
    for model in of("qncmmva")[::4]:
        if len(model["given"]) == 5 and max(model["given"][3][0]) == 1:
            assert deviation(model, qncmmva(*model["given"], solve_mva), answers_of(model)) < AGREEMENT, model


@pytest.mark.parametrize("name", ["qncsmva", "qncsmvald", "qncsconv", "qncsconvld"])
def test_recursions_with_a_difference_lose_digits(name):
    """Theirs take p(0) = 1 - sum, or divide a station out again; ours agrees with decimals of sixty digits.

    qncsmva and qncsmvald: the marginal probabilities of mean-value analysis; qncsconv and qncsconvld: the product of
    the other stations, which they get by subtraction. All of it for many customers at many servers or rates.
    """
    other, lost = 0, 0.0
    for model in of(name):
        ours = OURS[name](*model["given"])
        apart = deviation(model, ours, answers_of(model))
        if apart < AGREEMENT:
            continue
        assert deviation(model, ours, in_decimals(model)) < AGREEMENT, model
        other += apart > TOLERANCE
        lost = max(lost, apart)
    assert other == LOST_DIGITS.get(name, 0)
    assert lost > AGREEMENT


def in_decimals(model):
    """The same answers by sums of positive decimals."""
    clients, service, visits, *given = model["given"]
    if model["name"] in ("qncsmvald", "qncsconvld"):
        first, servers = np.array([row[0] for row in service]), None
        rates = [[row[0] / time for time in row] for row in service]
    else:
        first, servers = np.array(service[0]), np.array(given.pop(0)[0])
        rates = [range(1, (count if count > 0 else clients) + 1) for count in servers]
    demands_s = first * visits[0]
    throughput, lengths, busy = rational.closed_chain(clients, *(given or [0.0]), demands_s.tolist(), rates)
    completed = throughput * np.array(visits[0])
    if servers is not None:
        busy = np.where(servers > 0, completed * first / np.abs(servers), np.nan)
    return [np.array(busy), np.array(lengths) / completed, np.array(lengths), completed]


def test_open_networks_of_several_classes():
    """Qnom takes m servers for one that is m times as fast: its queue is U / (1 - U) however many there are."""
    several = 0
    for model in of("qnom"):
        ours, theirs = qnom(*model["given"]), answers_of(model)
        rates, service, visits, servers = (np.array(part) for part in model["given"])
        if servers.max() <= 1:
            assert deviation(model, ours, theirs) < AGREEMENT, model
            continue
        several += 1
        assert deviation(model, ours, theirs) > TOLERANCE
        assert np.ravel(ours[0]) == pytest.approx(theirs[0], rel=AGREEMENT)
        busy = theirs[0].reshape(service.shape)
        assert theirs[2] == pytest.approx(np.ravel(busy / (1 - busy.sum(axis=0))), rel=AGREEMENT)
        for index, count in enumerate(servers[0]):
            station = MMm(
                float(rates.sum() * visits[:, index].sum()), 1 / float(service[0, index]), int(count)
            )
            assert ours[2][:, index].sum() == pytest.approx(station.in_system_mean, rel=AGREEMENT)
    assert several == NOT_ONE_SERVER


def test_open_and_closed_classes_together():
    """Qnmix counts the visits of closed classes twice in their utilisation; X S is what its own X says."""
    for model in of("qnmix"):
        theirs = answers_of(model)
        clients, visits = np.array(model["given"][1][0]), np.array(model["given"][3])
        busy = theirs[0].reshape(visits.shape)
        busy[clients > 0] /= visits[clients > 0]
        ours = OURS["qnmix"](*model["given"])
        assert deviation(model, ours, [busy.ravel(), *theirs[1:]]) < AGREEMENT, model


@pytest.mark.parametrize("name", ["qncsaba", "qncsbsb", "qncsgb"])
def test_exact_throughput_lies_between_their_bounds(name):
    for model in of(name):
        clients, service, visits, _, think_s = model["given"]
        demands_s = {
            str(k): time * count for k, (time, count) in enumerate(zip(service[0], visits[0], strict=True))
        }
        exact = solve_convolution(closed_network(demands_s, clients, think_s)).throughput_per_s[0]
        lower, upper = (float(part[0]) for part in answers_of(model)[:2])
        assert lower * (1 - AGREEMENT) <= exact <= upper * (1 + AGREEMENT), model


def test_a_wrong_answer_fails_the_comparison():
    """The comparison itself: a queue length that is off in the eighth digit does not agree."""
    model = of("qncsmva")[0]
    theirs = answers_of(model)
    ours = closed_one(*model["given"])
    assert deviation(model, ours, theirs) < AGREEMENT
    assert deviation(model, [*ours[:2], ours[2] * (1 + 1e-8), ours[3]], theirs) > AGREEMENT
    model = of("qncsmvald")[0]
    assert deviation(model, with_rates(*model["given"]), answers_of(model)) < TOLERANCE
