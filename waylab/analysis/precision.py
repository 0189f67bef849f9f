"""What a stopping rule looks at: one value for each whole block, of every metric of every configuration."""

from typing import Any

from waylab.analysis.comparisons import metric_of


def gating_values(
    contents: list[dict[str, Any]], metrics: list[str]
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the values of whole blocks in order, and one line for each configuration that could not be looked at.

    `contents` are the results of all trials of the blocks so far. A configuration of which no trial was used at all
    is left out, for more blocks would not help it. A block counts when all the others were used in it; with a value
    missing, means over blocks would mean different things.
    """
    found: dict[str, dict[int, list[float | None]]] = {}
    for content in contents:
        values = (
            [metric_of(content, metric) for metric in metrics] if content["used"] else [None for _ in metrics]
        )
        found.setdefault(content["configuration"], {})[content["block"]] = values
    never = [name for name, blocks in found.items() if all(None in values for values in blocks.values())]
    looked_at = {name: blocks for name, blocks in found.items() if name not in never}
    whole = [
        block
        for block in sorted({content["block"] for content in contents})
        if all(block in blocks and None not in blocks[block] for blocks in looked_at.values())
    ]
    series = {
        f"{metric} of {name}": [float(blocks[block][place] or 0.0) for block in whole]
        for name, blocks in looked_at.items()
        for place, metric in enumerate(metrics)
    }
    return series, [f"{name} was used in no block" for name in never]
