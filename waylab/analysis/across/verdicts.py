"""What a ratio with its interval and its equivalence test allow to be said, in one word and in one sentence."""

from waylab.runfolder.numbers import Ratio

# What a larger number means; of times, less is better.
_MORE_IS_BETTER = ("throughput_per_s",)

WORSE, BETTER, EQUIVALENT, UNDECIDED = "worse", "better", "equivalent", "undecided"


def verdict(ratio: Ratio, metric: str) -> str:
    """Return `equivalent` (shown to lie within the margin), else `better` or `worse` (the interval excludes 1).

    `undecided` is everything else: a difference that is not significant is not an equality.
    """
    if ratio.equivalent:
        return EQUIVALENT
    if not ratio.excludes_1:
        return UNDECIDED
    assert ratio.ratio is not None
    return BETTER if (ratio.ratio > 1) == (metric in _MORE_IS_BETTER) else WORSE


def verdict_sentence(ratio: Ratio, metric: str, margin: float, what: str = "") -> str:
    """Say the verdict with its evidence; `what` names what was compared, where the metric alone does not."""
    what = what or metric
    if ratio.ratio is None:
        return f"{what}: there is no pair to compare."
    head = f"{what}: ratio {ratio.ratio:.4f}"
    if ratio.low is None:
        return f"{head} from a single block, which decides nothing."
    head += f", interval {ratio.low:.4f} to {ratio.high:.4f} over {ratio.blocks} blocks"
    found = verdict(ratio, metric)
    within = f"within {100 * margin:g} %"
    if found == EQUIVALENT:
        return f"{head}: the same {within} (two one-sided tests at 5 %)."
    if found == UNDECIDED:
        missing = f", and equality {within} is not shown either" if margin else ""
        return f"{head}: undecided; the interval includes 1{missing}."
    return f"{head}: a difference, the candidate is {found}."
