"""Bounds as rows for JSON, tables and drawings, and in words."""

from collections.abc import Sequence
from typing import TypedDict

from waylab.models.bounds import (
    Bounds,
    asymptotic_bounds,
    balanced_job_bounds,
    bottlenecks,
    geometric_bounds,
    saturation_factor,
)
from waylab.models.errors import AssumptionError
from waylab.models.network import Network
from waylab.models.summary.texts import number_text, percent_text, time_text
from waylab.models.sweep import changed
from waylab.models.traffic import Chain, traffic

_ALIKE = 1e-9
_KINDS = (asymptotic_bounds, balanced_job_bounds, geometric_bounds)


class BoundsRow(TypedDict):
    """One kind of bounds of one closed chain."""

    name: str
    source: str
    throughput_low_per_s: float
    throughput_high_per_s: float
    response_low_s: float
    response_high_s: float


class SweepBoundsRow(BoundsRow):
    """The same at one value of a swept parameter."""

    value: float


class LimitRow(TypedDict):
    """The highest throughput that one station allows."""

    station: str
    demand_s: float
    throughput_per_s: float


def bounds_as_dicts(network: Network) -> list[BoundsRow]:
    """Return a row for each kind of bounds that applies, and for each closed chain.

    Raises:
        AssumptionError: when not even the asymptotic bounds hold, or no class is closed.
    """
    chains = _closed_chains(network)
    names = [", ".join(network.class_names[index] for index in chain.classes) for chain in chains]
    rows: list[BoundsRow] = []
    for found in _bounds(network):
        for index, chain in enumerate(names):
            rows.append(
                {
                    "name": found.name if len(names) == 1 else f"{found.name}, {chain}",
                    "source": found.source,
                    "throughput_low_per_s": float(found.throughput_lower_per_s[index]),
                    "throughput_high_per_s": float(found.throughput_upper_per_s[index]),
                    "response_low_s": float(found.response_lower_s[index]),
                    "response_high_s": float(found.response_upper_s[index]),
                }
            )
    return rows


def limits_as_dicts(network: Network) -> list[LimitRow]:
    """Return the highest throughput that each station allows, the lowest first."""
    return [
        {"station": part.station, "demand_s": part.demand_s, "throughput_per_s": part.throughput_per_s}
        for part in bottlenecks(network)
    ]


def knee_of(network: Network) -> float | None:
    """N* = (D + Z) / Dmax of one closed chain; None for any other network."""
    try:
        return asymptotic_bounds(network).knee_customers
    except AssumptionError:
        return None


def sweep_bounds(network: Network, parameter: str, values: Sequence[float]) -> list[SweepBoundsRow]:
    """Return bounds for each value of a parameter, with their `value`; none unless there is one closed chain."""
    if len(_closed_chains(network)) != 1 or network.has_open:
        return []
    try:
        return [
            {"value": float(value), **row}
            for value in values
            for row in bounds_as_dicts(changed(network, parameter, value))
        ]
    except AssumptionError:
        return []


def explain_bounds(network: Network) -> list[str]:
    """Describe in words what limits a network."""
    limits = bottlenecks(network)
    if not limits:
        return ["Nothing limits the throughput: every station is a delay."]
    first = limits[0]
    alike = [part for part in limits if part.throughput_per_s <= first.throughput_per_s * (1 + _ALIKE)]
    others = f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""
    mix = " in the mix of the populations" if len(_closed_chains(network)) > 1 else ""
    lines = [
        f"{first.station!r}{others} limits most: a mean request brings it {time_text(first.demand_s)} of work, "
        f"so throughput cannot exceed {number_text(first.throughput_per_s)} requests/s{mix}."
    ]
    if len(limits) > len(alike):
        second = limits[len(alike)]
        allowed = number_text(second.throughput_per_s)
        lines.append(f"The next limit is {second.station!r}, which allows {allowed}.")
    if not network.has_closed:
        growth = saturation_factor(network)
        if growth > 1:
            lines.append(f"The load can grow by {percent_text(growth - 1)} before it saturates.")
        else:
            lines.append("The load exceeds it: the queue grows without limit.")
        return lines
    knee = knee_of(network)
    if knee is not None:
        lines.append(
            f"The knee lies at {number_text(knee)} clients, and there are {network.population:,}: with fewer, each "
            "further client brings throughput; with more, they wait for each other."
        )
    try:
        bounds_as_dicts(network)
    except AssumptionError as error:
        lines.append(f"There is no lower bound ({error}).")
    return lines


def _closed_chains(network: Network) -> list[Chain]:
    return [chain for chain in traffic(network).chains if chain.population]


def _bounds(network: Network) -> list[Bounds]:
    found: list[Bounds] = [_KINDS[0](network)]
    for kind in _KINDS[1:]:
        try:
            found.append(kind(network))
        except AssumptionError:
            continue
    return found
