"""How many blocks decide a finding that is undecided, from the spread between the blocks that were measured."""

from scipy import special

from waylab.analysis.statistics.blocks import Contrast, blocks_for

POWER = 0.8
"""Probability that this number of blocks decides, if the estimate and the spread stay as they are."""


def blocks_needed(contrast: Contrast, blocks: int, margin: float, level: float) -> int | None:
    """Return the number of blocks that decides on which side of a border at this distance a contrast lies.

    None with fewer than two blocks, and if a thousand blocks do not suffice. An interval as wide as the distance
    decides in half of the cases, so it must be narrower.
    """
    confidence = 1 - level
    student = float(special.ndtri(0.5 + confidence / 2))
    share = student / (student + float(special.ndtri(POWER)))
    found = blocks_for(contrast, blocks, margin * share, confidence)
    return None if found is None else max(found, blocks + 1)
