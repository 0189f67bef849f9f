"""Derives the verdict from a ratio, its interval and its tests: one word and one sentence."""

import math

from waylab.analysis.across.contrasts.model import significant
from waylab.analysis.across.metrics import more_is_better
from waylab.analysis.statistics.blocks import Contrast, blocks_for
from waylab.runfolder.numbers import Ratio

WORSE, BETTER, EQUIVALENT, NO_WORSE, UNDECIDED = "worse", "better", "equivalent", "no worse", "undecided"
# Without a margin, the smallest difference for which the number of blocks is forecast.
_RESOLUTION = 0.05


def verdict(ratio: Ratio, metric: str) -> str:
    """Return `equivalent` (shown to lie within the margin), else `better` or `worse` (significant in its family).

    `no worse` is shown by a one-sided test against the margin. `undecided` is everything else: a difference that is
    not significant is not an equality.
    """
    if ratio.equivalent:
        return EQUIVALENT
    if significant(ratio):
        assert ratio.ratio is not None, "a ratio with a p-value has a value"
        return BETTER if (ratio.ratio > 1) == (more_is_better(metric) > 0) else WORSE
    return NO_WORSE if ratio.no_worse else UNDECIDED


def verdict_sentence(ratio: Ratio, metric: str, margin: float, what: str = "", unit: str = "blocks") -> str:
    """Say the verdict with its evidence; `what` names what was compared, where the metric alone does not."""
    what = what or metric
    if ratio.ratio is None:
        return f"{what}: there is no pair to compare."
    head = f"{what}: ratio {ratio.ratio:.4f}"
    if ratio.low is None:
        return f"{head}, undecided: {ratio.reason}."
    head += f", 95 % interval {ratio.low:.4f} to {ratio.high:.4f} over {ratio.blocks} {unit}"
    found = verdict(ratio, metric)
    within = f"within {100 * margin:g} %"
    if found == EQUIVALENT:
        return f"{head}: the same {within} (two one-sided tests at 5 %)."
    if found == NO_WORSE:
        return f"{head}: no worse by more than {100 * margin:g} % (one-sided test at 5 %)."
    if found == UNDECIDED:
        return f"{head}: undecided; {_undecided(ratio, margin, unit)}."
    return f"{head}: a difference, the candidate is {found}."


def _undecided(ratio: Ratio, margin: float, unit: str) -> str:
    """State why a ratio is undecided, and how many blocks would decide it."""
    if ratio.excludes_1:
        why = f"alone it would exclude 1, but not in its family of comparisons (p = {ratio.p_family:.2g})"
    else:
        why = "the interval includes 1"
        why += f", and equality within {100 * margin:g} % is not shown either" if margin else ""
    if ratio.error is None or ratio.ratio is None:
        return why
    goal = margin or _RESOLUTION
    contrast = Contrast(math.log(ratio.ratio), ratio.error, ratio.degrees)
    need = blocks_for(contrast, ratio.blocks, math.log1p(goal))
    if need is None or need <= ratio.blocks:
        return why
    return f"{why}; about {need} {unit} narrow it to {100 * goal:g} %"
