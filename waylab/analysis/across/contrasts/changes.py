"""Every configuration against the base case, by the model of `model.py`."""

from waylab.analysis.across.contrasts.model import (
    MetricModel,
    as_family,
    family_size,
    metric_model,
    significant,
)
from waylab.analysis.across.metrics import METRICS, shared_metrics
from waylab.runfolder.analysis import Change, Changes, Configuration
from waylab.runfolder.numbers import Ratio
from waylab.runfolder.run import ExperimentSpec
from waylab.runfolder.trial_numbers import AnalysedTrial


def changes(
    spec: ExperimentSpec, configurations: list[Configuration], trials: list[AnalysedTrial]
) -> Changes:
    """Compare all configurations with the one that has the first level of every factor; the table is one family."""
    first = {factor.name: factor.levels[0].label for factor in spec.factors}
    base = next((c for c in configurations if c.levels == first and len(configurations) > 1), None)
    if base is None:
        return Changes(base=None, metrics={}, entries=[], text="there is a single configuration")
    used = [trial for trial in trials if trial.used]
    if not any(trial.configuration == base.name for trial in used):
        text = f"no trial of the base case {base.name} was used"
        return Changes(base=base.name, metrics={}, entries=[], text=text)
    names = shared_metrics([trial.measured() for trial in used])
    models = {metric: metric_model(used, metric) for metric in names}
    places = [(other, metric) for other in configurations for metric in names if other.name != base.name]
    ratios = as_family([_ratio(models[metric], base, other) for other, metric in places])
    found = {(other.name, metric): ratio for (other, metric), ratio in zip(places, ratios, strict=True)}
    entries = [
        entry
        for other in configurations
        for metric in names
        if (entry := _change(other, metric, found.get((other.name, metric)), models[metric])) is not None
    ]
    return Changes(
        base=base.name,
        metrics={name: METRICS[name] for name in names},
        entries=entries,
        family=family_size(ratios),
        text="",
    )


def _ratio(model: MetricModel, base: Configuration, other: Configuration) -> Ratio:
    return model.ratio_of_weights({other.name: 1.0, base.name: -1.0})


def _change(other: Configuration, metric: str, ratio: Ratio | None, model: MetricModel) -> Change | None:
    """Return one entry; without a ratio it is the base case itself."""
    ratio = ratio or Ratio(
        blocks=len(model.blocks_of.get(other.name, ())),
        ratio=1.0,
        low=None,
        high=None,
        excludes_1=None,
        equivalent=None,
    )
    if ratio.ratio is None:
        return None
    return Change(
        name=other.name,
        x=other.x,
        series=other.series,
        metric=metric,
        blocks=ratio.blocks,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        p_family=ratio.p_family,
        excludes_1=None if ratio.low is None else significant(ratio),
    )
