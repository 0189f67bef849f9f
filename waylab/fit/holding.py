"""How long a request holds a connection to the database, as a function of the number in use: w(n)."""

from collections.abc import Sequence

import numpy as np

from waylab.fit.message_stations import alike, part_times
from waylab.fit.parameters import Fit, HoldingParameters, NotApplicableError
from waylab.runfolder.analysis import Configuration

_POINTS_MIN = 2
# A mean of 15.9 in use is measured at 16.
_SAME = 1.1


def fit_holding(calibration: Sequence[Configuration], configuration: Configuration) -> Fit[HoldingParameters]:
    """Fit w(n) through the calibration configurations: linear between them, constant outside.

    By Little's law the number of connections in use is throughput times holding time. If a connection pool limits
    concurrency, the model accounts for the wait. Fused lanes have no such limit, and the wait for them is part of
    the holding time.

    Raises:
        NotApplicableError: without a database, or with fewer than two different loads to learn from.
    """
    known, own = alike(calibration, configuration), part_times(configuration)
    services = configuration.description.programs.get("messages", 0)
    messages = configuration.system["messages"] if services else {}
    pooled = bool(services) and messages["dispatch"] == "pool"
    points = {}
    for one in known:
        time_s = one.database_s if pooled else one.queue_s + one.database_s
        if time_s > 0:
            points[one.throughput_per_s * time_s] = time_s
    if len(points) < _POINTS_MIN:
        raise NotApplicableError("holding times as a function of the load need two different loads at least")
    slots = -(-int(messages["connections"]) // services) * services if pooled else own.clients
    in_use = np.arange(1, min(slots, own.clients) + 1)
    levels = sorted(points)
    holding_s = np.interp(in_use, levels, [points[level] for level in levels])
    # The time outside the database does not depend on n; it is taken at the nearest load.
    nearest = min(known, key=lambda one: abs(one.clients - own.clients))
    return Fit(
        HoldingParameters(
            clients=own.clients,
            think_s=own.think_s,
            delay_s=nearest.outside_s + nearest.service_s,
            slots=slots,
            holding_s=[float(time_s) for time_s in holding_s],
        ),
        f"holding time by the number of connections in use, from {len(known)} configurations; time outside as at "
        f"{nearest.clients} clients" + _beyond(in_use, levels),
    )


def _beyond(in_use: np.ndarray, levels: Sequence[float]) -> str:
    """Say that a number in use lies beyond the measured ones."""
    if in_use[-1] <= levels[-1] * _SAME:
        return ""
    return (
        f"; EXTRAPOLATED: at most {levels[-1]:.3g} were in use there, and the model needs up to {in_use[-1]}"
    )
