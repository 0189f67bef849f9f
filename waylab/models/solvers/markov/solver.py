"""Solves the Markov chain of all states of a small network exactly, as the reference for approximations.

Turns states into means; `markov.moves` has the transitions, `markov.chain` the equations.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import AssumptionError
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.solvers.markov.chain import stationary
from waylab.models.solvers.markov.moves import beginning, in_service, moves
from waylab.models.solvers.markov.plan import SOLVER, MarkovPlan, make_plan
from waylab.models.solvers.markov.scene import UNAWAITED, WHOLE, Blocked, Group, MarkovState

Array = NDArray[np.float64]
STATES_MAX = 300_000
# The number of legs that no request waits for has no bound; states with more are left out if they are rare.
UNAWAITED_MAX = 24
_LEFT_OUT_MAX = 1e-6


def solve_markov(
    network: Network, states_max: int = STATES_MAX, unawaited_max: int = UNAWAITED_MAX
) -> Result:
    """Solve a network exactly, from the chain of all its states.

    Assumes exponential service, think and interarrival times. First-come-first-served queues keep their order, so
    service times may differ by class. With visits alone a request takes the nodes in their order, each floor(v)
    times in a row and once more with probability v - floor(v). A request that is lost at a full station is over.
    With `block` it stays on its server until there is room, or outside if it has no server (blocking after service).
    A request acquires a slot before the first station inside and releases it when it leaves for a place outside. Legs
    that no request waits for are still served; states with more than `unawaited_max` of them are left out, and the
    network is refused if they take more than 1e-6 of the time. With `rates`, a queue in order of arrival serves its
    first request at the whole speed. The response time includes the time of lost requests.
    The state space is explored from the empty network; pi Q = 0 is solved sparsely, directly up to 20 000 states.
    Source: Stewart, Introduction to the Numerical Solution of Markov Chains (1994), chapters 2 and 10.

    Raises:
        AssumptionError: for times that are not exponential, legs sent apart, unlimited numbers of requests or legs, or
            more than `states_max` states.
        ModelError: when the network can deadlock, or a request takes no time at all.
    """
    plan = make_plan(network)
    states, flows, events = _explore(plan, states_max, unawaited_max)
    origins, targets, rates = (np.array(part) for part in zip(*flows, strict=True)) if flows else _nothing()
    probabilities = stationary(origins.astype(np.int64), targets.astype(np.int64), rates, len(states))
    _check_left_out(plan, states, probabilities, unawaited_max)
    return _Measures(plan, states, probabilities, events).result()


Flow = tuple[int, int, float]
Happening = tuple[int, float, str, int, int]


def _explore(
    plan: MarkovPlan, states_max: int, unawaited_max: int
) -> tuple[Sequence[MarkovState], list[Flow], list[Happening]]:
    """All states, the rates between them, and the completions of each transition."""
    states = [beginning(plan)]
    numbers = {states[0]: 0}
    flows: list[Flow] = []
    events: list[Happening] = []
    bounded = _all_awaited(plan)
    for origin, state in enumerate(states):
        for move in moves(plan, state):
            if not bounded and _unawaited(move.state) > unawaited_max:
                continue
            number = numbers.setdefault(move.state, len(states))
            if number == len(states):
                states.append(move.state)
                if number == states_max:
                    raise AssumptionError(SOLVER, f"at most {states_max} states", "this network has more")
            flows.append((origin, number, move.per_s))
            events += [(origin, move.per_s, *event) for event in move.events]
    return states, flows, events


def _all_awaited(plan: MarkovPlan) -> bool:
    return all(needed == len(legs) for needed, legs in zip(plan.needed, plan.branches, strict=True))


def _unawaited(state: MarkovState) -> int:
    groups = [*itertools.chain.from_iterable(state.serving), *state.line, *(line for _, line in state.slots)]
    return sum(token.forked == UNAWAITED for group in groups for token in group)


def _check_left_out(
    plan: MarkovPlan, states: Sequence[MarkovState], probabilities: Array, unawaited_max: int
) -> None:
    if _all_awaited(plan):
        return
    last = [index for index, state in enumerate(states) if _unawaited(state) == unawaited_max]
    if probabilities[last].sum() > _LEFT_OUT_MAX:
        fact = f"there are more than {unawaited_max} for {probabilities[last].sum():.1e} of the time"
        raise AssumptionError(SOLVER, "that legs which no request waits for do not accumulate", fact)


def _nothing() -> tuple[Array, Array, Array]:
    return np.zeros(0), np.zeros(0), np.zeros(0)


class _Measures:
    """Long-run means, summed over all states."""

    def __init__(
        self, plan: MarkovPlan, states: Sequence[MarkovState], probabilities: Array, events: list[Happening]
    ) -> None:
        network = plan.network
        self.plan = plan
        shape = (len(network.stations), len(network.classes))
        self.present, self.in_line, self.busy, self.served = (np.zeros(shape) for _ in range(4))
        self.inside = np.zeros(shape[1])
        self.joining = np.zeros((len(network.forks), shape[1]))
        self.waiting = np.zeros((len(network.pools), shape[1]))
        self.busy_slots = np.zeros(len(network.pools))
        self.distribution: list[dict[int, float]] = [{} for _ in network.stations]
        # The state of one station recurs in many states of the network; each is evaluated once, with its total weight.
        looks: dict[tuple[int, tuple[Group, ...], Group, tuple[Blocked, ...]], float] = {}
        for state, probability in zip(states, probabilities.tolist(), strict=True):
            if probability > 0:
                for node, (serving, line) in enumerate(zip(state.serving, state.line, strict=True)):
                    blocked = tuple(one for one in state.blocked if one.node == node) if state.blocked else ()
                    look = (node, serving, line, blocked)
                    looks[look] = looks.get(look, 0.0) + probability
                self._add_elsewhere(state, probability)
        for look, weight in looks.items():
            self._add_station(*look, weight)
        self.rates = {
            "finished": np.zeros((shape[1], shape[1])),
            "lost": np.zeros((shape[1], shape[1])),
            "joined": np.zeros(self.joining.shape),
            "granted": np.zeros(self.waiting.shape),
            "passed": np.zeros(shape),
        }
        for origin, per_s, kind, place, job_class in events:
            self.rates[kind][place, job_class] += probabilities[origin] * per_s

    def _add_station(
        self, node: int, serving: tuple[Group, ...], line: Group, blocked: tuple[Blocked, ...], weight: float
    ) -> None:
        place = self.plan.places[node]
        queued = [token for group in serving for token in group] + list(line)
        for job_class in [token.job_class for token in queued] + [one.job_class for one in blocked]:
            self.present[node, job_class] += weight
        for token in line:
            self.in_line[node, token.job_class] += weight
        for token in queued + [one.token for one in blocked]:
            if token.forked == WHOLE:
                self.inside[token.begin] += weight
        present = len(queued) + len(blocked)
        self.distribution[node][present] = self.distribution[node].get(present, 0.0) + weight
        finishing = in_service(self.plan, node, serving, len(line))
        speeds = sum(per_s / place.services_per_s[group[0].job_class] for group, per_s in finishing.items())
        for group, per_s in finishing.items():
            for token in group:
                self.served[node, token.job_class] += weight * per_s
                if not place.delay:
                    speed = per_s / place.services_per_s[token.job_class]
                    share = speed / speeds if place.rates else speed / place.servers
                    self.busy[node, token.job_class] += weight * share / len(group)

    def _add_elsewhere(self, state: MarkovState, weight: float) -> None:
        for one in state.blocked:
            if not 0 <= one.node < self.plan.stations:
                self.inside[one.token.begin] += weight
        for token, _ in state.forked:
            self.inside[token.begin] += weight
            self.joining[token.node - self.plan.stations, token.job_class] += weight
        for pool, (busy, line) in enumerate(state.slots):
            self.busy_slots[pool] += weight * busy
            for token in line:
                if token.forked == WHOLE:
                    self.inside[token.begin] += weight
                self.waiting[pool, token.job_class] += weight

    def result(self) -> Result:
        """The means as a result, times by Little's law."""
        network = self.plan.network
        finished = self.rates["finished"].sum(axis=1)
        lost = self.rates["lost"].sum(axis=1)
        visits = self.served + self.rates["passed"]
        response_s = _per(self.present, visits)

        return Result(
            network=network,
            method=SOLVER,
            kind="exact",
            throughput_per_s=finished,
            response_s=_per(self.inside, finished),
            station_throughput_per_s=visits,
            station_response_s=response_s,
            station_waiting_s=self._waiting_s(response_s, visits),
            queue_length=self.present,
            utilisation=self._utilisation(),
            present_probability={
                name: np.array([counts.get(n, 0.0) for n in range(max(counts) + 1)])
                for name, counts in zip(network.station_names, self.distribution, strict=True)
            },
            fork_response_s=_per(self.joining, self.rates["joined"]) if network.forks else None,
            pool_waiting_s=_per(self.waiting, self.rates["granted"]) if network.pools else None,
            pool_busy=self.busy_slots if network.pools else None,
            lost_per_s=lost if lost.any() else None,
        )

    def _utilisation(self) -> Array:
        """Busy share of the servers; with rates, of the time with a request present, divided by the classes' work."""
        busy = self.busy.copy()
        for node, place in enumerate(self.plan.places):
            work = self.served[node] / np.array(place.services_per_s)
            if place.rates and work.sum() > 0:
                busy[node] = busy[node].sum() * work / work.sum()
        return busy

    def _waiting_s(self, response_s: Array, visits: Array) -> Array:
        waiting_s = _per(self.in_line, visits)
        for node, place in enumerate(self.plan.places):
            if place.order == "shared":
                alone_s = 1 / (np.array(place.services_per_s) * place.speed(1))
                waiting_s[node] = np.maximum(response_s[node] - alone_s, 0.0)
        return waiting_s


def _per(amount: Array, rate: Array) -> Array:
    """Little's law: time = number present / rate; NaN without visits."""
    return np.asarray(np.divide(amount, rate, out=np.full(np.shape(amount), np.nan), where=rate > 0))
