"""Models of a message service: fitted parameters in, throughput and response time out."""

from typing import Any

from waylab.models import ClosedBirthDeath, JobClass, MMm, Network, Station, solve

STATIONS = ("service", "database")


def open_stations(parameters: dict[str, Any]) -> dict[str, Any]:
    """M/M/m for each station, with the arrivals that were measured, as the report D15 has them."""
    response_s, utilisation = parameters["delay_s"], 0.0
    for name in STATIONS:
        if f"{name}_s" in parameters:
            queue = MMm(
                parameters["arrivals_per_s"], 1 / parameters[f"{name}_s"], parameters[f"{name}_servers"]
            )
            response_s += queue.response_mean_s
            utilisation = max(utilisation, queue.utilisation)
    return {"utilisation": utilisation, "response_mean_ns": 1e9 * response_s}


def closed_stations(parameters: dict[str, Any]) -> dict[str, Any]:
    """A closed network of a delay and load-dependent stations, solved exactly."""
    stations = [
        Station(name, {"request": parameters[f"{name}_s"]}, parameters[f"{name}_servers"])
        for name in STATIONS
        if f"{name}_s" in parameters
    ]
    if parameters["delay_s"] > 0:
        stations.insert(0, Station("delay", {"request": parameters["delay_s"]}, None))
    network = Network(
        (JobClass("request", parameters["clients"], parameters["think_s"]),),
        tuple(stations),
        visits={"request": {station.name: 1.0 for station in stations}},
    )
    result = solve(network)
    return {
        "utilisation": float(result.station_utilisation.max()),
        "throughput_per_s": result.throughput_total_per_s,
        "response_mean_ns": 1e9 * result.response_mean_s,
    }


def capped_chain(parameters: dict[str, Any]) -> dict[str, Any]:
    """A closed chain whose holding times depend on how many are held, capped at the pool."""
    rates = [number / time_s for number, time_s in enumerate(parameters["holding_s"], start=1)]
    chain = ClosedBirthDeath(parameters["clients"], parameters["think_s"] + parameters["delay_s"], rates)
    return {
        "throughput_per_s": chain.throughput_per_s,
        "response_mean_ns": 1e9 * (chain.response_mean_s + parameters["delay_s"]),
    }
