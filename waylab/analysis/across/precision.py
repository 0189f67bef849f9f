"""The input of a stopping rule: one value for each whole block, of every metric of every configuration."""

from waylab.analysis.across.metrics import metric_of
from waylab.runfolder.trial_numbers import AnalysedTrial


def gating_values(
    trials: list[AnalysedTrial], metrics: list[str]
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the values of whole blocks in order, and one line for each configuration that is left out.

    `trials` are all trials of the blocks so far. A configuration of which no trial was used at all is left out,
    because more blocks would not help it. A block counts when all the others were used in it; with a value
    missing, means over blocks would mean different things.
    """
    found: dict[str, dict[int, list[float | None]]] = {}
    for trial in trials:
        numbers = trial.numbers if trial.used else None
        values = [metric_of(numbers, metric) if numbers else None for metric in metrics]
        found.setdefault(trial.configuration, {})[trial.block] = values
    never = [name for name, blocks in found.items() if all(None in values for values in blocks.values())]
    considered = {name: blocks for name, blocks in found.items() if name not in never}
    whole = [
        block
        for block in sorted({trial.block for trial in trials})
        if all(block in blocks and None not in blocks[block] for blocks in considered.values())
    ]
    series = {
        f"{metric} of {name}": [float(blocks[block][place] or 0.0) for block in whole]
        for name, blocks in considered.items()
        for place, metric in enumerate(metrics)
    }
    return series, [f"{name} was used in no block" for name in never]
