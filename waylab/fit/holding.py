"""How long a request holds a connection to the database, as a function of how many are held: w(n)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from waylab.fit.message_stations import Configuration, alike, seen
from waylab.fit.parameters import Fit, NotApplicableError

_POINTS_MIN = 2


def fit_holding(calibration: Sequence[Configuration], configuration: Configuration) -> Fit:
    """Fit w(n) through the configurations that may be learned from: straight between them, level outside.

    Little's law says how many were held: throughput times holding time. Where a pool limits them, waiting for it is the
    model's affair; lanes that send what waits have no limit, and the wait for them is part of the holding time.

    Raises:
        NotApplicableError: without a database, or with fewer than two different loads to learn from.
    """
    known, own = alike(calibration, configuration), seen(configuration)
    system = configuration["system"]
    roles = system["description"]["programs"]
    pooled = "messages" in roles and system["messages"]["dispatch"] == "pool"
    points = {}
    for one in known:
        time_s = one.database_s if pooled else one.queue_s + one.database_s
        if time_s > 0:
            points[one.throughput_per_s * time_s] = time_s
    if len(points) < _POINTS_MIN:
        raise NotApplicableError("holding times as a function of the load need two different loads at least")
    slots = _connections(system) if pooled else own.clients
    held = np.arange(1, min(slots, own.clients) + 1)
    levels = sorted(points)
    holding_s = np.interp(held, levels, [points[level] for level in levels])
    # What is spent without waiting for others, at the load that comes nearest.
    nearest = min(known, key=lambda one: abs(one.clients - own.clients))
    return Fit(
        {
            "clients": own.clients,
            "think_s": configuration["think_mean_s"],
            "delay_s": nearest.outside_s + nearest.service_s,
            "slots": int(slots),
            "holding_s": [float(time_s) for time_s in holding_s],
        },
        f"holding time by the number held, from {len(known)} configurations; what is outside as at "
        f"{nearest.clients} clients",
    )


def _connections(system: dict[str, Any]) -> int:
    messages = system["messages"]
    return -(-messages["connections"] // messages["services"]) * messages["services"]
