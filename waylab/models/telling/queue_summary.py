"""An elementary queue as plain numbers, for JSON, tables and drawings."""

from dataclasses import fields, is_dataclass
from typing import Any

from waylab.models.elementary.queue import Queue
from waylab.models.elementary.table import as_table
from waylab.models.errors import ModelError

_SHARES = (*(index / 100 for index in range(1, 99)), 0.985, 0.99, 0.995, 0.998)
_MARKED = (0.5, 0.95, 0.99)


def queue_as_dict(queue: Queue) -> dict[str, Any]:
    """Return a queue as content for JSON: what it was made from, and everything that it can say."""
    given = {}
    if is_dataclass(queue):
        values = {field.name: getattr(queue, field.name) for field in fields(queue)}
        given = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {
        "name": queue.name,
        "kind": queue.kind,
        "given": given,
        "values": [{"name": name, "value": value, "unit": unit} for name, value, unit in as_table(queue)],
    }


def distribution_points(queue: Queue) -> list[dict[str, Any]]:
    """Return points of the distribution of response and waiting time: part, share and time_s.

    Some quantiles are `marked`, to be named in a picture. A part that the queue cannot say is left out.
    """
    points = []
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
