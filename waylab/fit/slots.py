"""M/M/m with the proxy's slots as servers; in the discipline `pipelined`, and of a message service, its connections."""

from typing import Any

from waylab.fit.parameters import Fit, NotApplicableError


def fit_slots(configuration: dict[str, Any]) -> Fit:
    """Servers: what serves one request at a time. Services: from dispatched to answered, stages `send` and `backend`.

    In the discipline `shared` these are the workers. In `per-backend` they are all readers, as if they served one
    queue and nothing were written; there is one queue for each backend, so the model waits less than the proxy.
    In `pipelined` they are the connections, which are no servers in the sense of the model: many requests are in
    flight on one at once, and their times overlap. So the utilisation that follows often is above 1, and the
    model does not apply; that is shown, not hidden. Of a message service they are the connections to the database.
    """
    if not configuration["system"]["description"]["stage_program"]:
        raise NotApplicableError("there is no proxy that tells the time of its stages")
    if not configuration["used"]:
        raise NotApplicableError("no trial was used")
    stages = configuration["stages"].get("all", {}).get("stages")
    if not stages:
        raise NotApplicableError("the proxy wrote no stage times")
    holding_ns = stages["send"]["mean_ns"]["mean"] + stages["backend"]["mean_ns"]["mean"]
    outside_ns = stages["total"]["mean_ns"]["mean"] - holding_ns
    servers, which = _servers(configuration["system"])
    return Fit(
        {
            "arrivals_per_s": configuration["throughput_per_s"]["mean"],
            "services_per_s": 1e9 / holding_ns,
            "servers": servers,
            "outside_ns": outside_ns,
        },
        f"servers = {which}, service = dispatched to answered; the other stages are added as they are",
    )


def _servers(system: dict[str, Any]) -> tuple[int, str]:
    """Return how many requests can be served at a time, and how that number is made."""
    if "messages" in system["description"]["programs"]:
        return _connections(system["messages"])
    proxy, backends = system["proxy"], system["backends"]["count"]
    proxies = proxy.get("count", 1)
    times = " x proxies" if proxies > 1 else ""
    match proxy.get("dispatch", "pipelined"):
        case "shared":
            return proxy["workers"] * proxies, f"workers{times}"
        case "per-backend":
            return proxy["readers"] * backends * proxies, f"readers x backends{times}"
        case _:
            return proxy["loops"] * backends * proxies, f"loops x backends{times}"


def _connections(messages: dict[str, Any]) -> tuple[int, str]:
    services = messages["services"]
    if messages["dispatch"] != "pool":
        raise NotApplicableError("no request has a connection to itself: a lane sends together what waits")
    return -(-messages["connections"] // services) * services, "connections of all services"
