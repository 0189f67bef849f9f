"""A description as JSON, `waystage-model/1`, which `waystage simulate` reads too. See docs/model-format.md."""

import csv
import json
import math
from pathlib import Path
from typing import Any

from waylab import bounded
from waylab.models.description import Fork, JobClass, Pool, Route, Station
from waylab.models.errors import ModelError
from waylab.models.network import Network
from waylab.models.service import Service

FORMAT = "waystage-model/1"
_INFINITE = "infinite"
_UNITS_S = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
_NETWORK = {"format", "name", "classes", "stations", "visits", "routes", "switching", "forks", "pools"}
_CLASS = {"name", "population", "think", "arrivals_per_s", "arrival_squared_variation", "priority"}
_STATION = {"name", "service", "servers", "discipline", "rates", "capacity", "when_full", "batch"}
_ROUTE = {"class", "from", "to", "probability", "to_class"}
_FORK = {"name", "branches", "join", "send_s"}
_POOL = {"name", "slots", "inside"}
_SERVICE = {"mean_s", "squared_variation", "distribution", "values_s", "file", "column"}
# The variation of a distribution if the file gives none.
_USUAL_VARIATION = {"exponential": 1.0, "deterministic": 0.0}


def read_network(path: Path) -> Network:
    """Read a description.

    Raises:
        ModelError: naming the file, the field and the rule.
    """
    try:
        content = bounded.read_json(path)
    except FileNotFoundError:
        raise ModelError(str(path), "no such file") from None
    except bounded.UnreadableError as error:
        raise ModelError(str(path), str(error)) from None
    try:
        return network_from_dict(content, path.parent)
    except ModelError as error:
        raise ModelError(f"{path}: {error.where}", error.rule) from None


def network_from_dict(content: Any, folder: Path = Path()) -> Network:
    """Make a description from parsed JSON; paths of measured times are relative to `folder`."""
    _keys("the model", content, _NETWORK, {"format", "classes", "stations"})
    if content["format"] != FORMAT:
        raise ModelError("format", f"is {content['format']!r}, not {FORMAT!r}")
    classes = [_class(f"classes[{i}]", part, folder) for i, part in enumerate(_list(content, "classes"))]
    stations = [_station(f"stations[{i}]", part, folder) for i, part in enumerate(_list(content, "stations"))]
    routes = [_route(f"routes[{i}]", part) for i, part in enumerate(_list(content, "routes"))]
    forks = [_fork(f"forks[{i}]", part) for i, part in enumerate(_list(content, "forks"))]
    pools = [_pool(f"pools[{i}]", part) for i, part in enumerate(_list(content, "pools"))]
    return Network(
        classes=tuple(classes),
        stations=tuple(stations),
        visits=_table(content, "visits"),
        routes=tuple(routes),
        switching=_table(content, "switching"),
        forks=tuple(forks),
        pools=tuple(pools),
        name=_text("name", content.get("name", "model")),
    )


def network_as_dict(network: Network) -> dict[str, Any]:
    """Write a description as JSON content; reading it gives the same description."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": network.name,
        "classes": [
            {
                "name": part.name,
                "population": int(part.population),
                "think": _service_as_dict(part.think),
                "arrivals_per_s": float(part.arrivals_per_s),
                "arrival_squared_variation": float(part.arrival_squared_variation),
                "priority": int(part.priority),
            }
            for part in network.classes
        ],
        "stations": [
            {
                "name": part.name,
                "service": {name: _service_as_dict(time) for name, time in part.service.items()},
                "servers": _INFINITE if part.servers is None else int(part.servers),
                "discipline": part.discipline,
                "rates": list(part.rates),
                "capacity": part.capacity,
                "when_full": part.when_full,
                "batch": int(part.batch),
            }
            for part in network.stations
        ],
        "switching": {name: dict(row) for name, row in network.switching.items()},
        "forks": [
            {"name": part.name, "branches": list(part.branches), "join": part.join, "send_s": part.send_s}
            for part in network.forks
        ],
        "pools": [
            {"name": part.name, "slots": int(part.slots), "inside": list(part.inside)}
            for part in network.pools
        ],
    }
    if network.visits:
        content["visits"] = {name: dict(row) for name, row in network.visits.items()}
    else:
        content["routes"] = [
            {
                "class": part.job_class,
                "from": part.origin,
                "to": part.target,
                "probability": part.probability,
                "to_class": part.class_after,
            }
            for part in network.routes
        ]
    return content


def write_network(network: Network, path: Path) -> None:
    """Write a description as a JSON file."""
    path.write_text(json.dumps(network_as_dict(network), indent=1) + "\n", encoding="utf-8")


def read_times_s(path: Path, column: str) -> tuple[float, ...]:
    """Read a column of measured times from a CSV file; the end of its name is the unit (_s, _ms, _us, _ns)."""
    unit_s = next((unit_s for end, unit_s in _UNITS_S.items() if column.endswith(end)), None)
    if unit_s is None:
        raise ModelError("column", f"{column!r} must end in its unit: {', '.join(_UNITS_S)}")
    try:
        lines = bounded.read_text(path, bounded.JSON_BYTES_MAX).splitlines(keepends=True)
        rows = csv.DictReader(lines)
        if column not in (rows.fieldnames or []):
            raise ModelError(str(path), f"has no column {column!r}; it has {rows.fieldnames}")
        return tuple(_number(f"{path}:{rows.line_num}", row[column]) * unit_s for row in rows)
    except FileNotFoundError:
        raise ModelError(str(path), "no such file") from None
    except (bounded.UnreadableError, csv.Error) as error:
        raise ModelError(str(path), f"cannot be read: {error}") from None


def _class(where: str, part: Any, folder: Path) -> JobClass:
    _keys(where, part, _CLASS, {"name"})
    return JobClass(
        name=_text(f"{where}.name", part["name"]),
        population=part.get("population", 0),
        think=_service(f"{where}.think", part.get("think", 0.0), folder),
        arrivals_per_s=_number(f"{where}.arrivals_per_s", part.get("arrivals_per_s", 0.0)),
        arrival_squared_variation=_number(
            f"{where}.arrival_squared_variation", part.get("arrival_squared_variation", 1.0)
        ),
        priority=_whole(f"{where}.priority", part.get("priority", 0)),
    )


def _station(where: str, part: Any, folder: Path) -> Station:
    _keys(where, part, _STATION, {"name", "service"})
    times = part["service"]
    if not isinstance(times, dict) or not times:
        raise ModelError(f"{where}.service", "must be an object: class to service time")
    servers = part.get("servers", 1)
    return Station(
        name=_text(f"{where}.name", part["name"]),
        service={name: _service(f"{where}.service.{name}", time, folder) for name, time in times.items()},
        servers=None if servers == _INFINITE else servers,
        discipline=part.get("discipline", "fcfs"),
        rates=tuple(_number(f"{where}.rates", rate) for rate in _list(part, "rates")),
        capacity=part.get("capacity"),
        when_full=part.get("when_full", "lose"),
        batch=part.get("batch", 1),
    )


def _service(where: str, part: Any, folder: Path) -> Service:
    try:
        if isinstance(part, int | float) and not isinstance(part, bool):
            return Service(float(part))
        _keys(where, part, _SERVICE, set())
        distribution = part.get("distribution", "exponential")
        if distribution == "empirical":
            if "file" in part:
                return Service.empirical(read_times_s(folder / part["file"], part.get("column", "service_s")))
            return Service.empirical(tuple(_number("values_s", value) for value in _list(part, "values_s")))
        if "mean_s" not in part:
            raise ModelError("mean_s", "is missing")
        if "squared_variation" not in part and distribution not in _USUAL_VARIATION:
            raise ModelError("squared_variation", f"is missing; a {distribution} distribution needs it")
        variation = part.get("squared_variation", _USUAL_VARIATION.get(distribution))
        return Service(
            _number("mean_s", part["mean_s"]), _number("squared_variation", variation), distribution
        )
    except ModelError as error:
        if error.where == where:
            raise
        raise ModelError(f"{where}.{error.where}", error.rule) from None


def _service_as_dict(time: Service) -> dict[str, Any]:
    if time.distribution == "empirical":
        return {"distribution": "empirical", "values_s": list(time.values_s)}
    return {
        "mean_s": float(time.mean_s),
        "distribution": time.distribution,
        "squared_variation": float(time.squared_variation),
    }


def _route(where: str, part: Any) -> Route:
    _keys(where, part, _ROUTE, {"class", "from", "to"})
    return Route(
        part["class"],
        part["from"],
        part["to"],
        _number(f"{where}.probability", part.get("probability", 1.0)),
        part.get("to_class"),
    )


def _fork(where: str, part: Any) -> Fork:
    _keys(where, part, _FORK, {"name", "branches"})
    send_s = _number(f"{where}.send_s", part.get("send_s", 0.0))
    return Fork(
        _text(f"{where}.name", part["name"]), tuple(part["branches"]), part.get("join", "all"), send_s
    )


def _pool(where: str, part: Any) -> Pool:
    _keys(where, part, _POOL, {"name", "slots", "inside"})
    return Pool(_text(f"{where}.name", part["name"]), part["slots"], tuple(part["inside"]))


def _keys(where: str, part: Any, known: set[str], needed: set[str]) -> None:
    if not isinstance(part, dict):
        raise ModelError(where, "must be a JSON object")
    unknown = sorted(set(part) - known)
    if unknown:
        raise ModelError(
            f"{where}.{unknown[0]}", f"is not a field; the fields are {', '.join(sorted(known))}"
        )
    missing = sorted(needed - set(part))
    if missing:
        raise ModelError(f"{where}.{missing[0]}", "is missing")


def _list(part: dict[str, Any], name: str) -> list[Any]:
    value = part.get(name, [])
    if not isinstance(value, list):
        raise ModelError(name, "must be a list")
    return value


def _table(content: dict[str, Any], name: str) -> dict[str, dict[str, float]]:
    value = content.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ModelError(name, "must be an object of objects")
    return {
        key: {other: _number(f"{name}.{key}.{other}", number) for other, number in row.items()}
        for key, row in value.items()
    }


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ModelError(where, f"must be a text, not {value!r}")
    return value


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(where, f"must be a whole number, not {value!r}")
    return value


def _number(where: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ModelError(where, f"must be a number, not {value!r}") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ModelError(where, f"must be a finite number, not {value!r}")
    return number
