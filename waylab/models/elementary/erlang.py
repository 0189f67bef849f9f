"""Erlang's formulas by a recursion that keeps precision, and the number of servers for a target."""

import math

from waylab.models.elementary.input_checks import check_at_least_zero, check_rates, check_stable, check_whole
from waylab.models.errors import ModelError


def erlang_b(servers: int, offered: float) -> float:
    """Blocking probability: all servers are busy in a system without a queue (M/M/m/m, M/G/m/m).

    `offered` is lambda / mu in Erlang. B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1)) (Kleinrock, Queueing Systems,
    vol. 1, 3.6).

    Raises:
        ModelError: for a number of servers below 0 or an offered load below 0.
    """
    check_whole("Erlang B", "servers", servers, 0)
    check_at_least_zero("Erlang B", {"offered": offered})
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered * blocked / (busy + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival has to wait (M/M/m).

    C = B / (1 - rho (1 - B)). The textbook sum with p(0) underflows from about 230 servers; this form does not.

    Raises:
        ModelError: for a number of servers below 1 or an offered load below 0.
        UnstableError: for an offered load of at least the number of servers.
    """
    check_whole("Erlang C", "servers", servers, 1)
    check_at_least_zero("Erlang C", {"offered": offered})
    check_stable(f"M/M/{servers}", offered / servers)
    return _c_from_b(servers, offered, erlang_b(servers, offered))


def servers_needed(
    arrivals_per_s: float,
    service_s: float,
    *,
    waits_probability: float | None = None,
    response_mean_s: float | None = None,
) -> int:
    """Find the smallest number of servers of an M/M/m queue that meets a target.

    The target is either the probability of queueing or the mean response time. The recursion of Erlang B continues
    from one number of servers to the next, so the search costs as much as one evaluation.

    Raises:
        ModelError: unless exactly one target is given and it is reachable: a probability between 0 and 1, a
            response time above the service time.
    """
    where = "servers_needed"
    check_rates(where, {"arrivals_per_s": arrivals_per_s, "service_s": service_s})
    if (waits_probability is None) == (response_mean_s is None):
        raise ModelError(where, "give either waits_probability or response_mean_s, one of the two")
    if waits_probability is not None and not 0 < waits_probability < 1:
        raise ModelError(f"{where}: waits_probability", f"must lie between 0 and 1, not {waits_probability}")
    if response_mean_s is not None and not service_s < response_mean_s < math.inf:
        raise ModelError(
            f"{where}: response_mean_s", f"must be finite and above {service_s}, the service time"
        )
    offered = arrivals_per_s * service_s
    blocked, servers = 1.0, 0
    while True:
        servers += 1
        blocked = offered * blocked / (servers + offered * blocked)
        if servers <= offered:
            continue
        waits = _c_from_b(servers, offered, blocked)
        if waits_probability is not None and waits <= waits_probability:
            return servers
        if response_mean_s is not None and service_s * (1 + waits / (servers - offered)) <= response_mean_s:
            return servers


def _c_from_b(servers: int, offered: float, blocked: float) -> float:
    return blocked / (1 - offered / servers * (1 - blocked))
