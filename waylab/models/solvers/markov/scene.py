"""The state of a small network and its changes. Knows no rates and no probabilities.

A state is a nested tuple of numbers: customers thinking, requests in service and waiting at each station, requests
waiting for slots, blocked requests, and forked requests with their legs. Equivalent states are equal.
"""

from typing import NamedTuple

from waylab.models.solvers.markov.plan import OUTSIDE, MarkovPlan, PathStep

# In place of the number of a forked request: a request that is not forked, and a leg that no request waits for.
WHOLE = -1
UNAWAITED = -2


class Token(NamedTuple):
    """A request or a leg, at a node or moving there; it visits the node `again` more times in a row.

    `begin` is the class in which a request began; of a leg, the fork that it comes from.
    """

    begin: int
    job_class: int
    node: int
    again: int = 0
    forked: int = WHOLE


Group = tuple[Token, ...]


class Blocked(NamedTuple):
    """A blocked request: its place and class, and its next step."""

    node: int
    job_class: int
    token: Token


class MarkovState(NamedTuple):
    """A state in canonical form. `serving` has the groups that are served together.

    At preemptive stations their order is that of their start; elsewhere it has no meaning.
    """

    thinking: tuple[int, ...]
    serving: tuple[tuple[Group, ...], ...]
    line: tuple[Group, ...]
    """Waiting requests, in the order of service."""
    slots: tuple[tuple[int, Group], ...]
    """By pool: the number of busy slots, and the waiting requests."""
    blocked: tuple[Blocked, ...]
    """Longest blocked first."""
    forked: tuple[tuple[Token, int], ...]
    """Forked requests, with the number of legs that each still needs."""


class Action(NamedTuple):
    """A pending change at this instant: `begin`, `leave`, `rest`, `admit` or `refill`."""

    kind: str
    origin: int
    token: Token


class Scene:
    """A state during its change. `events` are the completions: a kind, a place and a class."""

    def __init__(self, plan: MarkovPlan, state: MarkovState) -> None:
        self.plan = plan
        self.agenda: list[Action] = []
        self.events: list[tuple[str, int, int]] = []
        self.thinking = list(state.thinking)
        self.serving = list(state.serving)
        self.line = list(state.line)
        self.busy_slots = [busy for busy, _ in state.slots]
        self.waiting = [line for _, line in state.slots]
        self.blocked = list(state.blocked)
        self.forked = dict(enumerate(state.forked))

    def copy(self) -> "Scene":
        """An independent copy."""
        other = object.__new__(Scene)
        other.plan = self.plan
        for name in ("agenda", "events", "thinking", "serving", "line", "busy_slots", "waiting", "blocked"):
            setattr(other, name, list(getattr(self, name)))
        other.forked = dict(self.forked)
        return other

    def complete(self, node: int, group: Group) -> None:
        """A service ends: the group leaves the server."""
        index = self.serving[node].index(group)
        self.serving[node] = self.serving[node][:index] + self.serving[node][index + 1 :]
        for token in group:
            if token.forked == WHOLE:
                self.agenda.append(Action("leave", node, token))
            else:
                self._leg_done(token)
        self.agenda.append(Action("refill", node, group[0]))

    def choices(self, action: Action) -> tuple[PathStep, ...]:
        """The random continuations of an action; empty if there are none."""
        token = action.token
        if action.kind == "begin":
            return self.plan.begins[token.begin]
        if action.kind == "rest":
            return self.plan.comes_back[token.job_class]
        if token.again:
            return (PathStep(1.0, token.node, token.job_class, token.again - 1),)
        return self.plan.steps[token.job_class, token.node]

    def follow(self, action: Action, step: PathStep) -> None:
        """Continue an action with one of its steps."""
        begin = action.token.begin
        if action.kind == "rest":
            if self.plan.network.classes[step.job_class].think.mean_s > 0:
                self.thinking[step.job_class] += 1
            else:
                fresh = Token(step.job_class, step.job_class, OUTSIDE)
                self.agenda.append(Action("begin", OUTSIDE, fresh))
            return
        token = Token(begin, step.job_class, step.node, step.again)
        if step.node == OUTSIDE:
            self._release(self._pool(action.origin))
            self._end("finished", token)
            return
        pool, before = self._pool(step.node), self._pool(action.origin)
        if pool in (OUTSIDE, before) or self._take(pool, token):
            self.admit(action, token)
        else:
            self._release(before)

    def admit(self, action: Action, token: Token) -> None:
        """Admit a request that has its slots; if there is no room, lose or block it."""
        node = token.node
        if token.forked != WHOLE:
            self._enter(token)
        elif node == action.origin or self._has_room(node, newcomer=True):
            self._move_in(action.origin, token)
        elif self.plan.places[node].blocks:
            self.blocked.append(Blocked(action.origin, action.token.job_class, token))
        else:
            pool, before = self._pool(node), self._pool(action.origin)
            self._release(pool)
            if before != pool:
                self._release(before)
            self._end("lost", token)

    def refill(self, node: int) -> None:
        """Start services while servers are free."""
        place = self.plan.places[node]
        if place.order == "shared":
            return
        busy = len(self.serving[node]) + sum(one.node == node for one in self.blocked)
        while self.line[node] and busy < place.servers:
            self.serving[node] += (self.line[node][: place.batch],)
            self.line[node] = self.line[node][place.batch :]
            busy += 1

    def unblock(self) -> bool:
        """Admit the request that has been blocked longest, among those with room now."""
        for index, (node, _, token) in enumerate(self.blocked):
            if self._has_room(token.node, newcomer=False):
                del self.blocked[index]
                self._move_in(node, token)
                if 0 <= node < self.plan.stations:
                    self.refill(node)
                return True
        return False

    def frozen(self) -> MarkovState:
        """The state in canonical form: forked requests are numbered by the places of their legs."""
        serving: list[tuple[Group, ...]] = self.serving
        line, waiting = self.line, self.waiting
        forked = tuple(self.forked.values())
        if self.forked:
            numbers = self._numbers()
            serving = [tuple(_renumbered(group, numbers) for group in groups) for groups in serving]
            line = [_renumbered(group, numbers) for group in line]
            waiting = [_renumbered(group, numbers) for group in waiting]
            forked = tuple(self.forked[label] for label in numbers)
        return MarkovState(
            tuple(self.thinking),
            tuple(
                groups if len(groups) < 2 or place.order == "preemptive" else tuple(sorted(groups))
                for place, groups in zip(self.plan.places, serving, strict=True)
            ),
            tuple(line),
            tuple(zip(self.busy_slots, waiting, strict=True)),
            tuple(self.blocked),
            forked,
        )

    def _numbers(self) -> dict[int, int]:
        """New numbers for forked requests. Requests whose legs are at the same places are interchangeable."""
        stands: dict[int, list[tuple[int, int]]] = {label: [] for label in self.forked}
        for node, groups in enumerate(self.serving):
            ordered = self.plan.places[node].order == "preemptive"
            for index, group in enumerate(groups):
                for token in group:
                    if token.forked >= 0:
                        stands[token.forked].append((node, -1 - index * ordered))
        for place, line in enumerate(self.line + self.waiting):
            for index, token in enumerate(line):
                if token.forked >= 0:
                    stands[token.forked].append((place, index))
        order = sorted(self.forked, key=lambda label: (self.forked[label], stands[label]))
        return {label: number for number, label in enumerate(order)}

    def _pool(self, node: int) -> int:
        return OUTSIDE if node == OUTSIDE else self.plan.pool_of[node]

    def _has_room(self, node: int, newcomer: bool) -> bool:
        """Whether there is room; a newcomer does not overtake blocked requests."""
        if node >= self.plan.stations:
            return True
        if newcomer and any(one.token.node == node for one in self.blocked):
            return False
        present = len(self.line[node]) + sum(one.node == node for one in self.blocked)
        return present + sum(len(group) for group in self.serving[node]) < self.plan.places[node].capacity

    def _move_in(self, origin: int, token: Token) -> None:
        before = self._pool(origin)
        if before != self._pool(token.node):
            self._release(before)
        if token.node < self.plan.stations:
            self._enter(token)
        else:
            self._fork(token)

    def _enter(self, token: Token) -> None:
        node = token.node
        place = self.plan.places[node]
        if place.services_per_s[token.job_class] == float("inf"):
            self.events.append(("passed", node, token.job_class))
            if token.forked == WHOLE:
                self.agenda.append(Action("leave", node, token))
            else:
                self._leg_done(token)
        elif place.order == "shared":
            self.serving[node] += ((token,),)
        elif place.order == "preemptive" and self._makes_way(token):
            self.serving[node] += ((token,),)
        else:
            self._line_up(token, last=True)
            self.refill(node)

    def _makes_way(self, token: Token) -> bool:
        """Interrupt the last started request of the lowest priority, if that is below the newcomer's."""
        node, place = token.node, self.plan.places[token.node]
        busy = len(self.serving[node]) + sum(one.node == node for one in self.blocked)
        if busy < place.servers or not self.serving[node]:
            return False
        levels = [place.priority[group[0].job_class] for group in self.serving[node]]
        lowest = max(levels)
        if lowest <= place.priority[token.job_class]:
            return False
        index = max(number for number, level in enumerate(levels) if level == lowest)
        victim = self.serving[node][index][0]
        self.serving[node] = self.serving[node][:index] + self.serving[node][index + 1 :]
        self._line_up(victim, last=False)
        return True

    def _line_up(self, token: Token, last: bool) -> None:
        """Queue a request at the end or at the head of its own priority."""
        line, place = self.line[token.node], self.plan.places[token.node]
        cut = len(line)
        if place.order != "fcfs":
            own = place.priority[token.job_class] + (0.5 if last else -0.5)
            cut = sum(place.priority[other.job_class] < own for other in line)
        self.line[token.node] = (*line[:cut], token, *line[cut:])

    def _fork(self, token: Token) -> None:
        index = token.node - self.plan.stations
        label = max(self.forked, default=-1) + 1
        self.forked[label] = (token, self.plan.needed[index])
        for branch in self.plan.branches[index]:
            leg = Token(token.node, token.job_class, branch, 0, label)
            pool = self._pool_of_leg(leg)
            if pool == OUTSIDE or self._take(pool, leg):
                self._enter(leg)

    def _pool_of_leg(self, leg: Token) -> int:
        """A leg needs a slot of its own, unless its request occupies one of the same pool."""
        pool = self._pool(leg.node)
        return OUTSIDE if pool == self._pool(leg.begin) else pool

    def _take(self, pool: int, token: Token) -> bool:
        """Acquire a slot, or wait for one."""
        if self.busy_slots[pool] >= self.plan.slots[pool]:
            self.waiting[pool] += (token,)
            return False
        self.busy_slots[pool] += 1
        self.events.append(("granted", pool, token.job_class))
        return True

    def _leg_done(self, leg: Token) -> None:
        self._release(self._pool_of_leg(leg))
        if leg.forked == UNAWAITED:
            return
        token, needed = self.forked[leg.forked]
        self.forked[leg.forked] = (token, needed - 1)
        if needed > 1:
            return
        del self.forked[leg.forked]
        numbers = {leg.forked: UNAWAITED}
        for branch in self.plan.branches[token.node - self.plan.stations]:
            self.line[branch] = _renumbered(self.line[branch], numbers)
            self.serving[branch] = tuple(_renumbered(group, numbers) for group in self.serving[branch])
        self.waiting = [_renumbered(group, numbers) for group in self.waiting]
        self.events.append(("joined", token.node - self.plan.stations, token.job_class))
        self.agenda.append(Action("leave", token.node, token))

    def _release(self, pool: int) -> None:
        """Release a slot; the request that has waited longest acquires it."""
        if pool == OUTSIDE:
            return
        if self.waiting[pool]:
            token = self.waiting[pool][0]
            self.waiting[pool] = self.waiting[pool][1:]
            self.events.append(("granted", pool, token.job_class))
            self.agenda.append(Action("admit", OUTSIDE, token))
        else:
            self.busy_slots[pool] -= 1

    def _end(self, event: str, token: Token) -> None:
        self.events.append((event, token.begin, token.job_class))
        if self.plan.comes_back[token.job_class]:
            self.agenda.append(Action("rest", OUTSIDE, token))


def _renumbered(group: Group, numbers: dict[int, int]) -> Group:
    if all(token.forked not in numbers for token in group):
        return group
    return tuple(
        token._replace(forked=numbers[token.forked]) if token.forked in numbers else token for token in group
    )
