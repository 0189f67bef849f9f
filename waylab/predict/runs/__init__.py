"""Predictions from run folders: the choice among models, intervals, and held-out configurations."""

from waylab.predict.runs.capacity import CapacityGoal, CapacityPlan, plan_capacity
from waylab.predict.runs.capacity_judge import CapacityScenario, judge_capacity
from waylab.predict.runs.chosen import CHOSEN, FittedChosen, fit_runs
from waylab.predict.runs.explain import Explanation, explain_run
from waylab.predict.runs.judge import JudgedConfiguration, judge_runs

__all__ = [
    "CHOSEN",
    "CapacityGoal",
    "CapacityPlan",
    "CapacityScenario",
    "Explanation",
    "FittedChosen",
    "JudgedConfiguration",
    "explain_run",
    "fit_runs",
    "judge_capacity",
    "judge_runs",
    "plan_capacity",
]
