"""Solves many cycles of clients, queues, shared cores and slots at once, by mean-value analysis.

Every centre is a number of equal queues. Work done together with waiting work is cheaper: the time of a visit falls
from `alone_s` towards `batched_s` with the number that is waiting. Centres on one host share its cores as processor
sharing. Replicas work at the same time: the response contains the slowest, the load all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.sharing import CLOSE, crowding, falling_root

Array = NDArray[np.float64]

# Queues of a centre at which nothing waits.
ENDLESS = 1_000_000
_ROUNDS = 40
_SEARCHES = 45
_PRESENT_MAX = 1e5
# Populations that are all solved, those after a leap, and how far a leap may be off, as a share of the population.
_EVERY, _IN_TURN, _CHANGE_MAX = 256, 32, 1e-3


@dataclass(frozen=True)
class Centre:
    """A number of equal queues that requests visit."""

    name: str
    queues: int
    # Visits of a request over all queues, and the share of their times that the response contains.
    visits: float
    fan: float
    batched_s: float
    alone_s: float
    # Host whose cores it uses; "" for work that needs no CPU.
    host: str = ""
    # Held by a slot of the pool.
    inside: bool = False
    # How fast the time falls with the number that waits: what is saved is in proportion to (1 + waiting)^-power.
    power: float = 1.0
    # A queue that is also held during this share of the time at another centre; `counted` is the share of its own time
    # that the response contains beside those of the other centres.
    held_at: str = ""
    held: float = 0.0
    counted: float = 1.0
    # Its queues are those of the servers, which the keys of requests choose: no two have the same share of the keys.
    by_key: bool = False


@dataclass(frozen=True)
class CycleNetwork:
    """Centres, cores by host, time outside of all centres; slots of the pool and arrivals: 0 for none.

    The cores of a host in `quotas` are a quota of CPU time: work that is alone runs at full speed, and only what waits
    behind it notices the quota. Such a host may be a group of so many equal ones, each with a share of the queues.
    """

    centres: tuple[Centre, ...]
    cores: tuple[tuple[str, float], ...]
    delay_s: float
    clients: int
    think_s: float = 0.0
    slots: int = 0
    rate_per_s: float = 0.0
    quotas: tuple[tuple[str, int], ...] = ()

    def cores_of(self, host: str) -> float:
        """Cores of all hosts of a group together."""
        return dict(self.cores)[host] * dict(self.quotas).get(host, 1)


@dataclass(frozen=True)
class CycleSolutions:
    """Means, one row for each network; by centre: utilisation of its queues, requests present, CPU seconds."""

    throughput_per_s: Array
    response_s: Array
    utilisation: Array
    present: Array
    cpu_s: Array
    waiting: Array
    # Utilisation of the cores, by host; false where an open network has no steady state.
    host_use: Array
    steady: NDArray[np.bool_]


class _Batch:
    """The networks as arrays; all have the same centres and hosts."""

    def __init__(self, networks: Sequence[CycleNetwork]) -> None:
        first = networks[0]
        self.count, self.size = len(networks), len(first.centres)

        def of(name: str) -> Array:
            return np.array([[float(getattr(one, name)) for one in net.centres] for net in networks])

        self.queues, self.visits, self.fan = of("queues"), of("visits"), of("fan")
        self.batched, self.alone, self.power = of("batched_s"), of("alone_s"), of("power")
        self.held, self.counted = of("held"), of("counted")
        names = [one.name for one in first.centres]
        self.held_at = [
            (place, names.index(one.held_at)) for place, one in enumerate(first.centres) if one.held_at
        ]
        self.inside = np.array([one.inside for one in first.centres])
        self.hosts = [host for host, _ in first.cores if any(one.host == host for one in first.centres)]
        self.host_of = np.array(
            [self.hosts.index(one.host) if one.host in self.hosts else -1 for one in first.centres]
        )
        self.cores = np.array([[dict(net.cores)[host] for host in self.hosts] for net in networks]).reshape(
            self.count, len(self.hosts)
        )
        self.copies = np.array(
            [[dict(net.quotas).get(host, 1) for host in self.hosts] for net in networks], dtype=float
        ).reshape(self.count, len(self.hosts))
        quotas = dict(first.quotas)
        # The share of the time of a visit that work needs which nothing waits for.
        self.own = np.ones((self.count, self.size))
        for place, host in enumerate(self.host_of):
            if host >= 0 and self.hosts[host] in quotas:
                self.own[:, place] = np.minimum(1.0, self.cores[:, host])
        self.delay = np.array([net.delay_s for net in networks])
        self.think = np.array([net.think_s for net in networks])
        self.clients = np.array([net.clients for net in networks])
        slots = np.array([net.slots for net in networks])
        self.slots = np.where((slots > 0) & (slots < self.clients), slots, 0)
        self.rates = np.array([net.rate_per_s for net in networks])

    def slower(self, stretch: Array) -> Array:
        """Stretch of each centre from that of each host."""
        found = np.ones((self.count, self.size))
        for place, host in enumerate(self.host_of):
            if host >= 0:
                found[:, place] = stretch[:, host]
        return found

    def on_host(self, values: Array) -> Array:
        """Sums of values of centres, by host."""
        return np.stack(
            [values[:, self.host_of == host].sum(axis=1) for host in range(len(self.hosts))], axis=1
        )


@dataclass(frozen=True)
class _Means:
    rate: Array
    response_s: Array
    present: Array
    times: Array
    waiting: Array


def solve_cycles(networks: Sequence[CycleNetwork]) -> CycleSolutions:
    """Solve networks of the same centres, all closed or all open."""
    batch = _Batch(networks)
    is_open = bool(batch.rates[0] > 0)
    means = (lambda slower: _open(batch, slower)) if is_open else (lambda slower: _closed(batch, slower))
    found, stretch = _stretched(batch, means, is_open)
    slower = batch.slower(stretch)
    busy = np.minimum(found.rate[:, None] * batch.visits * found.times, batch.queues)
    cpu_s = batch.visits * found.times / slower
    steady = np.ones(batch.count, dtype=bool)
    if len(batch.hosts):
        host_use = found.rate[:, None] * batch.on_host(cpu_s) / (batch.cores * batch.copies)
        if is_open:
            steady &= (host_use < 1).all(axis=1)
        host_use = np.minimum(host_use, 1.0)
    else:
        host_use = np.zeros((batch.count, 0))
    if is_open:
        steady &= (found.present < _PRESENT_MAX).all(axis=1)
    return CycleSolutions(
        found.rate,
        found.response_s,
        busy / batch.queues,
        found.present,
        cpu_s,
        found.waiting,
        host_use,
        steady,
    )


def hosts_of(network: CycleNetwork) -> list[str]:
    """The hosts in the order of `host_use`."""
    return _Batch([network]).hosts


def _stretched(batch: _Batch, means: Callable[[Array], _Means], is_open: bool) -> tuple[_Means, Array]:
    """Find how much longer CPU work takes because the threads of a host share its cores."""
    hosts = len(batch.hosts)
    if not hosts:
        ones = np.ones((batch.count, hosts))
        return means(batch.slower(ones)), ones
    threads = np.ceil(batch.on_host(batch.queues) / batch.copies)
    if not is_open:
        legs = np.maximum(1.0, batch.visits.max(axis=1))
        threads = np.minimum(threads, np.maximum(1.0, np.ceil(batch.clients * legs))[:, None])

    def wanted(stretch: Array) -> Array:
        found = means(batch.slower(stretch))
        busy = np.minimum(found.rate[:, None] * batch.visits * found.times, batch.queues)
        return crowding(threads, batch.on_host(busy) / batch.copies, batch.cores)

    # A thread that runs alone is slower on less than one core, and slowest if all others run, too.
    least, most = np.maximum(1.0, 1 / batch.cores), np.maximum(1.0, threads / batch.cores)
    if (most <= least).all():
        return means(batch.slower(least)), least
    if hosts == 1:
        stretch = np.exp(falling_root(lambda logs: np.log(wanted(np.exp(logs))) - logs, np.log(most)))
    else:
        stretch = least
        for _ in range(_ROUNDS):
            before, stretch = stretch, np.clip(np.sqrt(stretch * wanted(stretch)), least, most)
            if np.abs(np.log(stretch / before)).max() < CLOSE:
                break
    return means(batch.slower(stretch)), stretch


@dataclass(frozen=True)
class _Walk:
    """Successive populations: throughput of each; at the last, numbers present, their last change, time of a visit."""

    numbers: list[int]
    rates: list[Array]
    present: Array
    growth: Array
    times: Array


@dataclass(frozen=True)
class _RatesFound:
    """Throughput of each network with each solved population."""

    numbers: NDArray[np.int_]
    rates: Array

    def all(self) -> Array:
        """With every population: straight lines over leaps."""
        everyone = np.arange(1, self.numbers[-1] + 1)
        if len(everyone) == len(self.numbers):
            return self.rates
        return np.stack([np.interp(everyone, self.numbers, row) for row in self.rates])

    def at(self, clients: NDArray[np.int_]) -> Array:
        """With as many as each network has, which were all solved."""
        return np.asarray(self.rates[np.arange(len(self.rates)), np.searchsorted(self.numbers, clients)])


def _walk(
    batch: _Batch, mask: NDArray[np.bool_], outside: Array, slower: Array, start: int, present: Array
) -> Callable[[int], _Walk]:
    """The exact recursion from a population whose numbers present are known, up to the one that is given."""
    queues, visits, fan = batch.queues[:, mask], batch.visits[:, mask], batch.fan[:, mask]
    own, power = batch.own[:, mask], -batch.power[:, mask]
    quota, rows = own < 1, np.arange(batch.count)
    held, own_share = batch.held_at if mask.all() else [], own * batch.counted[:, mask]
    batched, extra = (
        batch.batched[:, mask] * slower[:, mask],
        (batch.alone - batch.batched)[:, mask] * slower[:, mask],
    )

    def to(stop: int) -> _Walk:
        here, before, time_s, rates = present, present, batched, []
        for number in range(start + 1, stop + 1):
            waiting = here / queues
            time_s = batched + extra * (1 + waiting) ** power
            for place, other in held:
                time_s[:, place] += batch.held[:, place] * time_s[:, other] * (own + waiting)[:, other]
            residence = time_s * (own + waiting)
            cycle = outside + (visits * fan * time_s * (own_share + waiting)).sum(axis=1)
            cycle = np.maximum(cycle, 1e-12)
            rate = number / cycle
            # Replicas at work at the same time can be busier than the cycle says: no queue serves more than it can.
            most = queues / np.maximum(visits * time_s, 1e-15)
            if most.size:
                rate = np.minimum(rate, most.min(axis=1))
            found = rate[:, None] * visits * residence
            if quota.any():
                # Work that a quota stops waits for it.
                limit = most.argmin(axis=1)
                left = np.where(quota[rows, limit], np.maximum(0.0, number - rate * cycle), 0.0)
                found[rows, limit] += left
            before, here = here, found
            rates.append(rate)
        return _Walk(list(range(start + 1, stop + 1)), rates, here, here - before, time_s)

    return to


def _rates(
    batch: _Batch, mask: NDArray[np.bool_], limits: NDArray[np.int_], outside: Array, slower: Array
) -> tuple[_RatesFound, Array, Array]:
    """Throughput with 1..N requests at these centres and outside; present and time of a visit with N (`limits`).

    Mean-value analysis solves every population up to some hundred requests. Beyond, it leaps: the numbers present grow
    by their last change, and the next few populations are solved. If their change differs too much, the leap is halved.
    """
    present = np.zeros((batch.count, int(mask.sum())))
    kept, times = present.copy(), present.copy()
    numbers: list[int] = []
    rates: list[Array] = []
    leap = _IN_TURN
    found = _Walk(numbers, rates, present, present, present)
    for end in sorted(set(limits.tolist())):
        while not numbers or numbers[-1] < end:
            last = numbers[-1] if numbers else 0
            length = min(leap, end - _IN_TURN - last) if last >= _EVERY else 0
            start = last + max(length, 0)
            far = found.present + max(length, 0) * found.growth
            stop = min(end, max(_EVERY, start + _IN_TURN))
            new = _walk(batch, mask, outside, slower, start, np.maximum(far, 0.0))(stop)
            if length > 0:
                change = np.abs(new.growth - found.growth) * length
                if (change > _CHANGE_MAX * start).any():
                    leap = length // 2
                    continue
                leap = 2 * length
            leap = max(leap, 1)
            found = new
            numbers += new.numbers
            rates += new.rates
        now = (limits == end)[:, None]
        kept, times = np.where(now, found.present, kept), np.where(now, found.times, times)
    return _RatesFound(np.array(numbers), np.stack(rates, axis=1)), kept, times


def _closed(batch: _Batch, slower: Array) -> _Means:
    everywhere = np.ones(batch.size, dtype=bool)
    if not batch.slots.any():
        rates, present, times = _rates(batch, everywhere, batch.clients, batch.think + batch.delay, slower)
        rate = rates.at(batch.clients)
        return _Means(rate, batch.clients / rate - batch.think, present, times, np.zeros(batch.count))
    slots = np.where(batch.slots > 0, batch.slots, batch.clients)
    held, inner, inner_s = _rates(batch, batch.inside, slots, np.zeros(batch.count), slower)
    offered, outer, outer_s = _rates(batch, ~batch.inside, batch.clients, batch.think + batch.delay, slower)
    # Two stations whose rates depend on the number present: everything outside, and the slots.
    most = int(batch.clients.max())
    numbers = np.arange(1, most + 1)
    fits = numbers[None, :] <= batch.clients[:, None]
    left = np.clip(batch.clients[:, None] - numbers[None, :], 0, most - 1)
    used = np.minimum(numbers[None, :], slots[:, None]) - 1
    arriving = np.take_along_axis(offered.all(), left, axis=1)
    serving = np.take_along_axis(held.all(), used, axis=1)
    steps = np.where(fits, np.log(np.maximum(arriving, 1e-300)) - np.log(np.maximum(serving, 1e-300)), 0.0)
    logs = np.cumsum(steps, axis=1)
    largest = np.maximum(logs.max(axis=1), 0.0)
    weights = np.where(fits, np.exp(logs - largest[:, None]), 0.0)
    whole = weights.sum(axis=1) + np.exp(-largest)
    rate = (weights * serving).sum(axis=1) / whole
    waiting = (weights * np.maximum(numbers[None, :] - slots[:, None], 0)).sum(axis=1) / whole
    present, times = np.zeros((batch.count, batch.size)), np.zeros((batch.count, batch.size))
    present[:, batch.inside], times[:, batch.inside] = inner, inner_s
    present[:, ~batch.inside], times[:, ~batch.inside] = outer, outer_s
    return _Means(rate, batch.clients / rate - batch.think, present, times, waiting)


def _open(batch: _Batch, slower: Array) -> _Means:
    """Each centre alone with its own arrivals; the number present by bisection, because batches make work cheaper."""
    rate = batch.rates[:, None]
    low = np.full((batch.count, batch.size), np.log(1e-9))
    high = np.full((batch.count, batch.size), np.log(_PRESENT_MAX))

    def visit_s(present: Array) -> Array:
        return (
            batch.batched + (batch.alone - batch.batched) * (1 + present / batch.queues) ** -batch.power
        ) * slower

    for _ in range(_SEARCHES):
        middle = (low + high) / 2
        load = rate * batch.visits * visit_s(np.exp(middle)) / batch.queues
        with np.errstate(divide="ignore", over="ignore"):
            need = np.log(batch.own * batch.queues * load / np.maximum(1 - load, 1e-300))
            need = np.where(load < 1, need, np.inf)
        more = need > middle
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    present = np.exp(high)
    times = visit_s(present)
    residence = times * (batch.own * batch.counted + present / batch.queues)
    response = batch.delay + (batch.visits * batch.fan * residence).sum(axis=1)
    return _Means(batch.rates, response, present, times, np.zeros(batch.count))
