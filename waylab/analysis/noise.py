"""What a null experiment says of a machine: which ratio it can tell from none."""

import math
from typing import Any

_BLOCKS_MIN = 2


def noise_floor(comparison: dict[str, Any]) -> dict[str, Any]:
    """Judge one comparison of a thing with itself, as `analysis.json` has it.

    `floor` is the half-width of the 95 % interval of the ratio, as a share: differences below it cannot be told from
    none in so many `blocks`. None with fewer than two blocks. `text` says it in a sentence.
    """
    overall = comparison["overall"]
    result = {"metric": comparison["metric"], "blocks": overall["blocks"], "floor": None, "flagged": None}
    if overall["low"] is None:
        return result | {"text": f"{overall['blocks']} blocks passed the gates, and it takes {_BLOCKS_MIN}"}
    floor = math.sqrt(overall["high"] / overall["low"]) - 1
    said = (
        f"two identical arms: ratio {overall['ratio']:.4f}, 95 % interval {overall['low']:.4f} to "
        f"{overall['high']:.4f}; differences below {100 * floor:.1f} % cannot be seen in {overall['blocks']} blocks, "
        f"below {50 * floor:.1f} % not in {4 * overall['blocks']}"
    )
    if overall["excludes_1"]:
        said += "; the interval excludes 1, which happens once in twenty times, or the machine drifted"
    return result | {"floor": floor, "flagged": bool(overall["excludes_1"]), "text": said}
