"""The results of the commands on runs as data frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from waylab.fit.interface import ModelPrediction, RefusedFitError
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.predict.profile import ProfileResult
from waylab.predict.runs.capacity import CapacityPlan
from waylab.predict.runs.chosen import FittedChosen
from waylab.predict.runs.explain import Explanation
from waylab.predict.runs.judge import JudgedConfiguration

if TYPE_CHECKING:
    from pandas import DataFrame


def _frame(rows: Sequence[dict[str, object]]) -> DataFrame:
    # Pandas takes a second to load: only who wants a frame waits for it.
    from pandas import DataFrame  # noqa: PLC0415

    return DataFrame(list(rows))


def observations_frame(observations: Sequence[TrialObservation]) -> DataFrame:
    """One row for each trial: settings, throughput, response times, stages, CPU time by role."""
    rows = []
    for one in observations:
        row: dict[str, object] = {
            "run": one.run,
            "trial": one.trial,
            "configuration": one.configuration,
            "block": one.block,
            "role": one.role,
            **one.settings.as_dict(),
            "throughput_per_s": one.throughput_per_s,
            "response_s": one.response_s,
        }
        row |= {f"response_{name}_s": value for name, value in one.responses_s.items() if name != "all"}
        for name, values in one.percentiles_s.items():
            row |= {f"response_{name}_p{share}_s": value for share, value in values.items()}
        row |= {f"stage_{name}_s": value for name, value in one.stages_s.get("all", {}).items()}
        row |= {f"cpu_{role}_s": value for role, value in one.cpu_s.items()}
        row |= {f"link_{name}": value for name, value in one.link_utilisation.items()}
        row |= {
            "queue_length": one.queue_length,
            "in_service": one.in_service,
            "bytes_per_request": one.bytes_per_request,
            "foreign_share": one.foreign_share,
            "refused": one.refused,
        }
        rows.append(row)
    return _frame(rows)


def predictions_frame(fitted: FittedChosen, settings: Sequence[ModelSettings]) -> DataFrame:
    """One row for each configuration and model; a refused one has the reason and no numbers."""
    rows: list[dict[str, object]] = []
    for one in settings:
        try:
            found, reasons = fitted.predict_all(one)
        except RefusedFitError as error:
            found, reasons = {}, {fitted.name: str(error)}
        rows += [{**one.as_dict(), **_predicted(prediction)} for prediction in found.values()]
        rows += [{**one.as_dict(), "model": name, "refused": reason} for name, reason in reasons.items()]
    return _frame(rows)


def _predicted(one: ModelPrediction) -> dict[str, object]:
    row: dict[str, object] = {"model": one.model}
    for name, value in (("throughput_per_s", one.throughput_per_s), ("response_s", one.response_s)):
        row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    for operation, values in one.percentiles_s.items():
        row |= {f"response_{operation}_p{share}_s": value for share, value in values.items()}
    row |= {f"utilisation_{name}": value for name, value in one.utilisation.items()}
    return row | {"bottleneck": one.bottleneck, "extrapolates": "; ".join(one.extrapolates), "refused": ""}


def judged_frame(judged: Sequence[JudgedConfiguration]) -> DataFrame:
    """One row for each held-out configuration and model, with the names of `--json`."""
    return _frame([one.as_row() for one in judged])


def explanation_frame(found: Explanation) -> DataFrame:
    """One row for each part of the response time, each limit and each change."""
    rows: list[dict[str, object]] = [
        {"kind": "time", "name": one.name, "value": one.time_s, "share": one.share} for one in found.parts
    ]
    rows += [{"kind": "limit", "name": one.name, "value": one.throughput_per_s} for one in found.limits]
    rows += [
        {
            "kind": "change",
            "name": one.change,
            "value": one.throughput.value,
            "low": one.throughput.low,
            "high": one.throughput.high,
        }
        for one in found.gains
    ]
    return _frame(rows)


def capacity_frame(found: CapacityPlan) -> DataFrame:
    """One row for each option, those that meet the goal first."""
    return _frame(
        [
            {
                **one.settings.as_dict(),
                "cost": one.cost,
                "probability": one.probability,
                "response_s": one.response_s,
                "limited_by": one.limited_by,
                "meets": place < len(found.options),
            }
            for place, one in enumerate((*found.options, *found.cheaper))
        ]
    )


def profile_frame(found: ProfileResult) -> DataFrame:
    """One row for each window of a load profile."""
    return _frame([asdict(one) for one in found.windows])
