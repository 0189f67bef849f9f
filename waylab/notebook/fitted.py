"""Models fitted to runs: parameters, weights, reasons of refusal, predictions, an explanation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from waylab.errors import LabError
from waylab.fit.interface import domain_of_runs, parameter_interval
from waylab.fit.observations import ModelSettings, base_settings, changed_settings, observe, usable
from waylab.fit.observations.settings import field_of
from waylab.notebook.frames import frame
from waylab.predict.runs import CHOSEN, FittedChosen, explain_run, fit_runs
from waylab.predict.runs.frames import explanation_frame, predictions_frame

if TYPE_CHECKING:
    from pandas import DataFrame

# Combinations of one call: each takes milliseconds.
_COMBINATIONS_MAX = 1000
# One setting as a user writes it, or several values of it.
Given = str | int | float | Sequence[str | int | float]


class FittedRuns:
    """Every model of `waylab fit`, fitted to all usable trials of one or several runs."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._observations = usable(observe(directories))
        self._last: FittedChosen | None = None

    @cached_property
    def _fitted(self) -> FittedChosen:
        return fit_runs(self._observations)

    @cached_property
    def parameters(self) -> DataFrame:
        """One row for each model and parameter, with the ends of its 90 % interval; units are in the names."""
        rows = []
        for name, model in self._fitted.fits.fitted.items():
            for parameter, value in model.parameters.items():
                spread = model.log_spreads.get(parameter)
                row = {"model": name, "parameter": parameter, "value": value, "low": None, "high": None}
                if spread is not None:
                    row["low"], row["high"] = parameter_interval(value, spread)
                rows.append(row)
        return frame(rows, ["model", "parameter", "value", "low", "high"])

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the models in the blend `chosen`, for settings between the measured ones."""
        return self._fitted.weights(interpolates=True)

    @property
    def refused(self) -> dict[str, str]:
        """Why a model could not be fitted, by model."""
        return self._fitted.fits.reasons

    @property
    def unidentified(self) -> Sequence[str]:
        """What the trials do not identify, and the measurement that would help."""
        return self._fitted.unidentified

    @cached_property
    def measured(self) -> dict[str, list[float]]:
        """The measured values of every setting that had several."""
        levels = domain_of_runs(self._observations).levels
        return {name: list(values) for name, values in levels.items() if len(values) > 1}

    def predict(self, *, all_models: bool = False, **settings: Given) -> DataFrame:
        """Predict other settings: one row for each, with 90 % intervals and the bottleneck.

        A setting may have several values (`clients=[100, 200]`); all combinations are predicted. Settings that are not
        given have their middle measured value. `all_models` adds a row for each model beside `chosen`. A model that
        refuses has the reason in `refused` and no numbers.

        Raises:
            LabError: for an unknown setting, a wrong value, or if the chosen models refuse all of them.
        """
        wanted = self._combinations(settings)
        fitted = self._among(wanted)
        found = predictions_frame(fitted, wanted)
        if not all_models:
            found = found[found["model"] == CHOSEN]
        if found["refused"].astype(bool).all():
            raise LabError(f"predict: {found['refused'].iloc[0]}")
        given = [field for name in settings if (field := field_of(name))]
        shown = [name for name in wanted[0].as_dict() if name in given or name in self.measured]
        hidden = [name for name in wanted[0].as_dict() if name not in shown]
        return found.drop(columns=hidden).reset_index(drop=True)

    def explain(self, **settings: str | int | float) -> DataFrame:
        """Where the mean response time of one configuration goes, what limits it, what one more of each part brings.

        Raises:
            LabError: for an unknown setting or a wrong value, or if the layered model refuses.
        """
        several = self._combinations(settings)
        if len(several) != 1:
            raise LabError(f"explain: {len(several)} combinations; give one value of each setting")
        (wanted,) = several
        return explanation_frame(explain_run(self._among([wanted]), wanted))

    def _among(self, wanted: Sequence[ModelSettings]) -> FittedChosen:
        """Return the models; those of tables learn again if they must know the settings beforehand."""
        if {*wanted} <= {one.settings for one in self._observations}:
            return self._fitted
        # A notebook asks again for the same settings: a fit takes seconds.
        if self._last is None or self._last.among != tuple(wanted):
            self._last = fit_runs(self._observations, wanted)
        return self._last

    def _combinations(self, settings: Mapping[str, Given]) -> list[ModelSettings]:
        base = base_settings(self._observations)
        values = [
            list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            for value in settings.values()
        ]
        count = math.prod(len(several) for several in values)
        if not 1 <= count <= _COMBINATIONS_MAX:
            raise LabError(f"predict: {count} combinations; give 1 to {_COMBINATIONS_MAX}")
        return [
            changed_settings(
                base, {name: _text(value) for name, value in zip(settings, one, strict=True)}, option=""
            )
            for one in itertools.product(*values)
        ]

    def __repr__(self) -> str:
        """Return the domain, the weights, and what could not be fitted."""
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self._lines())
        shown = self.parameters.to_html(index=False, na_rep="", float_format="{:.4g}".format)
        return f"<ul>{lines}</ul>{shown}"

    def _lines(self) -> list[str]:
        domain = ", ".join(
            f"{name} {' '.join(f'{value:g}' for value in values)}" for name, values in self.measured.items()
        )
        weights = ", ".join(f"{name} {share:.2f}" for name, share in self.weights.items())
        lines = [
            f"{len(self._fitted.observations)} configurations; measured: {domain}",
            f"weights: {weights}",
        ]
        lines += [f"not identified: {text}" for text in self.unidentified]
        return lines + [f"{name} refuses: {reason}" for name, reason in self.refused.items()]


def _text(value: object) -> str:
    """Return a setting as a user writes it; columns with gaps have whole numbers such as 8.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else f"{value}"
