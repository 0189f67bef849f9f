"""What a null experiment says of a machine: the smallest difference that it can show."""

import math
from dataclasses import dataclass

from waylab.runfolder.analysis import Comparison


@dataclass(frozen=True)
class NoiseFloor:
    """The half-width of the 95 % interval of the ratio of two identical arms, as a share.

    Smaller differences cannot be shown in so many blocks. `floor` and `flagged` are None with too few blocks;
    `flagged` is whether the interval excludes 1.
    """

    metric: str
    blocks: int
    floor: float | None
    flagged: bool | None
    text: str


def noise_floor(comparison: Comparison) -> NoiseFloor:
    """Judge one comparison of a thing with itself, as `analysis.json` has it."""
    overall = comparison.overall
    if overall.low is None or overall.high is None:
        return NoiseFloor(comparison.metric, overall.blocks, None, None, overall.reason)
    floor = math.sqrt(overall.high / overall.low) - 1
    text = (
        f"two identical arms: ratio {overall.ratio:.4f}, 95 % interval {overall.low:.4f} to "
        f"{overall.high:.4f}; differences below {100 * floor:.1f} % cannot be seen in {overall.blocks} blocks, "
        f"below {50 * floor:.1f} % not in {4 * overall.blocks}"
    )
    if overall.excludes_1:
        text += "; the interval excludes 1, which happens once in twenty times, or the machine drifted"
    return NoiseFloor(comparison.metric, overall.blocks, floor, bool(overall.excludes_1), text)
