"""A fitted Universal Scalability Law as rows for JSON, and in words."""

from collections.abc import Callable
from typing import TypedDict

from waylab.models.errors import ModelError
from waylab.models.summary.texts import number_text, percent_text
from waylab.models.usl import UslFit

LEVEL = 0.95
_CURVE_POINTS = 80
_REACH = 1.5


class ParameterRow(TypedDict):
    """A fitted parameter with its 95 % interval."""

    value: float
    low: float | None
    high: float | None


class CurvePoint(TypedDict):
    """The fitted throughput at one number of clients, with the 95 % band of its mean."""

    clients: float
    throughput_per_s: float
    low_per_s: float | None
    high_per_s: float | None


class UslRow(TypedDict):
    """A whole fit."""

    name: str
    parameters: dict[str, ParameterRow]
    peak_clients: float | None
    peak_throughput_per_s: float | None
    r_squared: float
    clients_max: float
    warnings: list[str]
    curve: list[CurvePoint]


def usl_as_dict(fit: UslFit) -> UslRow:
    """Return a fit as content for JSON: parameters with 95 % intervals, peak, R squared, and the curve with its band.

    The peak is null beyond twice the largest measured number of clients. The curve goes to one and a half times that
    number.
    """
    law = fit.law
    has_peak = law.peak_clients is not None and not fit.extrapolates(law.peak_clients)
    parameters = {name: _parameter(fit, name) for name in ("gamma", "alpha", "beta")}
    last = _REACH * fit.clients_max
    steps = [1 + (last - 1) * index / (_CURVE_POINTS - 1) for index in range(_CURVE_POINTS)]
    curve = [_point(fit, clients) for clients in steps]
    return {
        "name": "Universal Scalability Law",
        "parameters": parameters,
        "peak_clients": law.peak_clients if has_peak else None,
        "peak_throughput_per_s": law.peak_throughput_per_s if has_peak else None,
        "r_squared": fit.r_squared,
        "clients_max": fit.clients_max,
        "warnings": list(fit.warnings),
        "curve": curve,
    }


def explain_usl(fit: UslFit) -> list[str]:
    """Describe a fit in words."""
    law = fit.law
    lines = [f"One client alone gets {number_text(law.gamma)} requests/s (gamma)."]
    if law.alpha > 0:
        lines.append(
            f"{percent_text(law.alpha)} of the work is serial (alpha): without any other cost, throughput could not "
            f"exceed {number_text(law.gamma / law.alpha)} requests/s."
        )
    else:
        lines.append(
            "No work is found to be serial (alpha = 0), so that the fit gives no limit of the throughput."
        )
    if law.peak_clients is not None and law.peak_throughput_per_s is not None:
        if not fit.extrapolates(law.peak_clients):
            lines.append(
                f"The throughput is highest, {number_text(law.peak_throughput_per_s)} requests/s, "
                f"with {number_text(law.peak_clients)} clients; each further client reduces it (beta)."
            )
    lines.append(
        f"The curve describes {percent_text(fit.r_squared)} of the variation between the runs that it was fitted to. "
        "This is no error of predictions, and no cause."
    )
    return lines + [f"Warning: {warning}." for warning in fit.warnings]


def _parameter(fit: UslFit, name: str) -> ParameterRow:
    low, high = _or_none(lambda: fit.interval(name, LEVEL))
    return {"value": getattr(fit.law, name), "low": low, "high": high}


def _point(fit: UslFit, clients: float) -> CurvePoint:
    low, high = _or_none(lambda: fit.throughput_interval_per_s(clients, LEVEL))
    throughput_per_s = fit.law.throughput_per_s(clients)
    return {"clients": clients, "throughput_per_s": throughput_per_s, "low_per_s": low, "high_per_s": high}


def _or_none(interval: Callable[[], tuple[float, float]]) -> tuple[float, float] | tuple[None, None]:
    """Return an interval, or nothing for a fit without resampling."""
    try:
        return interval()
    except ModelError:
        return None, None
