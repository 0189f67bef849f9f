"""Invalid input of elementary queues: one line that names the field and the rule, and never NaN or infinity."""

import math

import pytest

from waylab.models import (
    GG1,
    MG1,
    MM1,
    MM1K,
    AssumptionError,
    BirthDeath,
    BulkService,
    ClosedBirthDeath,
    ClosedMMc,
    GGm,
    MMm,
    MMmK,
    ModelError,
    ProcessorSharing,
    Service,
    UnstableError,
    erlang_b,
    erlang_c,
    servers_needed,
)

# Makes a queue from its arrival rate and its service rate.
BY_RATES = {
    "MM1": MM1,
    "MMm": lambda arrivals, services: MMm(arrivals, services, 2),
    "MM1K": lambda arrivals, services: MM1K(arrivals, services, 3),
    "MMmK": lambda arrivals, services: MMmK(arrivals, services, 2, 3),
    "GG1": GG1,
    "GGm": lambda arrivals, services: GGm(arrivals, services, 2),
    "BulkService": lambda arrivals, services: BulkService(arrivals, services, 2),
    "MG1": MG1,
    "MD1": lambda arrivals, service_s: MG1(arrivals, service_s, 0.0),
    "ProcessorSharing": ProcessorSharing,
    "closed": lambda arrivals, services: ClosedBirthDeath(3, 1.0, (arrivals, services)),
    "chain": lambda arrivals, services: BirthDeath([arrivals, 1.0], [1.0, services]),
}


@pytest.mark.parametrize("name", BY_RATES)
@pytest.mark.parametrize("rate", [0, 0.0, -1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_a_rate_is_a_finite_number_above_zero(name, rate, which):
    rates = [0.5, 0.5]
    rates[which] = rate
    with pytest.raises(ModelError, match=r"must be a finite number > 0, not"):
        BY_RATES[name](*rates)


@pytest.mark.parametrize("rate", [True, "1", None, 1j])
def test_what_is_no_number_is_refused_too(rate):
    with pytest.raises(ModelError, match="services_per_s: must be a finite number > 0, not"):
        MM1(0.5, rate)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MM1(1.0, 1.0),
        lambda: MM1(2.0, 1.0),
        lambda: MMm(10, 5, 2),
        lambda: MG1(1.0, 1.0),
        lambda: MG1(2.0, Service(1.0, 4.0, "gamma")),
        lambda: MG1(1.0, 1.0, 0.0),
        lambda: GG1(1.0, 1.0),
        lambda: GGm(4.0, 1.0, 4),
        lambda: BulkService(4.0, 1.0, 4),
        lambda: ProcessorSharing(1.0, 1.0),
        lambda: BirthDeath([1.0], [1.0], 2.0, 2.0),
        lambda: erlang_c(3, 3.0),
    ],
)
def test_an_unstable_queue_raises(make):
    with pytest.raises(UnstableError, match=r"is unstable: utilisation [\d.]+ is not below 1"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MMm(1, 1, 0), "servers: must be a whole number >= 1, not 0"),
        (lambda: MMm(1, 1, 2.5), "servers: must be a whole number >= 1, not 2.5"),
        (lambda: MMm(1, 1, True), "servers: must be a whole number"),
        (lambda: MMmK(1, 1, 0, 3), "servers: must be a whole number >= 1"),
        (lambda: MMmK(1, 1, 4, 3), "capacity: includes requests in service: at least 4, not 3"),
        (lambda: MM1K(1, 1, 0), "capacity: must be a whole number >= 1"),
        (lambda: ClosedMMc(0, 1, 1, 1), "clients: must be a whole number >= 1"),
        (lambda: ClosedMMc(1, 0, 1, 1), "servers: must be a whole number >= 1"),
        (lambda: ClosedMMc(1, 1, 0, 1), "service_s: must be a finite number > 0"),
        (lambda: ClosedMMc(1, 1, 1, -1), "think_s: must be a finite number >= 0"),
        (lambda: ClosedMMc(1, 1, 1, math.nan), "think_s: must be a finite number >= 0"),
        (lambda: ClosedBirthDeath(5, 1.0, ()), "rates_per_s: needs at least one"),
        (lambda: ClosedBirthDeath(5, 1.0, (1, 0)), r"rates_per_s\[1\]: must be a finite number > 0, not 0"),
        (lambda: BirthDeath([1, 2], [1]), "as many births as deaths, not 2 and 1"),
        (lambda: BirthDeath([], []), "at least one birth and one death, or a tail"),
        (lambda: BirthDeath([1], [1], 0.5), "tail_deaths_per_s: must be a finite number > 0"),
        (lambda: BirthDeath([[1]], [[1]]), "must be a list of rates"),
        (lambda: MG1(0.5, 1.0, -1), "squared_variation: must be a finite number >= 0"),
        (lambda: MG1(0.5, 1.0, 1.0, 3.0), "third_moment_s3: is at least 4"),
        (lambda: MG1(0.5, 1.0, None, 3.0), "third_moment_s3: is given without a squared_variation"),
        (lambda: MG1(0.5, Service(1.0), 2.0), "squared_variation: belongs to a plain mean"),
        (lambda: MG1(0.5, Service(0.0)), "service.mean_s: must be a finite number > 0"),
        (lambda: GG1(0.5, 1, -0.1), "arrival_squared_variation: must be a finite number >= 0"),
        (lambda: GGm(0.5, 1, 2, 1, math.nan), "service_squared_variation: must be a finite number >= 0"),
        (lambda: BulkService(1, 1, 0), "batch: must be a whole number >= 1"),
        (lambda: erlang_b(-1, 1), "servers: must be a whole number >= 0"),
        (lambda: erlang_b(1, -1), "offered: must be a finite number >= 0"),
        (lambda: erlang_b(1, math.nan), "offered: must be a finite number >= 0"),
        (lambda: erlang_c(0, 1), "servers: must be a whole number >= 1"),
        (lambda: servers_needed(1, 1), "give either waits_probability or response_mean_s"),
        (lambda: servers_needed(1, 1, waits_probability=0), "must lie between 0 and 1"),
        (lambda: servers_needed(1, 1, waits_probability=math.nan), "must lie between 0 and 1"),
        (lambda: servers_needed(1, 1, response_mean_s=1.0), "must be finite and above 1, the service time"),
        (lambda: servers_needed(-1, 1, waits_probability=0.5), "arrivals_per_s: must be a finite number > 0"),
        (lambda: MM1(0.5, 1).probability(-1), "present: must be a whole number >= 0"),
        (lambda: BirthDeath([], [], 1, 2).probabilities, "there is no largest number"),
        (lambda: ClosedBirthDeath(20_000, 1.0, (1, 1.5)).response_time, "too many; simulate"),
    ],
)
def test_invalid_parameters_raise_one_line(make, message):
    with pytest.raises(ModelError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan])
@pytest.mark.parametrize(
    "queue",
    [
        MM1(0.5, 1),
        MMm(1, 1, 3),
        MMmK(1, 1, 2, 4),
        ClosedMMc(3, 1, 1, 1),
        MG1(0.5, 1),
    ],
    ids=lambda queue: queue.name,
)
def test_a_share_lies_between_zero_and_one(queue, share):
    for ask in (queue.waiting_quantile_s, queue.response_quantile_s):
        with pytest.raises(ModelError, match="share: must lie between 0 and 1"):
            ask(share)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: MG1(0.5, 1, 2.0).waiting_std_s,
            "known distribution of service, but only two of its moments",
        ),
        (
            lambda: MG1(0.5, Service(1, 2.0, "gamma")).waiting_quantile_s(0.9),
            "a time made of phases, but it is gamma",
        ),
        (
            lambda: GG1(0.5, 1).response_quantile_s(0.9),
            "nothing that gives the distribution of the response time",
        ),
        (lambda: GG1(0.5, 1).busy_period_std_s, "nothing that gives the busy period"),
        (
            lambda: ProcessorSharing(0.5, Service.deterministic(1)).response_std_s,
            "other than exponential service",
        ),
        (lambda: ClosedMMc(3, 1, 1, 0).busy_period_mean_s, "a think time above 0"),
    ],
)
def test_what_a_queue_cannot_say_names_the_assumption(ask, message):
    with pytest.raises(AssumptionError, match=message):
        ask()
