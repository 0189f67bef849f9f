"""Closed M/M/c//N of one embedded server whose service time was dictated: the model that must be right."""

from waylab.fit.parameters import Fit, NotApplicableError, RepairmanParameters
from waylab.runfolder.analysis import Configuration


def fit_repairman_raw(configuration: Configuration) -> Fit[RepairmanParameters]:
    """Everything as dictated: service time and think time of the specification, no network at all."""
    think_s = _checked_think_s(configuration)
    return Fit(
        RepairmanParameters(
            clients=_in_flight(configuration),
            servers=_workers(configuration),
            service_s=configuration.system["backends"]["service_mean_s"],
            think_s=think_s,
        ),
        "service and think time as dictated, no network",
    )


def fit_repairman_delay(configuration: Configuration) -> Fit[RepairmanParameters]:
    """Mean service time from the server's records; network and scheduling as a delay beside the think time.

    The delay is the client's mean response time minus the server's mean sojourn, over the same requests. It is
    taken from the very trials that are predicted, so this checks the server, the clocks and the join; it is no
    prediction of another configuration.
    """
    think_s = _checked_think_s(configuration)
    view = configuration.server_view
    if view is None:
        raise NotApplicableError("client and server records could not be joined")
    return Fit(
        RepairmanParameters(
            clients=_in_flight(configuration),
            servers=_workers(configuration),
            service_s=view.service_mean_ns.known_mean() * 1e-9,
            think_s=think_s,
            delay_s=max(0.0, view.delay_mean_ns.known_mean() * 1e-9),
        ),
        "service time from the server's records, delay = client response less server sojourn, same requests",
    )


def _checked_think_s(configuration: Configuration) -> float:
    """Return the mean think time of a configuration that the model applies to.

    Raises:
        NotApplicableError: for any other configuration.
    """
    described, system = configuration.description, configuration.system
    if list(described.programs) != ["backends"]:
        raise NotApplicableError("there is a proxy in between")
    if configuration.load.rate:
        raise NotApplicableError("the loop is open: arrivals do not wait for replies")
    if described.load_reaches == "all" and described.programs["backends"] > 1:
        raise NotApplicableError("there are several servers, and the model knows one")
    if configuration.think_mean_s is None:
        raise NotApplicableError("no trial was used")
    exponential = str(system["backends"]["service_time"]).startswith("exp:")
    if configuration.server != "embedded" or not exponential:
        raise NotApplicableError("the service time is not dictated as exponential")
    return configuration.think_mean_s


def _in_flight(configuration: Configuration) -> int:
    return configuration.load.clients * configuration.load.pipeline


def _workers(configuration: Configuration) -> int:
    return int(configuration.system["backends"]["workers"])
