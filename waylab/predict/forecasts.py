"""Each model applied to one configuration: fitted parameters in, throughput and response time out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from waylab.fit import (
    Fit,
    fit_black_box,
    fit_holding,
    fit_message_stations,
    fit_repairman_delay,
    fit_repairman_raw,
    fit_slots,
)
from waylab.models import MM1, ClosedMMc, MMm
from waylab.predict.messages import capped_chain, closed_stations, open_stations


@dataclass(frozen=True)
class Model:
    """A model as it stands in the tables: how it is fitted and what it then says.

    `learned` are the parameters that only a measurement can give, with how those of several configurations are put
    together. The others are settings or, of an open model, the arrivals of the configuration that is asked for.
    A model that is fitted `together` learns from several configurations at once, and has no `fit` of its own.
    """

    name: str
    fit: Callable[[dict[str, Any]], Fit] | None
    forecast: Callable[[dict[str, Any]], dict[str, Any]]
    learned: dict[str, Callable[[list[float]], float]] = field(default_factory=dict)
    together: Callable[[Sequence[dict[str, Any]], dict[str, Any]], Fit] | None = None


def _black_box(parameters: dict[str, Any]) -> dict[str, Any]:
    queue = MM1(parameters["arrivals_per_s"], parameters["services_per_s"])
    return {
        "utilisation": queue.utilisation,
        "response_mean_ns": 1e9 * queue.response_mean_s,
        "response_p95_ns": 1e9 * queue.response_quantile_s(0.95),
    }


def _slots(parameters: dict[str, Any]) -> dict[str, Any]:
    queue = MMm(parameters["arrivals_per_s"], parameters["services_per_s"], parameters["servers"])
    return {
        "utilisation": queue.utilisation,
        "waits_probability": queue.waits_probability,
        "response_mean_ns": 1e9 * queue.response_mean_s + parameters["outside_ns"],
    }


def _repairman(parameters: dict[str, Any]) -> dict[str, Any]:
    delay_s = parameters.get("delay_s", 0.0)
    queue = ClosedMMc(
        parameters["clients"], parameters["servers"], parameters["service_s"], parameters["think_s"] + delay_s
    )
    return {
        "utilisation": queue.utilisation,
        "throughput_per_s": queue.throughput_per_s,
        "response_mean_ns": 1e9 * (queue.response_mean_s + delay_s),
    }


MODELS = (
    Model("M/M/1 black box", fit_black_box, _black_box, {"services_per_s": max}),
    Model("M/M/m slots", fit_slots, _slots, {"services_per_s": fmean, "outside_ns": fmean}),
    Model("M/M/m fitted", None, open_stations, together=fit_message_stations),
    Model("closed, load-dependent stations", None, closed_stations, together=fit_message_stations),
    Model("capped chain with w(n)", None, capped_chain, together=fit_holding),
    Model("closed M/M/c//N as dictated", fit_repairman_raw, _repairman),
    Model(
        "closed M/M/c//N with delay", fit_repairman_delay, _repairman, {"service_s": fmean, "delay_s": fmean}
    ),
)
