"""The stations of a message service from its stages: the service itself, the database behind its connections, the rest.

`queue` is the wait for a connection or lane, `send` and `backend` are the database; the other stages are the service's
own work, and what the client saw beyond all of them is a delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from waylab.fit.parameters import Fit, NotApplicableError
from waylab.models import MMm, UnstableError

SERVERS_MAX = 256
_DATABASE_STAGES = ("queue", "send", "backend")

Configuration = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What one configuration shows: rate, and mean times in seconds. A part that is not there takes no time."""

    clients: int
    throughput_per_s: float
    service_s: float
    queue_s: float
    database_s: float
    outside_s: float


def seen(configuration: Configuration) -> Seen:
    """Read the times of a configuration's parts.

    Raises:
        NotApplicableError: for another system, an open loop, or where nothing was measured.
    """
    system = configuration["system"]
    roles = system["description"]["programs"]
    if system["description"]["protocol"] != "messages":
        raise NotApplicableError("there is no message service")
    if configuration["load"].get("rate"):
        raise NotApplicableError("the loop is open: arrivals do not wait for replies")
    if not configuration["used"] or "all" not in configuration["operations"]:
        raise NotApplicableError("no trial was used")
    response_s = configuration["operations"]["all"]["response_mean_ns"]["mean"] * 1e-9
    head = (configuration["load"]["clients"], configuration["throughput_per_s"]["mean"])
    if "messages" not in roles:
        return Seen(*head, 0.0, 0.0, response_s, 0.0)
    stages = configuration["stages"].get("all", {}).get("stages")
    if not stages:
        raise NotApplicableError("the service wrote no stage times")
    mean_s = {name: numbers["mean_ns"]["mean"] * 1e-9 for name, numbers in stages.items()}
    behind_s = sum(mean_s[name] for name in _DATABASE_STAGES) if "database" in roles else 0.0
    queue_s = mean_s["queue"] if behind_s else 0.0
    outside_s = max(0.0, response_s - mean_s["total"])
    return Seen(*head, mean_s["total"] - behind_s, queue_s, behind_s - queue_s, outside_s)


def alike(calibration: Sequence[Configuration], configuration: Configuration) -> list[Seen]:
    """Return what the configurations of the same system show that may be learned from, by number of clients.

    Raises:
        NotApplicableError: when there is none.
    """
    seen(configuration)
    found = []
    for one in calibration:
        same_load = {**one["load"], "clients": 0} == {**configuration["load"], "clients": 0}
        if one["system"] == configuration["system"] and same_load and one["used"]:
            found.append(seen(one))
    if not found:
        raise NotApplicableError("no configuration of this system may be learned from")
    return sorted(found, key=lambda one: one.clients)


def fit_servers(points: Sequence[tuple[float, float]], service_s: float) -> int:
    """Return the number of servers with which M/M/m comes nearest to (arrivals per s, response in s): least squares.

    That is how the report D15 found 95 servers for its middleware and 30 for its database.

    Raises:
        NotApplicableError: when no number up to 256 could serve so much.
    """
    best: tuple[float, int] | None = None
    for servers in range(1, SERVERS_MAX + 1):
        try:
            errors = [
                (MMm(rate, 1 / service_s, servers).response_mean_s - response_s) ** 2
                for rate, response_s in points
            ]
        except UnstableError:
            continue
        if best is None or sum(errors) < best[0]:
            best = (sum(errors), servers)
    if best is None:
        raise NotApplicableError(
            f"more arrives than {SERVERS_MAX} servers of {1000 * service_s:.3g} ms can serve"
        )
    return best[1]


def fit_message_stations(calibration: Sequence[Configuration], configuration: Configuration) -> Fit:
    """Fit service and database as stations of several servers: time at the least load, servers by least squares."""
    known, own = alike(calibration, configuration), seen(configuration)
    least = known[0]
    parameters: dict[str, Any] = {
        "clients": own.clients,
        "think_s": configuration["think_mean_s"],
        "arrivals_per_s": own.throughput_per_s,
        "delay_s": least.outside_s,
    }
    for name, time_s, points in (
        ("service", least.service_s, [(one.throughput_per_s, one.service_s) for one in known]),
        (
            "database",
            least.database_s,
            [(one.throughput_per_s, one.queue_s + one.database_s) for one in known],
        ),
    ):
        if time_s > 0:
            parameters |= {f"{name}_s": time_s, f"{name}_servers": fit_servers(points, time_s)}
    return Fit(
        parameters,
        f"times at {least.clients} clients, servers by least squares of the response times of {len(known)} "
        "configurations; delay = client's response less the service's",
    )
