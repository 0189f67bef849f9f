"""M/M/1 of the whole system as a black box, the way performance reports do it."""

from waylab.fit.parameters import BlackBoxParameters, Fit, NotApplicableError
from waylab.runfolder.analysis import Configuration


def fit_black_box(configuration: Configuration) -> Fit[BlackBoxParameters]:
    """Arrivals: the mean throughput. Services: the most requests in any one second of the configuration.

    That the largest second is the capacity is the weak point: in a closed loop both are nearly the same.
    """
    if configuration.load.rate:
        raise NotApplicableError(
            "the loop is open: the most requests in one second are what arrived, not what the system can serve"
        )
    arrivals = configuration.throughput_per_s.mean
    services = configuration.largest_second_per_s
    if arrivals is None:
        raise NotApplicableError("no trial was used")
    if services is None:
        raise NotApplicableError("no whole second lies within the measured window")
    return Fit(
        BlackBoxParameters(arrivals, services),
        "arrivals = mean throughput, services = most requests in one second",
    )
