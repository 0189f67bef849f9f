"""Closed M/M/c//N of one embedded server whose service time was dictated: the model that must be right."""

from typing import Any

from waylab.fit.parameters import Fit, NotApplicableError


def fit_repairman_raw(configuration: dict[str, Any]) -> Fit:
    """Everything as dictated: service time and think time of the specification, no network at all."""
    _applies(configuration)
    backends = configuration["system"]["backends"]
    return Fit(
        {
            **_population(configuration),
            "service_s": backends["service_mean_s"],
            "think_s": configuration["think_mean_s"],
        },
        "service and think time as dictated, no network",
    )


def fit_repairman_delay(configuration: dict[str, Any]) -> Fit:
    """Mean service time from the server's records; network and scheduling as a delay beside the think time.

    The delay is the client's mean response time less the server's mean sojourn, over the same requests. It is
    taken from the very trials that are predicted, so this checks the server, the clocks and the join; it is no
    prediction of another configuration.
    """
    _applies(configuration)
    view = configuration["server_view"]
    if not view:
        raise NotApplicableError("client and server records could not be joined")
    delay_s = view["delay_mean_ns"]["mean"] * 1e-9
    return Fit(
        {
            **_population(configuration),
            "service_s": view["service_mean_ns"]["mean"] * 1e-9,
            "think_s": configuration["think_mean_s"],
            "delay_s": max(0.0, delay_s),
        },
        "service time from the server's records, delay = client response less server sojourn, same requests",
    )


def _applies(configuration: dict[str, Any]) -> None:
    system = configuration["system"]
    if list(system["description"]["programs"]) != ["backends"]:
        raise NotApplicableError("there is a proxy in between")
    if configuration["load"].get("rate"):
        raise NotApplicableError("the loop is open: arrivals do not wait for replies")
    if system.get("direct_to", "one") == "all" and system["backends"]["count"] > 1:
        raise NotApplicableError("there are several servers, and the model knows one")
    if not configuration["used"]:
        raise NotApplicableError("no trial was used")
    if configuration["server"] != "embedded" or not system["backends"]["service_time"].startswith("exp:"):
        raise NotApplicableError("the service time is not dictated as exponential")


def _population(configuration: dict[str, Any]) -> dict[str, Any]:
    load = configuration["load"]
    return {
        "clients": load["clients"] * load["pipeline"],
        "servers": configuration["system"]["backends"]["workers"],
    }
