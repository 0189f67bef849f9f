"""Each model applied to one configuration: fitted parameters in, throughput and response time out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Generic, Protocol, TypeVar

from waylab.fit import (
    BlackBoxParameters,
    Fit,
    ModelParameters,
    NotApplicableError,
    RepairmanParameters,
    SlotParameters,
    fit_black_box,
    fit_holding,
    fit_message_stations,
    fit_repairman_delay,
    fit_repairman_raw,
    fit_slots,
)
from waylab.models import MM1, ClosedMMc, MMm
from waylab.predict.messages import capped_chain, closed_stations, open_stations
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.prediction import Forecast, Parameters

P = TypeVar("P", bound=ModelParameters)
Combine = Callable[[list[float]], float]


class ForecastModel(Protocol):
    """A model as the tables show it."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def learns(self) -> bool:
        """Whether it is fitted to measurements, so that only held-out configurations test it."""

    def forecast(
        self,
        configuration: Configuration,
        calibration: Sequence[Configuration] | None,
        everything: Sequence[Configuration],
    ) -> "Forecasted":
        """Fit the model and apply it to a configuration.

        `calibration` is None if no configuration was held out; then a model may learn from `everything`.

        Raises:
            NotApplicableError: if the model cannot be fitted.
        """


@dataclass(frozen=True)
class Forecasted:
    """A fitted model: its parameters, where they come from, and the forecast that follows from them."""

    parameters: Parameters
    source: str
    apply: Callable[[], Forecast]


@dataclass(frozen=True)
class FittedApart(Generic[P]):
    """A model that is fitted to each configuration by itself.

    `learned` are the parameters that only a measurement can give, with the function that combines those of several
    configurations. The others are settings or, for an open model, the arrivals of the configuration itself.
    """

    name: str
    fit: Callable[[Configuration], Fit[P]]
    apply: Callable[[P], Forecast]
    learned: Mapping[str, Combine] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        """Whether anything comes from a measurement."""
        return bool(self.learned)

    def forecast(
        self,
        configuration: Configuration,
        calibration: Sequence[Configuration] | None,
        everything: Sequence[Configuration],
    ) -> Forecasted:
        """Fit to the configuration; what must be learned comes from those for calibration, if there are any."""
        fit = self.fit(configuration)
        if calibration is not None and self.learned:
            fit = self._with_learned(fit, calibration)
        return _forecasted(fit, self.apply)

    def _with_learned(self, fit: Fit[P], known: Sequence[Configuration]) -> Fit[P]:
        found = []
        reason = "no calibration configuration was used"
        for one in known:
            try:
                found.append(self.fit(one).parameters)
            except NotApplicableError as error:
                reason = f"no calibration configuration can be fitted: {error}"
        if not found:
            raise NotApplicableError(reason)
        learned = {
            name: combine([getattr(one, name) for one in found]) for name, combine in self.learned.items()
        }
        source = f"{', '.join(learned)} from {len(found)} calibration configurations; {fit.source}"
        return Fit(replace(fit.parameters, **learned), source)


@dataclass(frozen=True)
class FittedTogether(Generic[P]):
    """A model that learns from several configurations at once."""

    name: str
    fit: Callable[[Sequence[Configuration], Configuration], Fit[P]]
    apply: Callable[[P], Forecast]
    learns: bool = True

    def forecast(
        self,
        configuration: Configuration,
        calibration: Sequence[Configuration] | None,
        everything: Sequence[Configuration],
    ) -> Forecasted:
        """Fit to the configurations for calibration, or to all, and apply to the configuration."""
        known = everything if calibration is None else calibration
        return _forecasted(self.fit(known, configuration), self.apply)


def _forecasted(fit: Fit[P], apply: Callable[[P], Forecast]) -> Forecasted:
    return Forecasted(fit.parameters.as_numbers(), fit.source, lambda: apply(fit.parameters))


def _black_box(parameters: BlackBoxParameters) -> Forecast:
    queue = MM1(parameters.arrivals_per_s, parameters.services_per_s)
    return Forecast(
        utilisation=queue.utilisation,
        response_mean_ns=1e9 * queue.response_mean_s,
        response_p95_ns=1e9 * queue.response_quantile_s(0.95),
    )


def _slots(parameters: SlotParameters) -> Forecast:
    queue = MMm(parameters.arrivals_per_s, parameters.services_per_s, parameters.servers)
    return Forecast(
        utilisation=queue.utilisation,
        waits_probability=queue.waits_probability,
        response_mean_ns=1e9 * queue.response_mean_s + parameters.outside_ns,
    )


def _repairman(parameters: RepairmanParameters) -> Forecast:
    delay_s = parameters.delay_s or 0.0
    queue = ClosedMMc(
        parameters.clients, parameters.servers, parameters.service_s, parameters.think_s + delay_s
    )
    return Forecast(
        utilisation=queue.utilisation,
        throughput_per_s=queue.throughput_per_s,
        response_mean_ns=1e9 * (queue.response_mean_s + delay_s),
    )


MODELS: tuple[ForecastModel, ...] = (
    FittedApart("M/M/1 black box", fit_black_box, _black_box, {"services_per_s": max}),
    FittedApart("M/M/m slots", fit_slots, _slots, {"services_per_s": fmean, "outside_ns": fmean}),
    FittedTogether("M/M/m fitted", fit_message_stations, open_stations),
    FittedTogether("closed, load-dependent stations", fit_message_stations, closed_stations),
    FittedTogether("capped chain with w(n)", fit_holding, capped_chain),
    FittedApart("closed M/M/c//N as dictated", fit_repairman_raw, _repairman),
    FittedApart(
        "closed M/M/c//N with delay", fit_repairman_delay, _repairman, {"service_s": fmean, "delay_s": fmean}
    ),
)
