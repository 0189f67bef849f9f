"""`waylab capacity --measured`: what would have been proposed, beside what was measured."""

import argparse
import json
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from waylab.cli.fit.capacity_words import counts_text, goal_of, goal_text
from waylab.cli.fit.commands import fitted_runs, time_text, wide_console
from waylab.errors import LabError
from waylab.fit.observations import ModelSettings, observe
from waylab.predict.runs import CapacityScenario, judge_capacity


def judge(arguments: argparse.Namespace, costs: Mapping[str, float]) -> int:
    """Print one row for each scenario, and how many proposals met their goal.

    Raises:
        LabError: if nothing can be judged, or for settings that the measured runs have themselves.
    """
    if arguments.set:
        raise LabError("--set: the measured runs have settings of their own; leave it out with --measured")
    goals = [goal_of(part) for part in arguments.until.split(",")]
    measured = observe(arguments.measured)
    scenarios = judge_capacity(fitted_runs(arguments), measured, goals, costs)
    if arguments.json:
        print(json.dumps([_as_dict(one) for one in scenarios], indent=1, allow_nan=False))
        return 0
    names = list(costs)
    console = wide_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (
        "load",
        "goal",
        "proposed",
        "promised",
        "measured",
        "kept",
        "next cheaper",
        "measured",
        "failed",
    ):
        table.add_column(heading, justify="right" if heading in ("promised", "measured") else "left")
    for one in scenarios:
        table.add_row(
            _load_text(one.load),
            goal_text(one.goal),
            counts_text(one.proposed.settings, names) if one.proposed else "none",
            f"{100 * one.proposed.probability:.0f} %" if one.proposed else "",
            "" if one.measured_s is None else time_text(one.measured_s),
            _word(one.kept),
            counts_text(one.cheaper, names) if one.cheaper else "",
            "" if one.cheaper_measured_s is None else time_text(one.cheaper_measured_s),
            _word(one.needed),
        )
    console.print(table)
    for text in summary(scenarios):
        console.print(text, soft_wrap=True)
    return 0


def summary(scenarios: Sequence[CapacityScenario]) -> list[str]:
    """How many proposals met their goal, how many cheaper configurations missed it, and where nothing was proposed."""
    proposed = [one.proposed for one in scenarios if one.proposed]
    kept = [one.kept for one in scenarios if one.kept is not None]
    needed = [one.needed for one in scenarios if one.needed is not None]
    found = []
    if kept:
        promised = 100 * sum(one.probability for one in proposed) / len(proposed)
        found.append(
            f"{sum(kept)} of {len(kept)} proposed configurations met the goal (promised: {promised:.0f} % on average)"
        )
    if needed:
        found.append(f"{sum(needed)} of {len(needed)} next cheaper configurations missed it")
    without = [one.possible for one in scenarios if one.proposed is None]
    if without:
        found.append(
            f"nothing was proposed in {len(without)} scenarios; in {sum(without)} of them a measured configuration "
            "meets the goal"
        )
    return found


def _word(answer: bool | None) -> str:
    return "" if answer is None else "yes" if answer else "no"


def _load_text(load: ModelSettings) -> str:
    return f"{load.rate_per_s:,.0f}/s" if load.rate_per_s else f"{load.clients} clients"


def _as_dict(one: CapacityScenario) -> dict[str, object]:
    return {
        "load": one.load.as_dict(),
        "goal": goal_text(one.goal),
        "limit_s": one.goal.limit_s,
        "proposed": one.proposed.settings.as_dict() if one.proposed else None,
        "promised": one.proposed.probability if one.proposed else None,
        "measured_s": one.measured_s,
        "kept": one.kept,
        "cheaper": one.cheaper.as_dict() if one.cheaper else None,
        "cheaper_measured_s": one.cheaper_measured_s,
        "cheaper_failed": one.needed,
        "possible": one.possible,
        "reason": one.reason or None,
    }
