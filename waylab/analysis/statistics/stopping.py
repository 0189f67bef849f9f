"""When to stop repeating: enough precision for every metric, or a limit reached; never because of significance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waylab.analysis.statistics.repetitions import (
    CONFIDENCE,
    corrected_precision,
    relative_half_width,
    repetitions_needed,
)
from waylab.errors import LabError

BLOCKS_MIN = 3


@dataclass(frozen=True)
class StoppingRule:
    """How precise every metric must be, and the limits.

    `precision` is the wanted half-width as a share of the mean. It is first looked at after `blocks_min` blocks, and
    must still hold after each of `confirmations` further ones: a rule that stops at the first time stops where the
    spread happens to look small, and the intervals then cover too little. `blocks_max` and `budget_s` end a
    campaign that is not precise enough.

    Raises:
        LabError: for fewer than three blocks, a maximum below the minimum, or limits that are not above zero.
    """

    precision: float = 0.05
    blocks_min: int = 4
    blocks_max: int | None = None
    budget_s: float | None = None
    confirmations: int = 2
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        corrected_precision(self.precision)
        if self.blocks_min < BLOCKS_MIN:
            raise LabError(f"stopping rule: at least {BLOCKS_MIN} blocks, not {self.blocks_min}")
        if self.blocks_max is not None and self.blocks_max < BLOCKS_MIN:
            raise LabError(f"stopping rule: a maximum of {self.blocks_max} blocks is below {BLOCKS_MIN}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise LabError(f"stopping rule: the budget must be above 0 s, not {self.budget_s}")
        if self.confirmations < 0 or not 0 < self.confidence < 1:
            raise LabError("stopping rule: confirmations must be 0 or more, and confidence between 0 and 1")


@dataclass(frozen=True)
class Decision:
    """Whether to stop, and the reason for the record.

    `kind` is one of `precision`, `maximum`, `budget` and `continue`; `widths` has the relative half-width of every
    metric, None where there is none yet; `blocks_expected` is a forecast of how many blocks it takes in all.
    """

    stop: bool
    kind: str
    reason: str
    blocks: int
    widths: dict[str, float | None]
    blocks_expected: int | None


def decide(
    metrics: Mapping[str, Sequence[float]], rule: StoppingRule, elapsed_s: float = 0.0, block_s: float = 0.0
) -> Decision:
    """Decide after a whole block; `metrics` has for every gating metric one value for each block, in order.

    Sequential relative precision with Law's correction: the half-width of Student's interval must be at most
    e / (1 + e) of the mean, e being the precision (Law, Simulation Modeling and Analysis, 5th ed., 9.4.1), for every
    metric, now and after each of the blocks that confirm it. `elapsed_s` is the time spent, `block_s` what another
    block would take; a block that does not fit into the budget is not begun.

    Raises:
        LabError: without metrics, or when their numbers of values differ: only whole blocks count.
    """
    counts = {name: len(values) for name, values in metrics.items()}
    if not counts:
        raise LabError("stopping rule: there is no metric to decide by")
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise LabError(f"stopping rule: only whole blocks count, but the metrics have {said} values")
    blocks = next(iter(counts.values()))
    widths = {name: relative_half_width(values, rule.confidence) for name, values in metrics.items()}
    expected = _expected(metrics, rule, blocks)

    def decision(kind: str, reason: str) -> Decision:
        return Decision(kind != "continue", kind, reason, blocks, widths, expected)

    wanted = corrected_precision(rule.precision)
    known = {name: math.inf if width is None else width for name, width in widths.items()}
    worst = max(known, key=lambda name: known[name])
    said = "none yet" if math.isinf(known[worst]) else f"{100 * known[worst]:.2f} %"
    met = _blocks_met(metrics, rule, blocks, wanted)
    limit = f"limit {100 * wanted:.2f} % of the mean"
    if met > rule.confirmations:
        return decision(
            "precision",
            f"every metric was precise enough {met} times in a row; the widest, {worst}, {said}, {limit}",
        )
    if rule.blocks_max is not None and blocks >= rule.blocks_max:
        return decision(
            "maximum", f"{blocks} blocks are the maximum; the widest metric is {worst}, {said}, {limit}"
        )
    if rule.budget_s is not None and blocks >= BLOCKS_MIN and elapsed_s + block_s > rule.budget_s:
        return decision(
            "budget",
            f"another block of {block_s:.0f} s would exceed the budget of {rule.budget_s:.0f} s, "
            f"{elapsed_s:.0f} s are spent; the widest metric is {worst}, {said}, {limit}",
        )
    if blocks < rule.blocks_min:
        return decision("continue", f"{blocks} of at least {rule.blocks_min} blocks")
    if met:
        return decision(
            "continue", f"precise enough {met} times in a row, {rule.confirmations + 1} are wanted"
        )
    return decision("continue", f"{worst} is not precise enough: {said}, {limit}")


def _blocks_met(
    metrics: Mapping[str, Sequence[float]], rule: StoppingRule, blocks: int, wanted: float
) -> int:
    """Count how many times in a row, up to now, every metric was precise enough; from the minimum on."""
    times = 0
    for count in range(blocks, rule.blocks_min - 1, -1):
        widths = [relative_half_width(values[:count], rule.confidence) for values in metrics.values()]
        if any(width is None or width > wanted for width in widths):
            break
        times += 1
    return times


def _expected(metrics: Mapping[str, Sequence[float]], rule: StoppingRule, blocks: int) -> int | None:
    needed = [repetitions_needed(values, rule.precision, rule.confidence) for values in metrics.values()]
    if any(count is None for count in needed):
        return None
    total = max(rule.blocks_min, *(count for count in needed if count is not None)) + rule.confirmations
    return max(blocks, total if rule.blocks_max is None else min(total, rule.blocks_max))
