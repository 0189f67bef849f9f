"""Goals and configurations of `waylab capacity`, as users write and read them."""

import argparse
import re
from collections.abc import Sequence

from waylab.cli.model.values import time_s
from waylab.errors import LabError
from waylab.fit.observations import ModelSettings
from waylab.predict.runs import CapacityGoal

_GOAL = re.compile(r"(mean|p50|p95|p99)\s*<=?\s*(\S+)")


def goal_of(text: str) -> CapacityGoal:
    """Read `p99<2ms`.

    Raises:
        LabError: for anything else.
    """
    match = _GOAL.fullmatch(text.strip())
    if match is None:
        raise LabError(f"--until {text[:40]}: give mean, p50, p95 or p99 below a time, for example p99<2ms")
    try:
        limit_s = time_s(match[2])
    except argparse.ArgumentTypeError as error:
        raise LabError(f"--until {text[:40]}: {error}") from None
    if not limit_s > 0:
        raise LabError(f"--until {text[:40]}: the time must be above zero")
    return CapacityGoal(match[1].removeprefix("p"), limit_s)


def goal_text(goal: CapacityGoal) -> str:
    """Write a goal as `p99 < 2ms`."""
    name = goal.share if goal.share == "mean" else f"p{goal.share}"
    return f"{name} < {1e3 * goal.limit_s:g} ms"


def counts_text(settings: ModelSettings, names: Sequence[str]) -> str:
    """The counts of the parts that have a cost."""
    return ", ".join(f"{name} {getattr(settings, name)}" for name in names)
