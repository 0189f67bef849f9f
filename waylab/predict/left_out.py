"""Each configuration of an experiment, predicted by models that learned from all other configurations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from waylab.errors import LabError
from waylab.fit.interface import RefusedFitError, domain_of_runs, unidentifiable
from waylab.fit.observations import TrialObservation, observe, pooled, usable
from waylab.fit.tabled import TabledModel, tabled_models

# With fewer, a model of two parameters is not tested.
_OTHERS_MIN = 3


@dataclass(frozen=True)
class LeftOutErrors:
    """The absolute relative errors of one model over the configurations that it had not seen."""

    model: str
    configurations: int
    throughput: float
    response: float
    largest_response: float


def left_out_errors(directories: Sequence[Path]) -> list[LeftOutErrors]:
    """Return the errors of every model of tables that can predict a configuration of these runs from the others."""
    try:
        observations = usable(observe(directories))
    except LabError:
        return []
    errors: dict[str, list[tuple[float, float]]] = {}
    for one in pooled(observations):
        # No model can learn from trials that differ in a setting which it does not know.
        alike = [other for other in observations if other.settings.others == one.settings.others]
        others = [other for other in alike if other.settings != one.settings]
        if len({other.settings for other in others}) < _OTHERS_MIN:
            continue
        if unidentifiable(domain_of_runs(others), one.settings):
            continue
        for model in tabled_models([one.settings]):
            found = _errors(model, others, one)
            if found:
                errors.setdefault(model.name, []).append(found)
    return [
        LeftOutErrors(
            name,
            len(found),
            median(rate for rate, _ in found),
            median(time for _, time in found),
            max(time for _, time in found),
        )
        for name, found in errors.items()
    ]


def _errors(
    model: TabledModel, others: Sequence[TrialObservation], one: TrialObservation
) -> tuple[float, float] | None:
    try:
        found = model.fit(others).predict(one.settings)
    except RefusedFitError:
        return None
    return (
        abs(found.throughput_per_s.value / one.throughput_per_s - 1),
        abs(found.response_s.value / one.response_s - 1),
    )
