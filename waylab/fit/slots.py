"""M/M/m with the proxy's slots as servers; in the discipline `pipelined`, and of a message service, its connections."""

from waylab.fit.parameters import Fit, NotApplicableError, SlotParameters
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.run import Settings


def fit_slots(configuration: Configuration) -> Fit[SlotParameters]:
    """Servers: what serves one request at a time. Services: from dispatched to answered, stages `send` and `backend`.

    In the discipline `shared` these are the workers. In `per-backend` they are all readers, as if they served one
    queue and nothing were written; there is one queue for each backend, so the model waits less than the proxy.
    In `pipelined` they are the connections, which are no servers in the sense of the model: many requests are in
    flight on one at once, and their times overlap. So the utilisation that follows often is above 1, and the
    model does not apply; that is shown, not hidden. Of a message service they are the connections to the database.
    """
    if not configuration.description.stage_program:
        raise NotApplicableError("no program of the system records the time of its stages")
    if not configuration.used:
        raise NotApplicableError("no trial was used")
    everything = configuration.stages.get("all")
    if everything is None:
        raise NotApplicableError("the proxy wrote no stage times")
    mean_ns = {name: times.mean_ns.known_mean() for name, times in everything.stages.items()}
    holding_ns = mean_ns["send"] + mean_ns["backend"]
    servers, which = _servers(configuration)
    return Fit(
        SlotParameters(
            arrivals_per_s=configuration.throughput_per_s.known_mean(),
            services_per_s=1e9 / holding_ns,
            servers=servers,
            outside_ns=mean_ns["total"] - holding_ns - mean_ns.get("queue", 0.0),
        ),
        f"servers = {which}, service = dispatched to answered; the other stages are added as they are, except the "
        "queue, which the model predicts",
    )


def _servers(configuration: Configuration) -> tuple[int, str]:
    """Return how many requests can be served at a time, and how that number is made."""
    programs, system = configuration.description.programs, configuration.system
    if "messages" in programs:
        return _connections(system["messages"], programs["messages"])
    proxy, backends, proxies = system["proxy"], programs["backends"], programs["proxy"]
    times = " x proxies" if proxies > 1 else ""
    match proxy["dispatch"]:
        case "shared":
            return proxy["workers"] * proxies, f"workers{times}"
        case "per-backend":
            return proxy["readers"] * backends * proxies, f"readers x backends{times}"
        case "pipelined":
            return proxy["loops"] * backends * proxies, f"loops x backends{times}"
        case other:
            raise NotApplicableError(f"the number of slots of the discipline {other} is not known here")


def _connections(messages: Settings, services: int) -> tuple[int, str]:
    if messages["dispatch"] != "pool":
        raise NotApplicableError(
            "requests share their connections, because a lane fuses the waiting requests"
        )
    return -(-messages["connections"] // services) * services, "connections of all services"
