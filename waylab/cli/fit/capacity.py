"""`waylab capacity`: the cheapest configurations that meet a goal, and the run to make next."""

import argparse
import json
import math
import sys
from dataclasses import replace

from rich import box
from rich.markup import escape
from rich.table import Table

from waylab.cli.fit.capacity_judge import judge
from waylab.cli.fit.capacity_words import counts_text, goal_of
from waylab.cli.fit.commands import changes_of, fitted_runs, time_text, wide_console
from waylab.errors import LabError
from waylab.fit.observations import base_settings, changed_settings, observe, usable
from waylab.fit.observations.settings import field_of
from waylab.predict.runs import plan_capacity
from waylab.predict.runs.capacity import CapacityOption, UnreachableGoalError

_PARTS = ("servers", "proxies", "loops", "slots", "services", "server_threads")


def capacity(arguments: argparse.Namespace) -> int:
    """Print the cheapest configurations that meet the goal."""
    costs = costs_of(arguments.cost)
    if arguments.measured:
        return judge(arguments, costs)
    goal = goal_of(arguments.until)
    changes = changes_of(arguments.set)
    base = changed_settings(base_settings(usable(observe(arguments.runs))), changes)
    base = changed_settings(
        base, {"rate": arguments.rate} if arguments.rate else {"clients": arguments.clients}
    )
    if arguments.rate:
        base = replace(base, think_s=0.0)
        if not base.rate_per_s:
            raise LabError("--rate 0: give arrivals per second above zero")
    missing = [name for name in costs if not getattr(base, name)]
    if missing:
        raise LabError(f"--cost {missing[0]}: the measured system has no such part")
    fitted = fitted_runs(arguments)
    try:
        found = plan_capacity(fitted, base, goal, costs)
    except UnreachableGoalError as error:
        print(f"waylab: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        content = {
            "options": [_as_dict(one) for one in found.options],
            "cheaper": [_as_dict(one) for one in found.cheaper],
            "next_run": None
            if found.next_run is None
            else {
                "settings": found.next_run.settings.as_dict(),
                "half_width_percent_before": found.next_run.before,
                "half_width_percent_after": found.next_run.after,
            },
            "warnings": list(found.warnings),
        }
        print(json.dumps(content, indent=1, allow_nan=False))
        return 0
    console = wide_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (
        "configuration",
        "cost",
        "holds with",
        arguments.until.partition("<")[0].strip(),
        "limited by",
    ):
        table.add_column(heading, justify="left" if heading in ("configuration", "limited by") else "right")
    for title, options in (("", found.options), ("cheaper: ", found.cheaper)):
        for one in options:
            table.add_row(
                title + counts_text(one.settings, list(costs)),
                f"{one.cost:g}",
                f"{100 * one.probability:.0f} %",
                time_text(one.response_s) if math.isfinite(one.response_s) else "unbounded",
                escape(one.limited_by),
            )
    console.print(table)
    for text in found.warnings:
        console.print(f"[yellow]extrapolates: {escape(text)}[/yellow]", soft_wrap=True)
    if found.next_run is not None:
        after = found.next_run
        console.print(
            f"measure next: {counts_text(after.settings, [*costs, 'clients'])}; it would shrink the interval of the "
            f"mean response of the proposed configuration from ±{after.before:.0f} % to ±{after.after:.0f} %",
            soft_wrap=True,
        )
    return 0


def costs_of(text: str) -> dict[str, float]:
    """Read `server=1 proxy=2`.

    Raises:
        LabError: if a part is unknown, or a cost is not a positive number.
    """
    costs: dict[str, float] = {}
    for part in text.replace(",", " ").split():
        name, _, price = part.partition("=")
        field = field_of(name)
        try:
            value = float(price)
        except ValueError:
            value = math.nan
        if field not in _PARTS or not (math.isfinite(value) and value > 0):
            raise LabError(
                f"--cost {part[:40]}: give PART=COST with a cost above zero; parts: server, proxy, loops, workers, "
                "connections, services, server_threads"
            )
        if field in costs:
            raise LabError(f"--cost {part[:40]}: this part is given twice")
        costs[field] = value
    if not costs:
        raise LabError("--cost: give at least one part, for example server=1")
    return costs


def _as_dict(one: CapacityOption) -> dict[str, object]:
    return {
        "settings": one.settings.as_dict(),
        "cost": one.cost,
        "probability": one.probability,
        "response_s": one.response_s if math.isfinite(one.response_s) else None,
        "limited_by": one.limited_by,
    }
