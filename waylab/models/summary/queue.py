"""One queue as rows for JSON, and in words: utilisation, waiting, and the effect of changes in at most eight lines."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypedDict

from waylab.models.elementary.mm1 import MM1
from waylab.models.elementary.mmm import MMm
from waylab.models.elementary.queue import Queue
from waylab.models.elementary.table import as_table
from waylab.models.errors import AssumptionError, ModelError, UnstableError
from waylab.models.service import Service
from waylab.models.summary.texts import change_text, number_text, percent_text, time_text
from waylab.models.sweep import scaled_to

_SHARES = (*(index / 100 for index in range(1, 99)), 0.985, 0.99, 0.995, 0.998)
_MARKED = (0.5, 0.95, 0.99)
_LOAD_STEP = 0.25


class ValueRow(TypedDict):
    """One known value of a queue; a unit of "" belongs to a number, a share or a probability."""

    name: str
    value: float
    unit: str


class QueueRow(TypedDict):
    """A single queue: its numbers as given, and every value that is known of it."""

    name: str
    kind: str
    given: dict[str, float]
    values: list[ValueRow]


class QuantilePoint(TypedDict):
    """One quantile of the response or waiting time; a marked one is named in a drawing."""

    part: str
    share: float
    time_s: float
    marked: bool


def queue_as_dict(queue: Queue) -> QueueRow:
    """Return a queue as content for JSON: its parameters, and every value that is known of it."""
    given: dict[str, float] = {}
    if is_dataclass(queue):
        values = {field.name: getattr(queue, field.name) for field in fields(queue)}
        given = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {
        "name": queue.name,
        "kind": queue.kind,
        "given": given,
        "values": [{"name": name, "value": value, "unit": unit} for name, value, unit in as_table(queue)],
    }


def distribution_points(queue: Queue) -> list[QuantilePoint]:
    """Return points of the distribution of response and waiting time: part, share and time_s.

    Some quantiles are `marked`, to be named in a drawing. A part whose distribution is unknown is left out.
    """
    points: list[QuantilePoint] = []
    for part, quantile_s in (
        ("response", queue.response_quantile_s),
        ("waiting", queue.waiting_quantile_s),
    ):
        try:
            points += [
                {"part": part, "share": share, "time_s": quantile_s(share), "marked": share in _MARKED}
                for share in _SHARES
            ]
        except ModelError:
            continue
    return points


def explain_queue(queue: Queue) -> str:
    """Describe a queue in words; each change is the changed queue, computed again."""
    lines = [_load(queue), _times(queue)]
    if queue.loss_probability > 0:
        lines.append(f"{percent_text(queue.loss_probability)} of the arrivals find no room and are lost.")
    room = _room(queue)
    lines += [room] if room else []
    lines += [_changed(queue, what, change) for what, change in _changes(queue)]
    return "\n".join(line for line in lines if line)


def _load(queue: Queue) -> str:
    servers = _field(queue, "servers") or 1
    who = "The server is" if servers == 1 else f"Each of the {servers:,} servers is"
    text = f"{queue.name}: {number_text(queue.throughput_per_s)} requests/s. "
    busy = _known(lambda: queue.utilisation)
    return text + (f"{who} busy {percent_text(busy)} of the time." if busy is not None else "")


def _times(queue: Queue) -> str:
    response_s = _known(lambda: queue.response_mean_s)
    waiting_s = _known(lambda: queue.waiting_mean_s)
    if response_s is None or waiting_s is None:
        return ""
    text = f"A response takes {time_text(response_s)} on average: {time_text(waiting_s)} waiting"
    text += f" and {time_text(response_s - waiting_s)} service."
    waits = _known(lambda: queue.waits_probability)
    if waits is not None:
        text += f" {percent_text(waits)} of the requests wait"
        tail_s = _known(lambda: queue.response_quantile_s(0.99))
        text += f"; one in a hundred takes longer than {time_text(tail_s)}." if tail_s is not None else "."
    return text


def _room(queue: Queue) -> str:
    """How much the load can grow, for queues that lose no requests."""
    clients = _field(queue, "clients")
    if clients is not None:
        return ""
    busy = _known(lambda: queue.utilisation)
    if busy is None or not busy > 0 or queue.loss_probability > 0 or _field(queue, "capacity") is not None:
        return ""
    return (
        f"The load can grow by {percent_text(1 / busy - 1)}, to {number_text(queue.throughput_per_s / busy)} "
        "requests/s, before the queue grows without limit."
    )


def _changes(queue: Queue) -> list[tuple[str, Callable[[], Queue]]]:
    found: list[tuple[str, Callable[[], Queue]]] = []
    if not is_dataclass(queue):
        return found
    again: Any = queue
    names = {field.name for field in fields(queue)}
    if "servers" in names:
        twice = {"servers": 2 * again.servers}
        if "capacity" in names:
            twice["capacity"] = again.capacity + again.servers
        found.append((f"Twice the servers ({2 * again.servers:,})", lambda: replace(again, **twice)))
    elif isinstance(queue, MM1):
        found.append(("Twice the servers (2)", lambda: MMm(queue.arrivals_per_s, queue.services_per_s, 2)))
    half = _half_service(again, names)
    if half:
        found.append(("Half the service time", half))
    for word, factor in (("fewer", 1 - _LOAD_STEP), ("more", 1 + _LOAD_STEP)):
        if "clients" in names:
            clients = round(factor * again.clients)
            if clients not in (0, again.clients):
                step = f"{100 * abs(clients / again.clients - 1):.0f} %"
                found.append((f"{step} {word} clients ({clients:,})", _replaced(again, clients=clients)))
        elif "arrivals_per_s" in names:
            rate = factor * again.arrivals_per_s
            found.append((f"{100 * _LOAD_STEP:.0f} % {word} arrivals", _replaced(again, arrivals_per_s=rate)))
    return found


def _half_service(queue: Any, names: set[str]) -> Callable[[], Queue] | None:
    if "services_per_s" in names:
        return _replaced(queue, services_per_s=2 * queue.services_per_s)
    if "service_s" in names:
        return _replaced(queue, service_s=queue.service_s / 2)
    if "service" in names:
        time = queue.service
        half = scaled_to(time, time.mean_s / 2) if isinstance(time, Service) else time / 2
        return _replaced(queue, service=half)
    return None


def _replaced(queue: Any, **changes: Any) -> Callable[[], Queue]:
    return lambda: replace(queue, **changes)


def _changed(queue: Queue, what: str, change: Callable[[], Queue]) -> str:
    try:
        after = change()
        parts = [
            change_text(
                after.response_mean_s / queue.response_mean_s - 1, "response time", "longer", "shorter"
            )
        ]
        if _field(queue, "clients") is not None or queue.loss_probability > 0:
            ratio = after.throughput_per_s / queue.throughput_per_s - 1
            parts.insert(0, change_text(ratio, "throughput", "more", "less"))
    except UnstableError:
        return f"{what}: no steady state, the queue would grow without limit."
    except ModelError:
        return ""
    return f"{what}: {', '.join(parts)}."


def _field(queue: Queue, name: str) -> Any:
    return getattr(queue, name, None)


def _known(ask: Callable[[], float]) -> float | None:
    """Return a number, or None if it is unknown for this queue."""
    try:
        return ask()
    except AssumptionError:
        return None
