"""The transitions from a state of a small network, and their rates. Knows no linear algebra."""

from collections.abc import Iterator
from typing import NamedTuple

from waylab.models.errors import ModelError
from waylab.models.solvers.markov.plan import OUTSIDE, MarkovPlan
from waylab.models.solvers.markov.scene import Action, Group, MarkovState, Scene, Token

# After this many changes without time passing, a request circulates forever.
_CHANGES_MAX = 20_000


class Move(NamedTuple):
    """One transition; `events` are its completions: a kind, a place and a class."""

    per_s: float
    state: MarkovState
    events: tuple[tuple[str, int, int], ...]


def moves(plan: MarkovPlan, state: MarkovState) -> Iterator[Move]:
    """All transitions from a state.

    Raises:
        ModelError: when a request circulates without taking any time.
    """
    for index, job_class in enumerate(plan.network.classes):
        thinking = state.thinking[index]
        arrivals_per_s = thinking / job_class.think.mean_s if thinking else job_class.arrivals_per_s
        if arrivals_per_s:
            scene = Scene(plan, state)
            if thinking:
                scene.thinking[index] -= 1
            scene.agenda.append(Action("begin", OUTSIDE, Token(index, index, OUTSIDE)))
            yield from _resolve(scene, arrivals_per_s)
    for node in range(plan.stations):
        if not state.serving[node]:
            continue
        for group, per_s in in_service(plan, node, state.serving[node], len(state.line[node])).items():
            scene = Scene(plan, state)
            scene.complete(node, group)
            yield from _resolve(scene, per_s)


def in_service(plan: MarkovPlan, node: int, serving: tuple[Group, ...], waiting: int) -> dict[Group, float]:
    """The groups in service at a station, and their completions per second."""
    place = plan.places[node]
    if not serving:
        return {}
    speed = 1.0
    if place.order == "shared":
        speed = place.speed(len(serving)) / len(serving)
    elif place.rates:
        speed = place.speed(waiting + 1)
    found: dict[Group, float] = {}
    for group in serving:
        found[group] = found.get(group, 0.0) + speed * place.services_per_s[group[0].job_class]
    return found


def beginning(plan: MarkovPlan) -> MarkovState:
    """A possible first state: all customers think, or start a request if there is no think time."""
    classes = plan.network.classes
    no_groups: tuple[tuple[()], ...] = ((),) * plan.stations
    thinking = tuple(part.population if part.think.mean_s > 0 else 0 for part in classes)
    scene = Scene(plan, MarkovState(thinking, no_groups, no_groups, ((0, ()),) * len(plan.slots), (), ()))
    for index, job_class in enumerate(classes):
        if not thinking[index]:
            scene.agenda += [Action("begin", OUTSIDE, Token(index, index, OUTSIDE))] * job_class.population
    return next(_resolve(scene, 1.0)).state


def _resolve(scene: Scene, per_s: float) -> Iterator[Move]:
    """Follow everything that happens at the same instant, for every random choice."""
    pending = [(per_s, scene)]
    changes = 0
    while pending:
        weight, scene = pending.pop()
        while scene.agenda or scene.unblock():
            if not scene.agenda:
                continue
            changes += 1
            if changes > _CHANGES_MAX:
                raise ModelError("routes", "a request circulates without taking any time")
            action = scene.agenda.pop(0)
            if action.kind == "refill":
                scene.refill(action.origin)
            elif action.kind == "admit":
                scene.admit(action, action.token)
            else:
                steps = scene.choices(action)
                for step in steps[1:]:
                    other = scene.copy()
                    other.follow(action, step)
                    pending.append((weight * step.probability, other))
                weight *= steps[0].probability
                scene.follow(action, steps[0])
        yield Move(weight, scene.frozen(), tuple(scene.events))
