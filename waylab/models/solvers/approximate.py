"""Approximate mean-value analysis of closed networks with many customers and chains, in three forms.

They differ in the queue length that an arriving customer finds. Knows no forks, pools or priorities.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import ModelError
from waylab.models.features import require
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.products import Demands, Steady, demands, result

Array = NDArray[np.float64]
_HANDLES = {
    "closed",
    "several chains",
    "several classes",
    "class switching",
    "delay",
    "several servers",
    "class-dependent service",
}
_TOLERANCE = 1e-10
_ROUNDS_MAX = 20_000
# Number of previous steps in the next guess (Anderson acceleration).
_MEMORY = 5
# How often the differences enter the next solution; one more changes the fourth digit.
_CORRECTIONS = 3
# A utilisation above 1 by more than this gets a note.
_OVERLOAD = 1e-6

_NOTE_SERVERS = "m servers: one server that is m times faster, and a delay (Seidmann)"
_NOTE_CLASSES = "first come first served with uneven service: a customer waits for the services it finds"


def solve_schweitzer(network: Network) -> Result:
    """Solve a closed network by Bard and Schweitzer's approximation: removing one customer removes the share 1/N.

    Assumes that a customer of chain r finds Q_k - Q_kr / N_r at station k. Stations: delays, processor sharing, and
    first come first served; there service times may differ by class (a customer waits for the services that it finds).
    Several servers by Seidmann's transformation: m servers of service time S are one of S / m and a delay of
    S (m-1) / m. Damped; stops when ln X changes by less than 1e-10.
    Error against 400 exact solutions (networks of test_approximate.py, seed 20): single servers at most 18.2 % in
    throughput and 22.3 % in response, 3.1 % and 4.0 % on average; with 1 to 4 servers 25.3 % and 33.8 %.
    Sources: Schweitzer, Approximate analysis of multiclass closed networks of queues (1979); Bard (1979); Seidmann,
    Schweitzer and Shalev-Oren, Computerized closed queueing network models of flexible manufacturing systems (1987).

    Raises:
        AssumptionError: for open classes, rates, priorities, finite rooms, bulk or general service, forks, pools.
        ModelError: when it does not converge in 20 000 rounds.
    """
    model = _Model.of(network, "schweitzer", _HANDLES)
    return model.result("schweitzer", _settled(model, model.populations, _proportional))


def solve_linearizer(network: Network, within_capacity: bool = False) -> Result:
    """Solve a closed network by the Linearizer: the shares Q_kr / N_r change linearly as a customer is removed.

    As `solve_schweitzer`, but a customer of chain r finds the sum over s of (N_s - [r = s]) (Q_ks / N_s + D_ksr), with
    D_ksr the change of chain s's share at station k when chain r has one customer less, from solutions with these
    populations. D starts at 0 and is corrected three times, in the form of de Souza e Silva and Muntz, which needs only
    the sums over s. A negative sum counts as 0. Near saturation the published algorithm can give a utilisation
    slightly above 1, which gets a note. With `within_capacity`, arrivals find more customers there, so that the
    utilisation stays at 1.
    Error against 400 exact solutions (networks of test_approximate.py, seed 20): single servers at most 1.1 % in
    throughput and 1.4 % in response, 0.2 % and 0.3 % on average; with 1 to 4 servers 14.6 % and 19.5 %.
    Sources: Chandy and Neuse, Linearizer: a heuristic algorithm for queueing network models of computing systems, Comm.
    ACM 25 (1982); de Souza e Silva and Muntz, A note on the computational cost of the Linearizer algorithm for queueing
    networks, IEEE Trans. Computers 39 (1990).

    Raises:
        AssumptionError: for open classes, rates, priorities, finite rooms, bulk or general service, forks, pools.
        ModelError: when a pass does not converge in 20 000 rounds.
    """
    return _corrected(network, "linearizer", _linear, _change_of_shares, within_capacity)


def solve_aql(network: Network, within_capacity: bool = False) -> Result:
    """Solve a closed network by the aggregate queue length: the Linearizer for the sum over all chains.

    As `solve_schweitzer`, but a customer of chain r finds (N - 1) (Q_k / N + G_kr), with N all customers, Q_k all those
    at station k and G_kr the change of Q_k / N when chain r has one customer less. It costs less than the Linearizer
    and is nearly as accurate. G starts at 0 and is corrected three times: corrected until convergence, as published, it
    is no better, and in some networks near saturation it does not converge. Chains are not distinguished, so service
    times at first-come-first-served stations must be equal. `within_capacity` as in `solve_linearizer`. Error against
    400 exact solutions (networks of test_approximate.py, seed 20): single servers at most 1.6 % in throughput and 2.1 %
    in response, 0.3 % and 0.3 % on average; with 1 to 4 servers 14.7 % and 19.2 %. Source: Zahorjan, Eager and
    Sweillam, Accuracy, speed, and convergence of approximate mean value analysis, Performance Evaluation 8 (1988).

    Raises:
        AssumptionError: for open classes, rates, priorities, finite rooms, bulk or general service, forks, pools.
        ModelError: when it does not converge in 20 000 rounds.
    """
    return _corrected(network, "aql", _aggregate, _change_of_totals, within_capacity)


def _corrected(
    network: Network,
    solver: str,
    guess: Callable[[Array], "_Guess"],
    change_of: Callable[["_Model", "_Point", list["_Point"]], Array],
    within_capacity: bool,
) -> Result:
    """Solve with all customers and with one fewer of each chain; the differences enter the next solution."""
    kept_apart = {"class-dependent service"} if guess is _linear else set()
    model = _Model.of(network, solver, (_HANDLES - {"class-dependent service"}) | kept_apart)
    chains = range(len(model.populations))
    whole = _settled(model, model.populations, _proportional)
    fewer = [_settled(model, model.less(chain), _proportional) for chain in chains]
    for number in range(_CORRECTIONS):
        found = guess(change_of(model, whole, fewer))
        whole = _settled(model, model.populations, found, whole)
        if number + 1 < _CORRECTIONS:
            fewer = [_settled(model, model.less(chain), found, fewer[chain]) for chain in chains]
    return model.result(solver, _within_capacity(model, whole) if within_capacity else whole)


def _change_of_shares(model: "_Model", whole: "_Point", fewer: list["_Point"]) -> Array:
    """(K, R, R) change of the share of a chain's customers at a station with one fewer of another chain."""
    shares = whole.length / model.populations
    left = [model.less(chain) for chain in range(len(fewer))]
    after = [
        np.divide(point.length, some, out=shares.copy(), where=some > 0)
        for point, some in zip(fewer, left, strict=True)
    ]
    return np.asarray(np.stack(after, axis=2) - shares[:, :, None])


def _change_of_totals(model: "_Model", whole: "_Point", fewer: list["_Point"]) -> Array:
    """(K, R) change of the share of all customers at a station with one fewer of a chain."""
    total = model.populations.sum()
    if total == 1:
        return np.zeros_like(whole.length)
    after = np.array([point.length.sum(axis=1) for point in fewer]).T / (total - 1)
    return np.asarray(after - whole.length.sum(axis=1, keepdims=True) / total)


@dataclass(frozen=True, eq=False)
class _Point:
    """A fixed point. `length` is in customers, or in seconds of their service."""

    throughput_per_s: Array
    """(R,)"""
    length: Array
    """(K, R)"""
    found: Array
    """(K, R) by the chain of the customer that finds it."""


# The lengths that customers of each chain find (K, R), given lengths (K, R) and populations (R,).
_Guess = Callable[[Array, Array], Array]


def _proportional(length: Array, populations: Array) -> Array:
    own = np.divide(length, populations, out=np.zeros_like(length), where=populations > 0)
    return np.asarray(length.sum(axis=1, keepdims=True) - own)


def _linear(change: Array) -> _Guess:
    def found(length: Array, populations: Array) -> Array:
        share = np.divide(length, populations, out=np.zeros_like(length), where=populations > 0)
        # Sum over all chains, minus one customer of the own chain.
        chains = np.arange(len(populations))
        sums = length.sum(axis=1, keepdims=True) + np.einsum("ksr,s->kr", change, populations)
        return np.asarray(np.maximum(sums - share - change[:, chains, chains], 0.0))

    return found


def _aggregate(change: Array) -> _Guess:
    def found(length: Array, populations: Array) -> Array:
        total = populations.sum()
        share = length.sum(axis=1, keepdims=True) / total if total else 0.0
        return np.maximum((total - 1) * (share + change), 0.0) if total else np.zeros_like(change)

    return found


@dataclass(frozen=True, eq=False)
class _Model:
    """A network in numbers (K stations, R chains). A visit takes `alone` and, for each found, `wait` times that.

    Lengths count customers if only their number matters, as with sharing or equal service (`weigh` 1), and otherwise
    seconds of service.
    """

    found: Demands
    populations: Array
    think_s: Array
    """(R,) delays included."""
    alone_s: Array
    """(K, R) per request that finds an empty station."""
    wait: Array
    """(K, R) per request and found unit, in seconds."""
    brings: Array
    """(K, R) contribution of a request to the length, in an empty station, times seconds."""
    brings_wait: Array
    """(K, R) the same per found unit."""
    service_s: Array
    """(K, C) of one visit at the faster server, and the delay after it."""
    delay_s: Array
    each: Array
    """(K, C) time of a visit per found unit."""

    @staticmethod
    def of(network: Network, solver: str, handles: set[str]) -> "_Model":
        """Add up the work of the classes of each chain, and check that the solver can handle the network."""
        require(network, solver, handles)
        found = demands(network)
        servers = np.array([float(station.servers or 1) for station in network.stations])[:, None]
        queues = ~found.delays[:, None]
        service_s = np.where(queues, found.service_s / servers, 0.0)
        delay_s = np.where(queues, found.service_s - service_s, found.service_s)
        visits = found.chain_visits
        in_order = np.array([_waits_for_service(found, index) for index in range(len(network.stations))])[
            :, None
        ]
        weigh = np.where(in_order, service_s, 1.0)
        each = np.where(in_order, 1.0, service_s) * queues
        return _Model(
            found=found,
            populations=np.array(found.populations, dtype=float),
            think_s=found.think_s + np.einsum("rkc,kc->r", visits, delay_s),
            alone_s=np.einsum("rkc,kc->kr", visits, service_s),
            wait=np.einsum("rkc,kc->kr", visits, each),
            brings=np.einsum("rkc,kc->kr", visits, weigh * service_s),
            brings_wait=np.einsum("rkc,kc->kr", visits, weigh * each),
            service_s=service_s,
            delay_s=delay_s,
            each=each,
        )

    def less(self, chain: int) -> Array:
        """Populations with one customer fewer of a chain."""
        return np.asarray(self.populations - (np.arange(len(self.populations)) == chain))

    def throughput_per_s(self, populations: Array, found: Array) -> Array:
        """(R,) by Little's law over the cycle of each chain."""
        return np.asarray(populations / (self.think_s + (self.alone_s + self.wait * found).sum(axis=0)))

    def result(self, method: str, point: _Point) -> Result:
        """Spread over classes."""
        network, chains = self.found.network, self.found.chains
        of_class = np.zeros(len(network.classes), dtype=int)
        for index, chain in enumerate(chains):
            of_class[list(chain.classes)] = index
        waits_s = self.each * point.found[:, of_class]
        flow = np.einsum("r,rkc->kc", point.throughput_per_s, self.found.chain_visits)
        starts = point.throughput_per_s @ self.found.shares
        steady = Steady(starts, flow, flow * (self.service_s + self.delay_s + waits_s), flow * waits_s)
        notes = [_NOTE_SERVERS] if any((station.servers or 1) > 1 for station in network.stations) else []
        if any(_waits_for_service(self.found, index) for index in range(len(network.stations))):
            notes.append(_NOTE_CLASSES)
        busy = self.alone_s @ point.throughput_per_s
        if busy.max(initial=0.0) > 1 + _OVERLOAD:
            name = network.station_names[int(np.argmax(busy))]
            notes.append(
                f"station {name!r} comes out {busy.max():.2%} busy, an error of the approximation near saturation"
            )
        return replace(result(self.found, method, steady), kind="approximation", notes=tuple(notes))


def _waits_for_service(found: Demands, index: int) -> bool:
    """Whether a station serves in order of arrival, with different service times."""
    station = found.network.stations[index]
    means = {time.mean_s for time in station.service.values()}
    return station.discipline == "fcfs" and not station.is_delay and len(means) > 1


def _within_capacity(model: _Model, point: _Point) -> _Point:
    """Increase the length found at stations whose utilisation would exceed 1."""
    found, throughput = point.found.copy(), point.throughput_per_s
    for _ in range(_ROUNDS_MAX):
        busy = model.alone_s @ throughput
        worst = int(np.argmax(busy))
        if busy[worst] <= 1 + _TOLERANCE:
            return _Point(throughput, throughput * (model.brings + model.brings_wait * found), found)
        # If all chains find more customers, X falls like 1 / more; the chains of the station need at least this much.
        more = (busy[worst] - 1) / (
            model.alone_s[worst] * model.wait[worst] * throughput**2 / model.populations
        ).sum()
        found[worst] += more
        throughput = model.throughput_per_s(model.populations, found)
    raise ModelError("approximation", f"did not converge in {_ROUNDS_MAX} rounds")


def _settled(model: _Model, populations: Array, guess: _Guess, start: _Point | None = None) -> _Point:
    """The fixed point of queue lengths, lengths found by arrivals, and throughput."""
    present = populations > 0
    if not present.any():
        empty = np.zeros_like(model.wait)
        return _Point(np.zeros(len(populations)), empty, empty)
    length = start.length if start else _spread(model, populations)
    steps: list[tuple[Array, Array]] = []
    before = np.ones(len(populations))
    for _ in range(_ROUNDS_MAX):
        found = guess(length, populations)
        throughput = model.throughput_per_s(populations, found)
        image = throughput * (model.brings + model.brings_wait * found)
        with_customers = np.abs(np.log(throughput[present] / before[present])).max()
        moved = np.abs(image - length).max()
        if with_customers < _TOLERANCE and moved <= _TOLERANCE * image.max():
            return _Point(throughput, image, found)
        before = throughput
        steps = [*steps[-_MEMORY:], (length, image)]
        length = _next(steps)
    raise ModelError("approximation", f"did not converge in {_ROUNDS_MAX} rounds")


def _spread(model: _Model, populations: Array) -> Array:
    """The start: customers are spread evenly over the stations."""
    used = model.alone_s > 0
    share = np.divide(model.brings, model.alone_s, out=np.zeros_like(model.brings), where=used)
    return np.asarray(share * populations / np.maximum(used.sum(axis=0), 1))


def _next(steps: list[tuple[Array, Array]]) -> Array:
    """A damped step, or an extrapolation if the previous steps agree with it (Anderson acceleration)."""
    length, image = steps[-1]
    plain = (length + image) / 2
    if len(steps) < 2:
        return np.asarray(plain)
    gaps = np.array([(after - at).ravel() for at, after in steps])
    images = np.array([after.ravel() for _, after in steps])
    weights = np.linalg.lstsq(np.diff(gaps, axis=0).T, gaps[-1], rcond=1e-12)[0]
    line = (images[-1] - weights @ np.diff(images, axis=0)).reshape(length.shape)
    worse = np.abs(gaps[-1]).max() > np.abs(gaps[-2]).max()
    if worse or not np.isfinite(line).all() or (line < 0).any():
        return np.asarray(plain)
    return np.asarray(line)
