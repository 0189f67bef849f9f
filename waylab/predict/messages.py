"""Models of a message service: fitted parameters in, throughput and response time out."""

from waylab.fit import HoldingParameters, StationParameters
from waylab.models import ClosedBirthDeath, JobClass, MMm, Network, Service, Station, solve
from waylab.runfolder.prediction import Forecast


def open_stations(parameters: StationParameters) -> Forecast:
    """M/M/m for each station, with the arrivals that were measured, as the report D15 has them."""
    response_s, utilisation = parameters.delay_s, 0.0
    for station in parameters.stations.values():
        queue = MMm(parameters.arrivals_per_s, 1 / station.service_s, station.servers)
        response_s += queue.response_mean_s
        utilisation = max(utilisation, queue.utilisation)
    return Forecast(utilisation=utilisation, response_mean_ns=1e9 * response_s)


def closed_stations(parameters: StationParameters) -> Forecast:
    """A closed network of a delay and load-dependent stations, solved exactly."""
    stations = [
        Station(name, {"request": Service(station.service_s)}, station.servers)
        for name, station in parameters.stations.items()
    ]
    if parameters.delay_s > 0:
        stations.insert(0, Station("delay", {"request": Service(parameters.delay_s)}, None))
    network = Network(
        (JobClass("request", parameters.clients, Service(parameters.think_s)),),
        tuple(stations),
        visits={"request": {station.name: 1.0 for station in stations}},
    )
    result = solve(network)
    return Forecast(
        utilisation=float(result.station_utilisation.max()),
        throughput_per_s=result.throughput_total_per_s,
        response_mean_ns=1e9 * result.response_mean_s,
    )


def capped_chain(parameters: HoldingParameters) -> Forecast:
    """A closed chain whose holding times depend on the number of connections in use, capped at the pool."""
    rates = [number / time_s for number, time_s in enumerate(parameters.holding_s, start=1)]
    chain = ClosedBirthDeath(parameters.clients, parameters.think_s + parameters.delay_s, rates)
    return Forecast(
        throughput_per_s=chain.throughput_per_s,
        response_mean_ns=1e9 * (chain.response_mean_s + parameters.delay_s),
    )
