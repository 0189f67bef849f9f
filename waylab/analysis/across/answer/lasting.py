"""A warning beside all intervals of a run: the errors of a configuration last from block to block."""

from collections.abc import Sequence

from waylab.analysis.across.metrics import METRICS, value_of
from waylab.analysis.statistics.blocks import holm
from waylab.analysis.statistics.lasting import complete_blocks, lasting_errors
from waylab.analysis.trial.numbers import TrialResult

# The throughput of an open loop and the response time of a slow system hardly vary. Either may show the errors.
_JUDGED = ("throughput_per_s", "response_mean_ns")
_LEVEL = 0.05


def narrow_intervals(trials: Sequence[TrialResult]) -> list[str]:
    """Return one line if the errors last, judged at 5 % for both metrics together; nothing otherwise."""
    used = [(trial.content, trial.numbers) for trial in trials if trial.used and trial.content.numbers]
    found = []
    for metric in _JUDGED:
        known = {
            (trial.block, trial.configuration): value
            for trial, numbers in used
            if (value := value_of(numbers, metric))
        }
        one = lasting_errors(complete_blocks(known)) if known else None
        if one is not None:
            found.append((metric, one))
    adjusted = holm([one.p for _, one in found])
    lasting = [
        f"{METRICS[metric]} (correlation of neighbouring blocks {one.correlation:.2f}, p = {p:.2g})"
        for (metric, one), p in zip(found, adjusted, strict=True)
        if p < _LEVEL
    ]
    if not lasting:
        return []
    return [
        "All intervals of this run may be too narrow, because the errors of a configuration last from block to block: "
        f"{' and '.join(lasting)}. With a correlation of 0.5, only three of four 95 % intervals contain the truth. "
        "More blocks do not help; separate runs show these errors."
    ]
