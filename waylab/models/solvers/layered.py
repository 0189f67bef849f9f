"""Networks with pools of slots: the inside of a pool becomes one station with a load-dependent speed.

Combines inside and outside; `slots` solves each. Exact inside, approximate between them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.models.description import Station
from waylab.models.errors import AssumptionError
from waylab.models.features import ASSUMPTIONS, require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.service import Service
from waylab.models.solvers.products import Demands, closed_part, demands, result
from waylab.models.solvers.slots import ONE_CLASS, Part, SlotState, entries, inside, outside, parts
from waylab.models.traffic import traffic

Array = NDArray[np.float64]
SOLVER = "layered"
_HANDLES = {
    "closed",
    "several classes",
    "class switching",
    "delay",
    "several servers",
    "rates",
    "forks",
    "pools",
}


def solve_layered(network: Network) -> Result:
    """Solve a closed network with pools of slots, one chain of classes, by flow-equivalent stations.

    Assumes a product form (exponential service with the same mean for all classes where requests are served first come
    first served) except for pools and forks, and that places inside a pool are used only with one of its slots. The
    classes of the chain are combined: a request brings their mean work. Times in seconds.
    The inside of a pool of m slots is solved as a closed network with n = 1..m circulating requests: exactly by
    convolution, or with forks by the fork-join approximation. Its throughputs X(n) are the rates X(min(n, m)) of one
    station that replaces the pool and its queue. The outside is then solved by convolution (or the fork-join
    approximation, if it has forks). The numbers inside are means over the number of busy slots.
    Exact if the pool is never full (Norton's theorem: Chandy, Herzog and Woo, Parametric analysis of queuing
    networks, IBM J. Res. Dev. 19 (1975)) and has no forks, or if it contains a single station.
    Error against the exact chain (networks of tests/models/test_layered.py, seed 5, fewer slots than customers): 400
    without forks, N 2..10, at most 3.9 % in throughput and 6.0 % in response, 0.8 % and 1.0 % on average; 150 with a
    fork inside, N 2..6, at most 4.3 % and 8.6 %, 1.5 % and 2.3 % on average.
    Sources: Chandy, Herzog and Woo (1975); for pools in layers Rolia and Sevcik, The method of layers, IEEE
    Trans. Software Eng. 21 (1995).

    Raises:
        AssumptionError: for open or several chains, priorities, finite rooms, or a place inside that is also used
            without a slot.
    """
    require(network, SOLVER, _HANDLES)
    chains = len(traffic(network).chains)
    if chains > 1:
        raise AssumptionError(SOLVER, ASSUMPTIONS["several chains"], f"there are {chains}")
    found = demands(network)
    population = found.populations[0]
    insides, rest = parts(network, SOLVER)
    layers = [
        _Layer(pool.name, pool.slots, part, inside(found, part, min(pool.slots, population)))
        for pool, part in zip(network.pools, insides, strict=True)
    ]
    further = tuple(layer.station for layer in layers if layer.states)
    whole = outside(found, rest, further)
    lines = iter(whole.further)
    present = [next(lines) if layer.states else np.ones(1) for layer in layers]
    return _result(found, rest, whole, layers, present)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A pool, and the state of its inside with 1, 2, ... busy slots."""

    name: str
    slots: int
    part: Part
    states: list[SlotState]

    @property
    def station(self) -> Station:
        """The flow-equivalent station of the pool."""
        rates = tuple(state.throughput_per_s for state in self.states)
        return Station(self.name, {ONE_CLASS: Service(1.0)}, rates=rates)

    def busy_slots(self, present: Array) -> Array:
        """P(n slots are busy), n = 0..slots, from P(n present), waiting or inside."""
        if len(present) <= self.slots:
            return present
        return np.concatenate([present[: self.slots], [present[self.slots :].sum()]])

    def waiting(self, present: Array) -> float:
        """Mean number waiting for a slot."""
        return float(present @ np.maximum(np.arange(len(present)) - self.slots, 0))


def _result(
    found: Demands, rest: Part, whole: SlotState, layers: list[_Layer], present: list[Array]
) -> Result:
    network = found.network
    queue_length, waiting, occupied = (np.zeros(len(network.stations)) for _ in range(3))
    joining = np.zeros(len(network.forks))
    shares = [(rest, 1.0, whole)]
    for layer, seen in zip(layers, present, strict=True):
        busy = layer.busy_slots(seen)[1:].tolist()
        shares += [(layer.part, share, state) for share, state in zip(busy, layer.states, strict=False)]
    for part, share, state in shares:
        places, forks = list(part.stations), list(part.forks)
        queue_length[places] += share * state.queue_length
        waiting[places] += share * state.waiting
        occupied[places] += share * state.occupied
        joining[forks] += share * state.joining
    steady = closed_part(found, np.array([whole.throughput_per_s]), queue_length[None], waiting[None])
    steady.occupied.update(zip(network.station_names, occupied.tolist(), strict=True))
    steps = result(found, SOLVER, steady)

    described = traffic(network)
    stations = len(network.stations)
    starts = steady.starts_per_s
    forked = np.einsum("c,cfd->fd", starts, described.visits[:, stations:])
    forks_s = _each(joining, forked)
    taken = entries(network)
    granted = np.einsum("c,cpd->pd", starts, taken)
    slots_s = _each(
        np.array([layer.waiting(seen) for layer, seen in zip(layers, present, strict=True)]), granted
    )
    response_s = (
        np.einsum("ckd,kd->c", described.visits[:, :stations], np.nan_to_num(steps.station_response_s))
        + np.einsum("cfd,fd->c", described.visits[:, stations:], np.nan_to_num(forks_s))
        + np.einsum("cpd,pd->c", taken, np.nan_to_num(slots_s))
    )
    busy_slots = [layer.busy_slots(seen) for layer, seen in zip(layers, present, strict=True)]
    return replace(
        steps,
        kind="approximation",
        response_s=np.where(starts > 0, response_s, np.nan),
        fork_response_s=forks_s if network.forks else None,
        pool_waiting_s=slots_s,
        pool_busy=np.array([shares @ np.arange(len(shares)) for shares in busy_slots]),
        notes=(
            "inside each pool: "
            + ("mean-value analysis of forks" if any(layer.part.forks for layer in layers) else "exact"),
            "between inside and outside: as if the inside reached its steady state at once (flow-equivalent station)",
        ),
    )


def _each(amount: Array, per_s: Array) -> Array:
    """Little's law with the same time for all classes; NaN without visits. (P,) and (P, C) to (P, C)."""
    total = per_s.sum(axis=1)
    times_s = np.divide(amount, total, out=np.zeros_like(total), where=total > 0)
    return np.where(per_s > 0, times_s[:, None], np.nan)
