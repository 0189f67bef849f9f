"""The computed parts of docs/models.md and docs/models-published.md."""

import math
import os
import re
from collections.abc import Iterable
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from networks import a16, a16_switching

from waylab.models import MM1, ClosedBirthDeath, ClosedMMc, JobClass, MMm, Network, Result, Station, solve

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "models.md", DOCS / "models-published.md")


def check_page(computed: dict[str, str]) -> None:
    """Assert that the pages show the computed parts; with WAYSTAGE_UPDATE_GOLDEN=1 write them first."""
    for name, content in computed.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = [page for page in PAGES if pattern.search(page.read_text())]
        assert len(found) == 1, f"{name} is on {len(found)} of the pages, not on one"
        (page,) = found
        text = pattern.sub(
            lambda place, content=content: f"{place[1]}{content}\n{place[2]}", page.read_text()
        )
        if os.environ.get("WAYSTAGE_UPDATE_GOLDEN"):
            page.write_text(text)
        assert page.read_text() == text


def parts() -> dict[str, str]:
    """Markdown by the name of its place in the page; the field data have their own test."""
    return {
        "recursion": _recursion(),
        "large": _large(),
        "a16-mm1": _a16_mm1(),
        "a16-mmm": _a16_mmm(),
        "a16-network": _a16_network(),
        "d15": _d15(),
        "d15-network": _d15_network(),
        "d15-law": _d15_law(),
    }


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; every column but the first to the right."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def textbook_throughput(clients: int, servers: int, service_s: float, think_s: float) -> float:
    """The load-dependent recursion as textbooks print it (Lazowska and others, 8.2; Jain, box 36.1)."""
    probabilities = [1.0]
    throughput = 0.0
    for population in range(1, clients + 1):
        rates = [min(n, servers) / service_s for n in range(1, population + 1)]
        response_s = _plain_sum(n / rates[n - 1] * probabilities[n - 1] for n in range(1, population + 1))
        throughput = population / (think_s + response_s)
        later = [throughput / rates[n - 1] * probabilities[n - 1] for n in range(1, population + 1)]
        probabilities = [1 - _plain_sum(later), *later]
    return throughput


def _plain_sum(numbers: Iterable[float]) -> float:
    """Add in order: since Python 3.12 the built-in sum compensates for rounding, and textbooks do not."""
    return reduce(add, numbers, 0.0)


def _recursion() -> str:
    rows = []
    for servers, service_s, think_s, clients in (
        (8, 4.0, 10.0, 40),
        (8, 4.0, 10.0, 60),
        (8, 4.0, 10.0, 80),
        (8, 4.0, 10.0, 90),
        (64, 0.0045, 0.0012, 192),
    ):
        right = ClosedMMc(clients, servers, service_s, think_s).throughput_per_s
        wrong = textbook_throughput(clients, servers, service_s, think_s)
        name = f"m = {servers}, S = {service_s:g}, Z = {think_s:g}, N = {clients}"
        rows.append((name, f"{wrong:.6g}", f"{right:.6g}"))
    return table(("network", "recursion, X", "exact, X"), rows)


def _large() -> str:
    rows = []
    for servers, clients in ((231, 1000), (1000, 10_000)):
        queue = ClosedMMc(clients, servers, 1.0, 5.0)
        chance = MMm(0.95 * servers, 1.0, servers).waits_probability
        rows.append(
            (
                f"m = {servers}, N = {clients}, S = 1, Z = 5",
                f"{queue.throughput_per_s:.4f}",
                f"{queue.response_mean_s:.4f}",
                f"{chance:.6f}",
            )
        )
    return table(("size", "X", "R", "M/M/m at ρ = 0.95: P(wait)"), rows)


def _a16_mm1() -> str:
    queue = MM1(10294, 12900)
    ms = 1e3
    rows = [
        ("response time, mean", "ms", 0.38, queue.response_mean_s * ms, 14.55),
        ("response time, deviation", "ms", 0.38, queue.response_std_s * ms, 17.62),
        ("response time, median", "ms", 0.27, queue.response_quantile_s(0.5) * ms, 12.00),
        ("response time, 95th percentile", "ms", 1.15, queue.response_quantile_s(0.95) * ms, 30.00),
        ("waiting time, mean", "ms", 0.31, queue.waiting_mean_s * ms, 13.22),
        ("waiting time, deviation", "ms", 0.38, queue.waiting_std_s * ms, 17.06),
        ("utilisation", "", 0.80, queue.utilisation, 0.90),
        ("jobs in the system, mean", "", 3.95, queue.in_system_mean, 149.79),
        ("jobs in the system, deviation", "", 4.42, queue.in_system_std, None),
        ("jobs in the queue, mean", "", 3.15, queue.queue_length_mean, 136.11),
        ("jobs in the queue, deviation", "", 4.26, queue.queue_length_std, None),
        ("jobs in a busy period, mean", "", 4.95, queue.busy_period_jobs_mean, None),
        ("jobs in a busy period, deviation", "", 13.19, math.sqrt(queue.busy_period_jobs_variance), None),
        ("busy period, mean", "ms", 0.38, queue.busy_period_mean_s * ms, None),
        ("busy period, deviation", "ms", 0.76, math.sqrt(queue.busy_period_variance_s2) * ms, None),
    ]
    return table(
        ("quantity", "unit", "published", "recomputed", "measured"),
        (
            (name, unit, f"{published:.2f}", f"{right:.2f}", "" if measured is None else f"{measured:.2f}")
            for name, unit, published, right, measured in rows
        ),
    )


def _a16_mmm() -> str:
    rows = []
    for servers, m, arrivals, services, published_ms, published_wait_ms, measured_ms, measured_wait_ms in (
        (3, 99, 17242.28, 346.12, 2.89, 0.00, 4.87, 1.98),
        (5, 165, 17676.91, 327.62, 3.05, 0.00, 4.60, 1.54),
    ):
        queue = MMm(arrivals, services, m)
        rows += [
            (
                f"{servers} servers, m = {m}: response, ms",
                f"{published_ms:.2f}",
                f"{queue.response_mean_s * 1e3:.2f}",
                f"{measured_ms:.2f}",
            ),
            (
                f"{servers} servers, m = {m}: waiting, ms",
                f"{published_wait_ms:.2f}",
                f"{queue.waiting_mean_s * 1e3:.1e}",
                f"{measured_wait_ms:.2f}",
            ),
            (f"{servers} servers, m = {m}: P(wait)", "", f"{queue.waits_probability:.1e}", ""),
        ]
    return table(("quantity", "published", "recomputed", "measured"), rows)


def _a16_network() -> str:
    two, one = solve(a16()), solve(a16_switching())
    rows = [
        ("throughput, 1/s", 20444.53, two.throughput_total_per_s, one.throughput_total_per_s, 17668.03),
        ("GET throughput, 1/s", 19640.99, two.throughput_per_s[0], one.throughput_per_s[0], 16784.63),
        ("SET throughput, 1/s", 803.54, two.throughput_per_s[1], one.throughput_per_s[1], 883.40),
        (
            "share of SETs, %",
            3.93,
            *(100 * part.throughput_per_s[1] / part.throughput_total_per_s for part in (two, one)),
            5.00,
        ),
        ("GET response, ms", 8.71, *(_seen_by_clients_ms(part, 0) for part in (two, one)), 9.68),
        ("SET response, ms", 11.20, *(_seen_by_clients_ms(part, 1) for part in (two, one)), 21.21),
        ("reader utilisation", 0.37, two.station_utilisation[1], one.station_utilisation[1], 0.32),
        ("writer utilisation", 0.50, two.station_utilisation[6], one.station_utilisation[6], 0.55),
    ]
    return table(
        ("quantity", "published", "recomputed, two populations", "recomputed, one population", "measured"),
        ((name, *(f"{number:,.2f}".replace(",", " ") for number in numbers)) for name, *numbers in rows),
    )


def _seen_by_clients_ms(result: Result, index: int) -> float:
    """A16's clients do not think: its delay station is the network, so it belongs to the response."""
    return 1e3 * float(result.response_s[index] + result.network.classes[index].think.mean_s)


def _d15() -> str:
    rows = []
    for clients, arrivals, services in D15_CONNECTIONS:
        queue = MMm(arrivals, services, 40)
        rows.append(
            (
                str(clients),
                f"{queue.utilisation:.4f}",
                f"{queue.waits_probability:.2e}",
                f"{queue.waiting_mean_s * 1e3:.2e}",
            )
        )
    return table(("clients", "utilisation", "Erlang C: P(wait)", "Erlang C: waiting, ms"), rows)


def d15_network(clients: int) -> Network:
    """D15's closed network: a delay, the middleware, the database; the numbers of servers are its own fits."""
    times_ms = {"delay": (0.864723, None), "middleware": (0.844386, 95), "database": (1.327447, 30)}
    stations = tuple(
        Station(name, {"request": 1e-3 * time_ms}, servers) for name, (time_ms, servers) in times_ms.items()
    )
    return Network(
        (JobClass("request", clients, 2e-6),), stations, visits={"request": dict.fromkeys(times_ms, 1.0)}
    )


# Clients, throughput in 1/s, response time in ms of the report's scalability experiment.
D15_MEASURED = (
    (10, 2482, 2.76),
    (20, 4474, 2.96),
    (30, 7016, 2.98),
    (40, 9312, 3.04),
    (50, 10347, 3.50),
    (60, 12302, 3.56),
    (70, 13152, 4.02),
    (80, 13006, 4.81),
    (90, 12321, 5.94),
    (100, 13383, 6.06),
    (110, 13014, 7.06),
    (120, 12643, 8.05),
)
# Arrivals and service rate of one of 40 connections, both in 1/s, with 10 to 60 clients.
D15_CONNECTIONS = (
    (10, 2481.5, 366.15),
    (20, 4773.5, 341.82),
    (30, 7015.5, 339.42),
    (40, 9311.5, 332.88),
    (50, 10346.5, 303.02),
    (60, 12302.0, 317.06),
)


def d15_chain(clients: int) -> ClosedBirthDeath:
    """The capped chain: 40 connections, holding times measured with up to 60 clients, and the rest as a delay."""
    in_use = np.array([arrivals / services for _, arrivals, services in D15_CONNECTIONS])
    order = np.argsort(in_use)
    times_s = np.array([1 / services for _, _, services in D15_CONNECTIONS])
    number = np.arange(1, 41)
    rates = number / np.interp(number, in_use[order], times_s[order])
    missing_s = [count / rate - 1e-3 * time for count, rate, time in D15_MEASURED if count <= 60]
    return ClosedBirthDeath(clients, float(np.mean(missing_s)), rates)


def _d15_network() -> str:
    rows = []
    for clients, rate_per_s, response_ms in D15_MEASURED:
        network, chain = solve(d15_network(clients)), d15_chain(clients)
        found = (
            (network.throughput_total_per_s, 1e3 * network.response_mean_s),
            (chain.throughput_per_s, 1e3 * chain.response_mean_s),
        )
        row = [str(clients), str(rate_per_s)]
        row += [f"{rate:.0f} ({100 * (rate / rate_per_s - 1):+.0f} %)" for rate, _ in found]
        row.append(f"{response_ms:.2f}")
        row += [f"{time_ms:.2f} ({100 * (time_ms / response_ms - 1):+.0f} %)" for _, time_ms in found]
        row.append(f"{1e3 * clients / rate_per_s - response_ms:.2f}")
        rows.append(row)
    head = ("clients", "measured, 1/s", "network", "capped chain", "measured, ms", "network", "capped chain")
    return table((*head, "N/X − R, ms"), rows)


def _d15_law() -> str:
    rows = []
    for throughput, response_ms, by_law_ms in (
        (12427, 5.12, 4.83),
        (14707, 3.87, 4.08),
        (11859, 4.84, 5.06),
        (16133, 3.66, 3.72),
        (12413, 9.98, 9.67),
        (18233, 7.07, 6.58),
        (13238, 9.14, 9.06),
        (16428, 6.97, 7.30),
    ):
        clients = 60 if by_law_ms < 6 else 120
        right_ms = 1e3 * clients / throughput
        assert abs(right_ms - by_law_ms) < 0.006, "the table's own arithmetic"
        rows.append(
            (
                str(clients),
                str(throughput),
                f"{response_ms:.2f}",
                f"{by_law_ms:.2f}",
                f"{right_ms:.2f}",
                f"{100 * (right_ms / response_ms - 1):+.1f} %",
            )
        )
    return table(
        ("clients", "1/s", "measured, ms", "N/X, published, ms", "N/X, recomputed, ms", "error"), rows
    )
