"""M/M/1 of the whole system as a black box, the way performance reports do it."""

from typing import Any

from waylab.fit.parameters import Fit, NotApplicableError


def fit_black_box(configuration: dict[str, Any]) -> Fit:
    """Arrivals: the mean throughput. Services: the most requests in any one second of the configuration.

    That the largest second is the capacity is the weak point: in a closed loop both are nearly the same.
    """
    arrivals = configuration["throughput_per_s"]["mean"]
    services = configuration["largest_second_per_s"]
    if arrivals is None:
        raise NotApplicableError("no trial was used")
    if services is None:
        raise NotApplicableError("no whole second lies within the measured window")
    return Fit(
        {"arrivals_per_s": arrivals, "services_per_s": services},
        "arrivals = mean throughput, services = most requests in one second",
    )
