"""The response time of one customer at a closed station with load-dependent speed, as a phase-type time."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from waylab.models.errors import ModelError
from waylab.models.phase_type import PHASES_MAX, PhaseType

Array = NDArray[np.float64]

# A think time this short, in units of the shortest service, counts as none: the difference is below rounding.
_NO_TIME = 1e-12


def closed_response_time(seen: Array, think_s: float, rates_per_s: Array) -> PhaseType:
    """Follow one customer from its arrival at the station until it leaves.

    `seen[n]` is the probability that it finds n others, shape (N,) for N customers; `rates_per_s` as in
    ClosedBirthDeath. First come first served; each request in service is equally likely to leave next, so the
    customer's own service runs at the current rate over the number in service. In service, a phase is the number of
    others present. While waiting, a phase is the number of departures still to come and the number of customers behind
    (they cannot overtake, but they determine the final number): N + J (J + 1) / 2 phases with J = N - slots. Think
    times are exponential here, because only the state is insensitive to their distribution, not the passage.

    Raises:
        ModelError: for too many phases; simulate.
    """
    clients, slots = seen.size, rates_per_s.size
    if think_s * rates_per_s.max() < _NO_TIME:
        return _without_thinking(clients, rates_per_s)
    others = np.arange(clients)
    most = max(0, clients - slots)
    phases = clients + most * (most + 1) // 2
    if phases > PHASES_MAX:
        raise ModelError(
            "clients", f"one of {clients} is followed through {phases} phases, too many; simulate"
        )
    # Waiting: departures to pass 1..most, behind 0..most - departures, numbered after the phases in service.
    before, behind = (
        part.ravel() for part in np.meshgrid(np.arange(1, most + 1), np.arange(most), indexing="ij")
    )
    inside = before + behind <= most
    before, behind = before[inside], behind[inside]
    number = np.full((most + 2, most + 1), -1)
    number[before, behind] = clients + np.arange(before.size)
    waiting = number[before, behind]

    serving = np.minimum(others + 1, slots)
    speed = rates_per_s[serving - 1]
    more = (clients - 1 - others) / think_s
    comes = (clients - 1 - (slots - 1 + before + behind)) / think_s
    on = np.where(before > 1, number[before - 1, behind], slots - 1 + behind)
    moves = (
        (others[:-1], others[1:], more[:-1]),
        (others[1:], others[:-1], (speed * (1 - 1 / serving))[1:]),
        (waiting, on, np.full(before.size, rates_per_s[-1])),
        (waiting[comes > 0], waiting[comes > 0] + 1, comes[comes > 0]),
    )
    leaves = np.concatenate((more + speed, comes + rates_per_s[-1]))
    size = leaves.size
    rows, columns, rates = (np.concatenate(part) for part in zip(*moves, strict=True))
    moving = rates > 0
    generator = sparse.coo_array((rates[moving], (rows[moving], columns[moving])), (size, size))
    start = np.zeros(size)
    start[:slots][: seen.size] = seen[:slots]
    if most:
        start[number[1 : most + 1, 0]] = seen[slots:]
    return PhaseType(start, sparse.csr_array(generator) - sparse.diags_array(leaves))


def _without_thinking(clients: int, rates_per_s: Array) -> PhaseType:
    """All customers are always at the station."""
    serving = min(clients, rates_per_s.size)
    speed = float(rates_per_s[serving - 1])
    service = PhaseType.exponential(serving / speed)
    waiting = clients - serving
    return PhaseType.sum_of([PhaseType.erlang(waiting / speed, waiting), service]) if waiting else service
