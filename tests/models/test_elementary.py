"""The elementary queues against the literature: known answers to all printed digits, and published tables."""

from fractions import Fraction
from math import factorial, sqrt

import pytest

from waylab.models import (
    MG1,
    MM1,
    MM1K,
    ClosedBirthDeath,
    ClosedMMc,
    GGm,
    MMm,
    MMmK,
    as_table,
    erlang_b,
    erlang_c,
    servers_needed,
)


def printed(value, text):
    """Return whether a value has the digits of a printed number."""
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return abs(value / 10 ** int(exponent or 0) - float(mantissa)) <= 0.51 * 10**-decimals


def check(values):
    for value, text in values:
        assert printed(value, text), (value, text)


def exact_erlang_c(servers, offered):
    """Straight from the definition, in rational numbers."""
    below = sum(Fraction(offered) ** n / factorial(n) for n in range(servers))
    above = Fraction(offered) ** servers / factorial(servers) / (1 - Fraction(offered) / servers)
    return float(above / (below + above))


def test_one_server():
    queue = MM1(0.8, 1.0)
    check(
        (
            (queue.response_mean_s, "5.0000"),
            (queue.in_system_mean, "4.0000"),
            (queue.waiting_mean_s, "4.0000"),
            (queue.response_quantile_s(0.95), "14.97866"),
            (queue.response_quantile_s(0.99), "23.02585"),
            (queue.waiting_quantile_s(0.95), "13.86294"),
            (queue.busy_period_mean_s, "5.0000"),
            (queue.busy_period_variance_s2, "225.0000"),
        )
    )


def test_several_servers():
    two, four = MMm(9, 5, 2), MMm(9, 5, 4)
    check(
        (
            (two.waits_probability, "0.8526316"),
            (two.queue_length_mean, "7.673684"),
            (two.response_mean_s, "1.052632"),
            (four.waits_probability, "0.1285336"),
            (four.queue_length_mean, "0.1051639"),
            (four.response_mean_s, "0.2116849"),
        )
    )


def test_finite_room():
    assert printed(MMmK(40, 30, 3, 7).probability(0), ".2550369")
    assert printed(MMmK(40, 30, 3, 7).response_mean_s, ".0365170")
    assert printed(MMmK(50, 10, 4, 6).loss_probability, ".2935430")
    queue = MMmK(3, 2, 2, 5)
    check(
        (
            (queue.probability(0), ".1793345"),
            (queue.loss_probability, ".0851138"),
            (queue.in_system_mean, "2.0059545"),
            (queue.waiting_mean_s, ".2308576"),
        )
    )


def test_one_server_with_room_for_few():
    """Gross and Harris, 2.5: p(n) = (1 - rho) rho^n / (1 - rho^(K + 1)), and 1 / (K + 1) at rho = 1."""
    queue = MM1K(0.5, 1.0, 4)
    assert queue.probabilities == pytest.approx([0.5 ** (n + 1) / (1 - 0.5**5) for n in range(5)], rel=1e-14)
    assert MM1K(3.0, 3.0, 4).probabilities == pytest.approx([0.2] * 5, rel=1e-14)
    assert queue.throughput_per_s == pytest.approx(0.5 * (1 - queue.loss_probability), rel=1e-14)
    assert queue.lost_per_s == pytest.approx(0.5 / 31, rel=1e-13)


@pytest.mark.parametrize(
    ("servers", "clients", "think_s", "service_s", "throughput", "response"),
    [
        (1, 100, 300, 0.63, ".33245315", ".79425969"),
        (2, 3, 2, 0.25, "1.33241947", None),
        (300, 400, 0, 0.444, "675.6757", ".5920"),
    ],
)
@pytest.mark.parametrize("by_rates", [False, True])
def test_closed(servers, clients, think_s, service_s, throughput, response, by_rates):
    rates = [n / service_s for n in range(1, servers + 1)]
    queue = (
        ClosedBirthDeath(clients, think_s, rates)
        if by_rates
        else ClosedMMc(clients, servers, service_s, think_s)
    )
    assert printed(queue.throughput_per_s, throughput)
    assert response is None or printed(queue.response_mean_s, response)


@pytest.mark.parametrize(
    ("clients", "text"), [(10, "4.000157012"), (30, "5.766437887"), (50, "15.000022354"), (90, "35.0")]
)
def test_closed_is_exact_where_the_textbook_recursion_turns_negative(clients, text):
    assert printed(ClosedMMc(clients, 8, 4.0, 10.0).response_mean_s, text)
    assert printed(ClosedMMc(192, 64, 0.0045, 0.0012).throughput_per_s, "14222.2")


@pytest.mark.parametrize(("servers", "offered", "text"), [(10, 5, ".0183845703"), (100, 80, ".0039920286")])
def test_erlang_b(servers, offered, text):
    assert printed(erlang_b(servers, offered), text)
    assert printed(MMmK(offered, 1.0, servers, servers).loss_probability, text)


@pytest.mark.parametrize(
    ("servers", "utilisation", "text"),
    [
        (100, 0.8, ".0196464266"),
        (99, 0.8, ".0202056699"),
        (165, 0.8, ".0034068280"),
        (512, 0.8, "6.295e-7"),
        (100, 0.95, ".5064568539"),
        (1000, 0.95, ".0682534154"),
    ],
)
def test_erlang_c_keeps_its_digits_with_many_servers(servers, utilisation, text):
    assert printed(erlang_c(servers, servers * utilisation), text)
    assert printed(MMm(servers * utilisation, 1.0, servers).waits_probability, text)


@pytest.mark.parametrize(("variation", "waiting_s"), [(0, 0.5), (1, 1.0), (4, 2.5)])
def test_pollaczek_khinchine(variation, waiting_s):
    assert MG1(0.5, 1.0, variation).waiting_mean_s == pytest.approx(waiting_s, rel=1e-14)


def test_allen_cunneen():
    queue = GGm(3, 1, 4, arrival_squared_variation=1, service_squared_variation=0.5)
    assert printed(queue.waiting_mean_s, ".38207547") and queue.kind == "approximation"


@pytest.mark.parametrize(
    ("arrivals", "service_s", "target", "servers"),
    [(9, 0.2, 0.2, 4), (9, 0.2, 0.9, 2), (80, 1.0, 0.0196464267, 100), (80, 1.0, 0.0196464266, 101)],
)
def test_servers_needed_for_a_probability_of_queueing(arrivals, service_s, target, servers):
    assert servers_needed(arrivals, service_s, waits_probability=target) == servers


def test_servers_needed_for_a_response_time():
    found = servers_needed(950, 1.0, response_mean_s=1.001)
    assert MMm(950, 1.0, found).response_mean_s <= 1.001 < MMm(950, 1.0, found - 1).response_mean_s
    assert servers_needed(0.01, 1.0, response_mean_s=2.0) == 1


# Published tables: their correct values and their errors.

A16_MM1_MS = (
    ("response_mean_s", "0.38"),
    ("response_std_s", "0.38"),
    ("waiting_mean_s", "0.31"),
    ("waiting_std_s", "0.38"),
    ("busy_period_mean_s", "0.38"),
)
A16_MM1 = (
    ("utilisation", "0.80"),
    ("waits_probability", "0.80"),
    ("in_system_mean", "3.95"),
    ("in_system_std", "4.42"),
    ("queue_length_mean", "3.15"),
    ("queue_length_std", "4.26"),
    ("busy_period_jobs_mean", "4.95"),
    ("busy_period_jobs_std", "13.19"),
)


@pytest.mark.parametrize(("name", "text"), A16_MM1_MS)
def test_a16_times_of_one_server_are_right(name, text):
    assert printed(1e3 * getattr(MM1(10294, 12900), name), text)


@pytest.mark.parametrize(("name", "text"), A16_MM1)
def test_a16_numbers_of_one_server_are_right(name, text):
    assert printed(getattr(MM1(10294, 12900), name), text)


def test_a16_quantiles_of_one_server_are_right():
    queue = MM1(10294, 12900)
    assert printed(1e3 * queue.response_quantile_s(0.5), "0.27")
    assert printed(1e3 * queue.response_quantile_s(0.95), "1.15")


def test_a16_deviation_of_the_busy_period_is_a_misprint():
    """Published 0.76 ms, after a formula that textbooks misprint; the variance is (1 + rho) / (mu^2 (1 - rho)^3)."""
    deviation_ms = 1e3 * MM1(10294, 12900).busy_period_std_s
    assert printed(deviation_ms, "1.14") and not printed(deviation_ms, "0.76")
    rho, mu = 10294 / 12900, 12.9
    assert printed(sqrt(1 / (mu**2 * (1 - rho) ** 3) - 1 / (mu**2 * (1 - rho) ** 2)), "0.76")


@pytest.mark.parametrize(
    ("servers", "arrivals", "services", "response_ms", "jobs", "jobs_std"),
    [(99, 17242.28, 346.12, "2.89", "49.82", "7.06"), (165, 17676.91, 327.62, "3.05", "53.96", "7.35")],
)
def test_a16_several_servers_are_right(servers, arrivals, services, response_ms, jobs, jobs_std):
    queue = MMm(arrivals, services, servers)
    assert printed(1e3 * queue.response_mean_s, response_ms)
    assert printed(1e3 * queue.response_std_s, response_ms)
    assert printed(1e3 * queue.waiting_mean_s, "0.00")
    assert printed(queue.in_system_mean, jobs) and printed(queue.in_system_std, jobs_std)


D15 = (
    (2481.5, 366.15, "0.1694"),
    (4773.5, 341.82, "0.3491"),
    (7015.5, 339.42, "0.5167"),
    (9311.5, 332.88, "0.6993"),
    (10346.5, 303.02, "0.8536"),
    (12302, 317.06, "0.9700"),
)


@pytest.mark.parametrize(("arrivals", "services", "utilisation"), D15)
def test_d15_utilisation_of_forty_servers_is_right(arrivals, services, utilisation):
    assert printed(MMm(arrivals, services, 40).utilisation, utilisation)


@pytest.mark.parametrize(("arrivals", "services", "utilisation"), D15)
def test_d15_probability_of_queueing_is_wrong_erlang_c_is_right(arrivals, services, utilisation):
    right = exact_erlang_c(40, Fraction(arrivals) / Fraction(services))
    assert MMm(arrivals, services, 40).waits_probability == pytest.approx(right, rel=1e-12)


def test_d15_with_thirty_clients_one_of_nine_thousand_queues():
    assert printed(MMm(7015.5, 339.42, 40).waits_probability, "1.098e-4")


def test_a_table_of_a_queue_has_names_values_and_units():
    rows = {name: (value, unit) for name, value, unit in as_table(MMm(9, 5, 2))}
    assert rows["waiting time, mean"] == (pytest.approx(0.8526316, abs=5e-8), "s")
    assert rows["throughput"] == (9.0, "1/s") and rows["queue length, mean"][1] == ""


def test_a_table_omits_undefined_values():
    names = [name for name, _, _ in as_table(GGm(3, 1, 4, 1, 0.5))]
    assert "waiting time, mean" in names and "waiting time, 95th percentile" not in names
    assert "busy period, mean" not in names
