"""Proposals for capacity, compared with measurements of the proposed configurations and of the next cheaper ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from waylab.errors import LabError
from waylab.fit.observations import ModelSettings, TrialObservation, pooled, usable
from waylab.predict.runs.capacity import CapacityGoal, CapacityOption, UnreachableGoalError, search_capacity
from waylab.predict.runs.chosen import FittedChosen


@dataclass(frozen=True)
class CapacityScenario:
    """A load, a goal and the proposal. Times in seconds; `None` where nothing is proposed or nothing is cheaper."""

    load: ModelSettings
    goal: CapacityGoal
    proposed: CapacityOption | None
    measured_s: float | None
    cheaper: ModelSettings | None
    cheaper_measured_s: float | None
    # Whether any measured configuration meets the goal.
    possible: bool
    # Why nothing is proposed.
    reason: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether the proposed configuration met the goal."""
        return None if self.measured_s is None else self.measured_s < self.goal.limit_s

    @property
    def needed(self) -> bool | None:
        """Whether the next cheaper configuration missed the goal, so that the proposed one was needed."""
        return None if self.cheaper_measured_s is None else self.cheaper_measured_s >= self.goal.limit_s


def judge_capacity(
    fitted: FittedChosen,
    observations: Sequence[TrialObservation],
    goals: Sequence[CapacityGoal],
    costs: Mapping[str, float],
) -> list[CapacityScenario]:
    """One scenario for each load that was measured with several counts of the parts that have a cost, and each goal.

    Only measured configurations are proposed.

    Raises:
        LabError: when no load was measured with two counts, or a goal's percentile was not measured.
    """
    groups: dict[ModelSettings, dict[ModelSettings, TrialObservation]] = {}
    for one in pooled(usable(observations)):
        load = replace(one.settings, **dict.fromkeys(costs, 1))  # type: ignore[arg-type]
        groups.setdefault(load, {})[one.settings] = one
    groups = {load: found for load, found in groups.items() if len(found) > 1}
    if not groups:
        raise LabError(
            f"no load was measured with two counts of {', '.join(costs)}; vary one of them in the measured run"
        )
    return [_scenario(fitted, load, groups[load], goal, costs) for load in sorted(groups) for goal in goals]


def _scenario(
    fitted: FittedChosen,
    load: ModelSettings,
    measured: Mapping[ModelSettings, TrialObservation],
    goal: CapacityGoal,
    costs: Mapping[str, float],
) -> CapacityScenario:
    times = {one: _time_s(found, goal) for one, found in measured.items()}
    possible = any(time_s < goal.limit_s for time_s in times.values())
    try:
        good, cheaper = search_capacity(fitted, load, goal, costs, [*measured])
    except UnreachableGoalError as error:
        return CapacityScenario(load, goal, None, None, None, None, possible, str(error))
    # Among equal costs, the most probable one: a user who wants to save would choose it.
    near = max(cheaper, key=lambda one: (one.cost, one.probability), default=None)
    return CapacityScenario(
        load,
        goal,
        good[0],
        times[good[0].settings],
        near.settings if near else None,
        times[near.settings] if near else None,
        possible,
    )


def _time_s(one: TrialObservation, goal: CapacityGoal) -> float:
    if goal.share == "mean":
        return one.response_s
    found = one.percentiles_s.get("all", {}).get(goal.share)
    if found is None:
        raise LabError(f"{one.run}, {one.configuration}: has no {goal.share}th percentile to compare with")
    return found
