"""A result as rows for JSON, tables and drawings. Totals over classes are computed only here."""

import math
from collections.abc import Mapping
from typing import NotRequired, SupportsFloat, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import Station
from waylab.models.errors import ModelError
from waylab.models.network import Network
from waylab.models.result import Result

Array = NDArray[np.float64]
SHARES = (0.5, 0.9, 0.95, 0.99)


class ClassRow(TypedDict):
    """One class of requests. Unknown numbers are None."""

    name: str
    population: int
    think_s: float
    arrivals_per_s: float
    throughput_per_s: float | None
    response_s: float | None
    lost_per_s: float | None
    quantiles_s: dict[str, float | None]
    half_width_throughput_per_s: NotRequired[float | None]
    half_width_response_s: NotRequired[float | None]


class StationClassRow(TypedDict):
    """One class of requests at one station."""

    name: str
    visits: float | None
    service_s: float
    utilisation: float | None
    queue_length: float | None
    waiting_s: float | None
    response_s: float | None
    throughput_per_s: float | None
    half_width_utilisation: NotRequired[float | None]
    half_width_queue_length: NotRequired[float | None]
    half_width_waiting_s: NotRequired[float | None]
    half_width_response_s: NotRequired[float | None]
    half_width_throughput_per_s: NotRequired[float | None]


class StationRow(TypedDict):
    """One station, all classes together; `servers` is None for a delay."""

    name: str
    servers: int | None
    visits: float | None
    service_s: float | None
    utilisation: float | None
    load: float | None
    queue_length: float | None
    waiting_s: float | None
    response_s: float | None
    throughput_per_s: float | None
    classes: list[StationClassRow]


class ForkRow(TypedDict):
    """One fork: the time from fork to join by class."""

    name: str
    join: str
    response_s: dict[str, float | None]


class PoolRow(TypedDict):
    """One pool of slots: mean number and share in use, and waiting for a slot by class."""

    name: str
    slots: int
    busy: float | None
    busy_share: float | None
    waiting_s: dict[str, float | None]


class ResultRow(TypedDict):
    """A whole result."""

    name: str
    method: str
    kind: str
    throughput_per_s: float | None
    response_s: float | None
    population: int
    classes: list[ClassRow]
    stations: list[StationRow]
    forks: list[ForkRow]
    pools: list[PoolRow]
    notes: list[str]


def result_as_dict(result: Result) -> ResultRow:
    """Return a result as content for JSON; unknown numbers are None.

    A station row has totals over classes, and in `classes` one row for each class that visits it. `visits` are per
    request; in a class's row, per request that began in that class. `load` is the used share of the station's highest
    speed; it differs from the utilisation only for stations with rates. `half_width_...` is the half-width of a 95 %
    interval (simulation only).
    """
    network = result.network
    return {
        "name": network.name,
        "method": result.method,
        "kind": result.kind,
        "throughput_per_s": _number(result.throughput_total_per_s),
        "response_s": _number(response_mean_s(result)),
        "population": network.population,
        "classes": [_class(result, index) for index in range(len(network.classes))],
        "stations": [_station(result, index) for index in range(len(network.stations))],
        "forks": _forks(result),
        "pools": _pools(result),
        "notes": list(result.notes),
    }


def response_mean_s(result: Result) -> float:
    """Mean response time over all requests; NaN when no request completes."""
    weights = result.throughput_per_s
    return _weighted(result.response_s, weights)


def station_loads(result: Result) -> Array:
    """(K,) the used share of each station's highest speed; 0 for a delay.

    For servers this is the utilisation. With rates, the utilisation is the share of time with a request present; the
    load is throughput times service time over the highest rate.
    """
    loads = np.array(result.station_utilisation)
    for index, station in enumerate(result.network.stations):
        if station.rates:
            loads[index] = _offered(result, index) / max(station.rates)
    return loads


def pool_loads(result: Result) -> Array:
    """(P,) share of each pool's slots that is busy; empty if the solver does not compute it."""
    if result.pool_busy is None:
        return np.zeros(0)
    slots = np.array([pool.slots for pool in result.network.pools], dtype=float)
    return np.asarray(np.asarray(result.pool_busy) / slots)


def waiting_share(result: Result, station_index: int) -> float:
    """Share of the time at a station that is spent waiting."""
    throughput = result.station_throughput_per_s[station_index]
    response_s = _weighted(result.station_response_s[station_index], throughput)
    waiting_s = _weighted(result.station_waiting_s[station_index], throughput)
    return waiting_s / response_s if response_s > 0 else 0.0


def _offered(result: Result, index: int) -> float:
    """Offered work of a station: throughput times mean service, in units of one server."""
    station = result.network.stations[index]
    return sum(
        float(result.station_throughput_per_s[index, number]) * _service_s(station, name)
        for number, name in enumerate(result.network.class_names)
    )


def _service_s(station: Station, class_name: str) -> float:
    time = station.service.get(class_name)
    return time.mean_s if time else 0.0


def _class(result: Result, index: int) -> ClassRow:
    job_class = result.network.classes[index]
    row = {
        "name": job_class.name,
        "population": job_class.population,
        "think_s": job_class.think.mean_s,
        "arrivals_per_s": job_class.arrivals_per_s,
        "throughput_per_s": _number(result.throughput_per_s[index]),
        "response_s": _number(result.response_s[index]),
        "lost_per_s": None if result.lost_per_s is None else _number(result.lost_per_s[index]),
        "quantiles_s": _quantiles(result, job_class.name),
    }
    return cast(ClassRow, row | _half_widths(result.half_widths, ("throughput_per_s", "response_s"), index))


def _quantiles(result: Result, class_name: str) -> dict[str, float | None]:
    try:
        return {f"{share:g}": _number(result.response_quantile_s(share, class_name)) for share in SHARES}
    except ModelError:
        # No distribution, or too short a simulation for the outermost share.
        return {}


def _station(result: Result, index: int) -> StationRow:
    network: Network = result.network
    station = network.stations[index]
    throughput = result.station_throughput_per_s[index]
    total = float(np.nansum(throughput))
    response_s = _weighted(result.station_response_s[index], throughput)
    waiting_s = _weighted(result.station_waiting_s[index], throughput)
    requests = result.throughput_total_per_s
    rows = [
        _station_class(result, index, number)
        for number in range(len(network.classes))
        if throughput[number] > 0
    ]
    return {
        "name": station.name,
        "servers": station.servers,
        "visits": _number(total / requests if requests > 0 else math.nan),
        "service_s": _number(_weighted(_services_s(station, network), throughput)),
        "utilisation": _number(result.station_utilisation[index]),
        "load": _number(station_loads(result)[index]),
        "queue_length": _number(result.station_queue_length[index]),
        "waiting_s": _number(waiting_s),
        "response_s": _number(response_s),
        "throughput_per_s": _number(total),
        "classes": rows,
    }


def _services_s(station: Station, network: Network) -> Array:
    return np.array([_service_s(station, name) for name in network.class_names])


def _station_class(result: Result, index: int, number: int) -> StationClassRow:
    network = result.network
    name = network.class_names[number]
    throughput = float(result.station_throughput_per_s[index, number])
    requests = float(result.throughput_per_s[number])
    row: dict[str, str | float | None] = {
        "name": name,
        "visits": _number(throughput / requests if requests > 0 else math.nan),
        "service_s": _service_s(network.stations[index], name),
        "utilisation": _number(result.utilisation[index, number]),
        "queue_length": _number(result.queue_length[index, number]),
        "waiting_s": _number(result.station_waiting_s[index, number]),
        "response_s": _number(result.station_response_s[index, number]),
        "throughput_per_s": _number(throughput),
    }
    names = {
        "utilisation": "utilisation",
        "queue_length": "queue_length",
        "station_waiting_s": "waiting_s",
        "station_response_s": "response_s",
        "station_throughput_per_s": "throughput_per_s",
    }
    for array, short in names.items():
        if array in result.half_widths:
            row[f"half_width_{short}"] = _number(result.half_widths[array][index, number])
    return cast(StationClassRow, row)


def _forks(result: Result) -> list[ForkRow]:
    if result.fork_response_s is None:
        return []
    return [
        {
            "name": fork.name,
            "join": fork.join,
            "response_s": {
                name: _number(result.fork_response_s[index, number])
                for number, name in enumerate(result.network.class_names)
            },
        }
        for index, fork in enumerate(result.network.forks)
    ]


def _pools(result: Result) -> list[PoolRow]:
    loads = pool_loads(result)
    rows: list[PoolRow] = []
    for index, pool in enumerate(result.network.pools):
        waiting = {}
        if result.pool_waiting_s is not None:
            waiting = {
                name: _number(result.pool_waiting_s[index, number])
                for number, name in enumerate(result.network.class_names)
            }
        is_known = result.pool_busy is not None
        rows.append(
            {
                "name": pool.name,
                "slots": pool.slots,
                "busy": _number(result.pool_busy[index]) if result.pool_busy is not None else None,
                "busy_share": _number(loads[index]) if is_known else None,
                "waiting_s": waiting,
            }
        )
    return rows


def _half_widths(widths: Mapping[str, Array], names: tuple[str, ...], index: int) -> dict[str, float | None]:
    return {f"half_width_{name}": _number(widths[name][index]) for name in names if name in widths}


def _weighted(values: Array, weights: Array) -> float:
    """Weighted mean over the finite values with a positive weight."""
    known = (weights > 0) & np.isfinite(values)
    total = float(weights[known].sum())
    return float((values[known] * weights[known]).sum()) / total if total > 0 else math.nan


def _number(value: SupportsFloat) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
