"""Simulates a fitted network over time: each request passes first-come-first-served queues, some of them frozen.

Requests are followed one after the other in the order in which clients send them. Where a centre has several queues,
a request that overtook another one there is served after it at the next centre; the error is small, because few do.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.network import Centre, CycleNetwork
from waylab.fit.layered.sharing import crowding

Array = NDArray[np.float64]

# Beyond so many queues nothing waits.
_QUEUES_MAX = 512
# How often the crowding of cores is updated.
_UPDATE_S = 0.05
# Timeouts after which the proxy ejects a server, and its pauses before it tries again.
_FAILURES, _PAUSE_MIN_S, _PAUSE_MAX_S = 3, 0.015, 0.75

Progressing = Callable[[int, int], None]


@dataclass(frozen=True)
class Outage:
    """A time in which the first servers do nothing; work that they have begun continues afterwards."""

    start_s: float
    end_s: float
    servers: int


@dataclass(frozen=True)
class Passages:
    """For each request: when it was due, when it was answered, and whether the answer was an error."""

    due_s: Array
    done_s: Array
    lost: NDArray[np.bool_]


class _Queue:
    """One server of a centre, with its outages in order."""

    def __init__(self, outages: Sequence[Outage], timeout_s: float) -> None:
        self.free_s = 0.0
        self.leaving: deque[float] = deque()
        self.outages = list(outages)
        self.timeout_s = timeout_s
        self.timed_out = 0
        # While the proxy has ejected the server.
        self.ejected_s = self.back_s = math.inf

    def serve(self, now_s: float, work_s: float) -> tuple[float, bool]:
        """When a request that arrives now is answered, and whether by an error."""
        while self.outages and self._is_over(now_s):
            self.outages.pop(0)
            self.timed_out = 0
            self.ejected_s = self.back_s = math.inf
        if self.ejected_s <= now_s < self.back_s:
            return now_s, True
        start = max(now_s, self.free_s)
        for one in self.outages:
            if one.start_s < start + work_s and start < one.end_s:
                start += one.end_s - max(start, one.start_s)
        self.free_s = start + work_s
        self.leaving.append(self.free_s)
        stopped = next((one for one in self.outages if one.start_s < self.free_s and now_s < one.end_s), None)
        if stopped is None:
            return self.free_s, False
        # A timeout is a time without any reply, so that a long queue alone causes none.
        late_s = max(now_s, stopped.start_s) + self.timeout_s
        if late_s >= stopped.end_s:
            return self.free_s, False
        self.timed_out += 1
        if self.timed_out == _FAILURES:
            self.ejected_s, self.back_s = late_s, _back_s(late_s, stopped.end_s, self.timeout_s)
        return min(late_s, self.ejected_s), True

    def _is_over(self, now_s: float) -> bool:
        over_s = self.outages[0].end_s
        return now_s >= (over_s if math.isinf(self.back_s) else max(over_s, self.back_s))


def _back_s(ejected_s: float, end_s: float, timeout_s: float) -> float:
    """When the proxy reaches a server again: it tries after pauses that double, and waits for a reply each time."""
    now_s, pause_s = ejected_s, _PAUSE_MIN_S
    while True:
        now_s += pause_s
        if now_s + timeout_s > end_s:
            return max(now_s, end_s)
        now_s += timeout_s
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


class _Station:
    """A centre with its queues, and the random numbers of every request."""

    def __init__(
        self,
        centre: Centre,
        count: int,
        random: np.random.Generator,
        outages: Sequence[Outage],
        timeout_s: float,
        own: float = 1.0,
    ) -> None:
        self.centre = centre
        # The share of its time that work needs which finds no other before it: a host's quota stops what waits only.
        self.own = own
        self.endless = centre.queues > _QUEUES_MAX
        self.queues = [
            _Queue([one for one in outages if place < one.servers], timeout_s)
            for place in range(0 if self.endless else centre.queues)
        ]
        whole = int(centre.visits)
        legs = np.full(count, whole) + (random.random(count) < centre.visits - whole)
        self.legs: list[int] = np.minimum(legs, centre.queues).tolist()
        self.first: list[int] = random.integers(0, centre.queues, count).tolist()
        self.draws = iter(random.standard_exponential(int(sum(self.legs))).tolist())
        self.work_s = 0.0

    def visit(self, request: int, now_s: float, stretch: float) -> tuple[float, bool]:
        """When a request leaves that arrives now: with the slowest of its visits, which are made at once."""
        done_s, lost = now_s, False
        batched_s, extra_s = self.centre.batched_s, self.centre.alone_s - self.centre.batched_s
        for leg in range(self.legs[request]):
            if self.endless:
                left_s, failed = now_s + next(self.draws) * (batched_s + extra_s) * stretch, False
            else:
                queue = self.queues[(self.first[request] + leg) % len(self.queues)]
                leaving = queue.leaving
                while leaving and leaving[0] <= now_s:
                    leaving.popleft()
                # Work that is done together with waiting work is cheaper.
                share = (1 + len(leaving)) ** -self.centre.power
                work_s = next(self.draws) * (batched_s + extra_s * share) * stretch
                self.work_s += work_s
                if queue.free_s <= now_s:
                    work_s *= self.own
                left_s, failed = queue.serve(now_s, work_s)
                if not failed:
                    left_s -= (1 - self.centre.counted) * work_s
            done_s, lost = max(done_s, left_s), lost or failed
        return done_s, lost


class _Crowd:
    """How much longer work takes because the threads of a host share its cores; of a group, each host has its share."""

    def __init__(self, stations: Sequence[_Station], cores: float, copies: int, in_flight: int) -> None:
        self.stations, self.cores, self.copies = stations, cores, copies
        # A thread that runs alone is slower on less than one core.
        self.stretch = max(1.0, 1 / cores)
        legs = max(1.0, *(one.centre.visits for one in stations))
        threads = math.ceil(sum(one.centre.queues for one in stations) / copies)
        self.threads = min(threads, math.ceil(in_flight * legs))

    def update(self, length_s: float) -> None:
        """Follow the work of the time since the last update."""
        busy = sum(min(one.work_s / length_s, one.centre.queues) for one in self.stations) / self.copies
        for one in self.stations:
            one.work_s = 0.0
        wanted = float(
            crowding(np.array([[float(self.threads)]]), np.array([[busy]]), np.array([[self.cores]]))[0, 0]
        )
        # Half of the way: more stretch makes more busy threads, which would overshoot.
        self.stretch = min(math.sqrt(self.stretch * wanted), max(1.0, self.threads / self.cores))


def simulate_passages(
    network: CycleNetwork,
    due_s: Array,
    random: np.random.Generator,
    outages: Sequence[Outage] = (),
    timeout_s: float = math.inf,
    report: Progressing = lambda done, total: None,
) -> Passages:
    """Follow requests that are due at these times; at most `network.clients` are in flight, as in the generator."""
    count = due_s.size
    cores_of, quotas = dict(network.cores), dict(network.quotas)
    stations = [
        _Station(
            one,
            count,
            random,
            outages if one.name == "backends" else (),
            timeout_s,
            min(1.0, cores_of[one.host]) if one.host in quotas else 1.0,
        )
        for one in sorted(network.centres, key=lambda one: one.inside)
    ]
    crowds: dict[str, _Crowd] = {}
    for host, cores in network.cores:
        mine = [one for one in stations if one.centre.host == host]
        copies = quotas.get(host, 1)
        if mine and sum(one.centre.queues for one in mine) > cores * copies:
            crowds[host] = _Crowd(mine, cores, copies, network.clients)
    outside = [(one, crowds.get(one.centre.host)) for one in stations if not one.centre.inside]
    inside = [(one, crowds.get(one.centre.host)) for one in stations if one.centre.inside]
    free = [0.0] * min(network.clients, count)
    slots = [0.0] * min(network.slots, count)
    delays = (network.delay_s * random.standard_exponential(count)).tolist()
    done, lost = np.zeros(count), np.zeros(count, dtype=bool)
    updated_s = 0.0
    for request, due in enumerate(due_s.tolist()):
        now = max(due, free[0])
        if now >= updated_s + _UPDATE_S:
            for crowd in crowds.values():
                crowd.update(now - updated_s)
            updated_s = now
            report(request, count)
        failed = False
        for station, shared in outside:
            now, _ = station.visit(request, now, shared.stretch if shared else 1.0)
        if slots:
            now = max(now, slots[0])
        for station, shared in inside:
            now, error = station.visit(request, now, shared.stretch if shared else 1.0)
            failed = failed or error
        if slots:
            heapreplace(slots, now)
        now += delays[request]
        heapreplace(free, now)
        done[request], lost[request] = now, failed
    return Passages(due_s, done, lost)
