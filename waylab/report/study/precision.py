"""How precise the ratios and rates of a study are, and how many blocks reach the aim."""

import math
from collections.abc import Iterator, Sequence

from waylab.report.page.numbers import share_text
from waylab.runfolder.analysis import PRECISION_AIM, FindingResult


def precision_sentence(findings: Sequence[FindingResult]) -> str:
    """Return how many ratios and rates are as precise as wanted; empty without any."""
    known = [one for one in findings if half_width(one) is not None]
    if not known:
        return ""
    wide = [one for one in known if _is_wide(one)]
    narrow, aim = len(known) - len(wide), share_text(PRECISION_AIM)
    sentence = f"{narrow} of {len(known)} ratios and rates have a 95 % interval of at most ±{aim}."
    needed = [one.blocks_for_aim for one in wide if one.blocks_for_aim]
    if needed:
        sentence += f" The others need up to {max(needed)} blocks."
    return sentence


def precision_section(found: Sequence[tuple[str, str, FindingResult]]) -> Iterator[str]:
    """Yield the table of the intervals that are too wide; `found` has experiment, text and finding."""
    sentence = precision_sentence([one for _, _, one in found])
    if not sentence:
        return
    yield from ["## Precision", "", sentence, ""]
    wide = [(name, text, one) for name, text, one in found if _is_wide(one)]
    if not wide:
        return
    yield f"| experiment | ratio or rate | half-width | blocks | blocks for ±{share_text(PRECISION_AIM)} |"
    yield "|---|---|---:|---:|---:|"
    for name, text, one in wide:
        needed = str(one.blocks_for_aim) if one.blocks_for_aim else "over 1000"
        yield f"| {name} | {text} | {share_text(half_width(one))} | {one.blocks} | {needed} |"
    yield ""


def half_width(finding: FindingResult) -> float | None:
    """Return half the width of the interval of a ratio or rate, as a share; None without an interval."""
    if finding.kind not in ("ratio", "value") or not finding.low or not finding.high:
        return None
    return math.sqrt(finding.high / finding.low) - 1


def _is_wide(finding: FindingResult) -> bool:
    width = half_width(finding)
    return width is not None and width > PRECISION_AIM
