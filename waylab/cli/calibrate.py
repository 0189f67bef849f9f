"""The command `waylab calibrate`: measures the emulated hosts of a specification, and recommends a time scale."""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from waylab.plan import make_plan
from waylab.spec import read_spec
from waylab.testbed import Machine
from waylab.testbed.calibration import ERROR_MAX, ROOM, Calibration, calibrate, smallest_time_scale

EXIT_NOT_CALIBRATED = 1


def run(arguments: argparse.Namespace) -> int:
    """Measure the hosts and print every value beside its target; return 1 if one of them is too far off."""
    spec, machine = read_spec(arguments.spec), Machine()
    settings = spec.testbed
    if arguments.time_scale is not None:
        settings = replace(settings, time_scale=arguments.time_scale)
    trials = make_plan(spec).trials
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="waylab-calibrate-") as logs:
        found = calibrate(settings, trials, machine, Path(logs))
    console.print(_table(found))
    for line in _lines(found, smallest_time_scale(settings, trials, machine), machine.cores):
        console.print(line, soft_wrap=True)
    return 0 if all(one.passed for one in found.readings) else EXIT_NOT_CALIBRATED


def _table(found: Calibration) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("host", "setting"):
        table.add_column(heading, no_wrap=True)
    for heading in ("described", "target", "measured", "error", "ok"):
        table.add_column(heading, justify="right")
    for one in found.readings:
        mark = "[green]yes[/green]" if one.passed else "[red]no[/red]"
        numbers = (
            f"{one.described:g}",
            f"{one.target:.4g}",
            f"{one.measured:.4g}",
            f"{100 * one.error:+.2f} %",
        )
        table.add_row(one.host, one.name, *numbers, mark)
    return table


def _lines(found: Calibration, smallest: int, cores: int) -> list[str]:
    scale = found.time_scale
    passed = sum(one.passed for one in found.readings)
    lines = [
        f"{passed} of {len(found.readings)} values are within {100 * ERROR_MAX:g} % of their target",
        f"time scale {scale:g}: the hosts have {found.cores:g} of {cores} cores; "
        f"the smallest scale with at most {100 * ROOM:g} % is {smallest}",
    ]
    middle, late = (found.wake_ups_ms[len(found.wake_ups_ms) * part // 100] for part in (50, 99))
    lines.append(
        "not scaled: wake-ups are "
        f"{middle:.3f} ms late (median), {late:.3f} ms (99 %), which is {1e3 * middle / scale:.1f} and "
        f"{1e3 * late / scale:.1f} µs on the described hosts"
    )
    for name, period_ms in found.periods_ms.items():
        lines.append(
            f"not scaled: {name} stops up to {period_ms:g} ms for its CPU quota, "
            f"{period_ms / scale:.3g} ms on the described host"
        )
    return lines
