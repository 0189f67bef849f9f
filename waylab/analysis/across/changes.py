"""Every configuration against the base case, in pairs within blocks on the log scale."""

import math

from waylab.analysis.across.intervals import ratio
from waylab.analysis.across.metrics import METRICS, shared_metrics, value_of
from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.analysis import Change, Changes, Configuration
from waylab.runfolder.run import ExperimentSpec
from waylab.runfolder.trial_numbers import TrialNumbers

# The numbers of a configuration's used trials, by block.
Blocks = dict[int, TrialNumbers]


def changes(spec: ExperimentSpec, configurations: list[Configuration], trials: list[TrialResult]) -> Changes:
    """Compare all configurations with the one that has the first level of every factor."""
    first = {factor.name: factor.levels[0].label for factor in spec.factors}
    base = next((c for c in configurations if c.levels == first and len(configurations) > 1), None)
    if base is None:
        return Changes(base=None, metrics={}, entries=[], text="there is a single configuration")
    used = [trial for trial in trials if trial.used]
    names = shared_metrics([trial.numbers for trial in used])
    by_block: dict[str, Blocks] = {}
    for trial in used:
        by_block.setdefault(trial.content.configuration, {})[trial.content.block] = trial.numbers
    found = by_block.get(base.name, {})
    if not found:
        text = f"no trial of the base case {base.name} was used"
        return Changes(base=base.name, metrics={}, entries=[], text=text)
    entries = [
        change
        for other in configurations
        for metric in names
        if (change := _change(found, by_block.get(other.name, {}), other, metric)) is not None
    ]
    return Changes(base=base.name, metrics={name: METRICS[name] for name in names}, entries=entries, text="")


def _change(base: Blocks, other: Blocks, configuration: Configuration, metric: str) -> Change | None:
    head = {"name": configuration.name, "series": configuration.series, "metric": metric}
    if base is other:
        return Change(
            **head, x=configuration.x, blocks=len(base), ratio=1.0, low=None, high=None, excludes_1=None
        )
    ratios = []
    for block in sorted(set(base) & set(other)):
        before, after = value_of(base[block], metric), value_of(other[block], metric)
        if before and after:
            ratios.append(math.log(after / before))
    found = ratio(ratios)
    if found.ratio is None:
        return None
    return Change(
        **head,
        x=configuration.x,
        blocks=found.blocks,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        excludes_1=found.excludes_1,
    )
