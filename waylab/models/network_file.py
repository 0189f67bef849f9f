"""A description as JSON, `waystage-model/1`, which `waystage simulate` reads too. See docs/model-format.md."""

import csv
import json
from pathlib import Path
from typing import Any

from waylab import bounded
from waylab.models.description import Fork, JobClass, Pool, Route, Station
from waylab.models.errors import ModelError
from waylab.models.network import Network
from waylab.models.service import Service

FORMAT = "waystage-model/1"
_INFINITE = "infinite"
_LEAST, _LARGEST = 1e-100, 1e100
_WHOLE_MAX = 2**63 - 1
_SHOWN = 60
_UNITS_S = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
# Only the simulator uses the stamps.
_NETWORK = {
    "format",
    "name",
    "classes",
    "stations",
    "visits",
    "routes",
    "switching",
    "forks",
    "pools",
    "stamps",
}
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
        raise ModelError(str(path), "cannot be read: no such file") from None
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
    stamps = content.get("stamps", {})
    if not isinstance(stamps, dict):
        raise ModelError("stamps", "must be an object: stage to event")
    for stage, event in stamps.items():
        _text(f"stamps.{stage}", event)
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
        return tuple(_measured(f"{path}:{rows.line_num}", row[column]) * unit_s for row in rows)
    except FileNotFoundError:
        raise ModelError(str(path), "cannot be read: no such file") from None
    except (bounded.UnreadableError, csv.Error) as error:
        raise ModelError(str(path), f"cannot be read: {error}") from None


def _measured(where: str, text: str | None) -> float:
    try:
        return _number(where, float(text or ""))
    except ValueError:
        raise ModelError(where, f"must be a number, not {text!r}") from None


def _class(where: str, part: Any, folder: Path) -> JobClass:
    _keys(where, part, _CLASS, {"name"})
    return JobClass(
        name=_text(f"{where}.name", part["name"]),
        population=_whole(f"{where}.population", part.get("population", 0)),
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
        servers=None if servers in (_INFINITE, None) else _whole(f"{where}.servers", servers),
        discipline=_text(f"{where}.discipline", part.get("discipline", "fcfs")),
        rates=tuple(_numbers(where, part, "rates")),
        capacity=None if part.get("capacity") is None else _whole(f"{where}.capacity", part["capacity"]),
        when_full=_text(f"{where}.when_full", part.get("when_full", "lose")),
        batch=_whole(f"{where}.batch", part.get("batch", 1)),
    )


def _service(where: str, part: Any, folder: Path) -> Service:
    try:
        if isinstance(part, int | float) and not isinstance(part, bool):
            return Service(_number(where, part))
        _keys(where, part, _SERVICE, set())
        distribution = _text("distribution", part.get("distribution", "exponential"))
        if distribution == "empirical":
            return _empirical(part, folder)
        for name in ("values_s", "file", "column"):
            if name in part:
                raise ModelError(name, "belongs to the distribution `empirical`")
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


def _empirical(part: dict[str, Any], folder: Path) -> Service:
    for name in ("mean_s", "squared_variation"):
        if name in part:
            raise ModelError(name, "follows from the measured times")
    if "file" not in part:
        return Service.empirical(tuple(_numbers("", part, "values_s")))
    if "values_s" in part:
        raise ModelError("file", "give either file or values_s, one of the two")
    column = _text("column", part.get("column", "service_s"))
    return Service.empirical(read_times_s(folder / _text("file", part["file"]), column))


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
    after = part.get("to_class")
    return Route(
        _text(f"{where}.class", part["class"]),
        _text(f"{where}.from", part["from"]),
        _text(f"{where}.to", part["to"]),
        _number(f"{where}.probability", part.get("probability", 1.0)),
        None if after is None else _text(f"{where}.to_class", after),
    )


def _fork(where: str, part: Any) -> Fork:
    _keys(where, part, _FORK, {"name", "branches"})
    send_s = _number(f"{where}.send_s", part.get("send_s", 0.0))
    join = _text(f"{where}.join", part.get("join", "all"))
    return Fork(_text(f"{where}.name", part["name"]), _texts(where, part, "branches"), join, send_s)


def _pool(where: str, part: Any) -> Pool:
    _keys(where, part, _POOL, {"name", "slots", "inside"})
    slots = _whole(f"{where}.slots", part["slots"])
    return Pool(_text(f"{where}.name", part["name"]), slots, _texts(where, part, "inside"))


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


def _list(part: dict[str, Any], name: str, where: str = "") -> list[Any]:
    value = part.get(name, [])
    if not isinstance(value, list):
        raise ModelError(f"{where}.{name}" if where else name, f"must be a list, not {_shown(value)}")
    return value


def _numbers(where: str, part: dict[str, Any], name: str) -> list[float]:
    place = f"{where}.{name}" if where else name
    return [_number(f"{place}[{i}]", value) for i, value in enumerate(_list(part, name, where))]


def _texts(where: str, part: dict[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_text(f"{where}.{name}[{i}]", value) for i, value in enumerate(_list(part, name, where)))


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
        raise ModelError(where, f"must be a text, not {_shown(value)}")
    return value


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(where, f"must be a whole number, not {_shown(value)}")
    if abs(value) > _WHOLE_MAX:
        raise ModelError(where, f"must be a whole number of at most {_WHOLE_MAX}, not {_shown(value)}")
    return value


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(where, f"must be a number, not {_shown(value)}")
    # Beyond this, products of times and rates would not be finite.
    if value != 0 and not _LEAST <= abs(value) <= _LARGEST:
        raise ModelError(where, f"must be 0 or from 1e-100 to 1e100 in size, not {_shown(value)}")
    return float(value)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
