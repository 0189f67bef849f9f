"""The stations of a message service from its stages: the service itself, the database behind its connections, the rest.

`queue` is the wait for a connection or lane, `send` and `backend` are the database; the other stages are the service's
own work, and what the client saw beyond all of them is a delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from waylab.fit.parameters import Fit, FittedStation, NotApplicableError, StationParameters
from waylab.models import MMm, UnstableError
from waylab.runfolder.analysis import Configuration

SERVERS_MAX = 256
_DATABASE_STAGES = ("queue", "send", "backend")


@dataclass(frozen=True)
class PartTimes:
    """Rate of one configuration, and mean times of its parts in seconds. A part that is not there takes no time."""

    clients: int
    throughput_per_s: float
    think_s: float
    service_s: float
    queue_s: float
    database_s: float
    outside_s: float


def part_times(configuration: Configuration) -> PartTimes:
    """Read the times of a configuration's parts.

    Raises:
        NotApplicableError: for another system, an open loop, or where nothing was measured.
    """
    described = configuration.description
    if described.protocol != "messages":
        raise NotApplicableError("there is no message service")
    if configuration.load.rate:
        raise NotApplicableError("the loop is open: arrivals do not wait for replies")
    if configuration.think_mean_s is None or "all" not in configuration.operations:
        raise NotApplicableError("no trial was used")
    response_s = configuration.operations["all"].response_mean_ns.known_mean() * 1e-9
    head = (
        configuration.load.clients,
        configuration.throughput_per_s.known_mean(),
        configuration.think_mean_s,
    )
    if "messages" not in described.programs:
        return PartTimes(*head, 0.0, 0.0, response_s, 0.0)
    everything = configuration.stages.get("all")
    if everything is None:
        raise NotApplicableError("the service wrote no stage times")
    mean_s = {name: times.mean_ns.known_mean() * 1e-9 for name, times in everything.stages.items()}
    behind_s = sum(mean_s[name] for name in _DATABASE_STAGES) if "database" in described.programs else 0.0
    queue_s = mean_s["queue"] if behind_s else 0.0
    outside_s = max(0.0, response_s - mean_s["total"])
    return PartTimes(*head, mean_s["total"] - behind_s, queue_s, behind_s - queue_s, outside_s)


def alike(calibration: Sequence[Configuration], configuration: Configuration) -> list[PartTimes]:
    """Return the times of the calibration configurations of the same system, by number of clients.

    Raises:
        NotApplicableError: when there is none.
    """
    part_times(configuration)
    found = [
        part_times(one)
        for one in calibration
        if one.system == configuration.system
        and one.load.same_but_for_clients(configuration.load)
        and one.used
    ]
    if not found:
        raise NotApplicableError("no trial of this system can be used to fit a model")
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
            f"more requests arrive than {SERVERS_MAX} servers with {1000 * service_s:.3g} ms each can serve"
        )
    return best[1]


def fit_message_stations(
    calibration: Sequence[Configuration], configuration: Configuration
) -> Fit[StationParameters]:
    """Fit service and database as stations of several servers: time at the least load, servers by least squares."""
    known, own = alike(calibration, configuration), part_times(configuration)
    least = known[0]
    service = [(one.throughput_per_s, one.service_s) for one in known]
    database = [(one.throughput_per_s, one.queue_s + one.database_s) for one in known]
    parts = (("service", least.service_s, service), ("database", least.database_s, database))
    return Fit(
        StationParameters(
            clients=own.clients,
            think_s=own.think_s,
            arrivals_per_s=own.throughput_per_s,
            delay_s=least.outside_s,
            stations={
                name: FittedStation(time_s, fit_servers(points, time_s))
                for name, time_s, points in parts
                if time_s > 0
            },
        ),
        f"times at {least.clients} clients, servers by least squares of the response times of {len(known)} "
        "configurations; delay = client's response less the service's",
    )
