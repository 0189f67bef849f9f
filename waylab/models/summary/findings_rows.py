"""Findings and sweeps as rows for JSON, tables and drawings."""

from collections.abc import Sequence
from typing import TypedDict

from waylab.models.result import Result
from waylab.models.summary.findings import Findings, limit_of
from waylab.models.summary.result import response_mean_s, result_as_dict


class SweepClassRow(TypedDict):
    """One class of requests at one value of a swept parameter."""

    name: str
    throughput_per_s: float | None
    response_s: float | None


class SweepStationRow(TypedDict):
    """One station at one value of a swept parameter."""

    name: str
    load: float | None
    utilisation: float | None
    queue_length: float | None
    response_s: float | None


class SweepRow(TypedDict):
    """A network at one value of a swept parameter, and its bottleneck there."""

    value: float
    throughput_per_s: float | None
    response_s: float | None
    limit: str | None
    load: float
    method: str
    classes: list[SweepClassRow]
    stations: list[SweepStationRow]


class LimitedBy(TypedDict):
    """The bottleneck: stations that are alike, or a pool."""

    kind: str
    names: list[str]
    load: float


class ChangeRow(TypedDict):
    """One change of the network and its effect."""

    change: str
    value: float
    throughput_per_s: float | None
    response_s: float | None
    limit: list[str]
    note: str


class FindingsRow(TypedDict):
    """All findings about one result."""

    limit: LimitedBy
    time_share: float | None
    waiting_share: float | None
    bound_per_s: float | None
    knee_clients: float | None
    arrivals_growth: float | None
    changes: list[ChangeRow]


def sweep_as_dicts(values: Sequence[float], results: Sequence[Result]) -> list[SweepRow]:
    """Return a sweep as content for JSON: a row for each value, with its bottleneck."""
    rows: list[SweepRow] = []
    for value, result in zip(values, results, strict=True):
        content = result_as_dict(result)
        limit = limit_of(result)
        rows.append(
            {
                "value": float(value),
                "throughput_per_s": content["throughput_per_s"],
                "response_s": content["response_s"],
                "limit": limit.names[0] if limit.names else None,
                "load": limit.load,
                "method": result.method,
                "classes": [
                    {
                        "name": part["name"],
                        "throughput_per_s": part["throughput_per_s"],
                        "response_s": part["response_s"],
                    }
                    for part in content["classes"]
                ],
                "stations": [
                    {
                        "name": part["name"],
                        "load": part["load"],
                        "utilisation": part["utilisation"],
                        "queue_length": part["queue_length"],
                        "response_s": part["response_s"],
                    }
                    for part in content["stations"]
                ],
            }
        )
    return rows


def findings_as_dict(findings: Findings) -> FindingsRow:
    """Return findings as content for JSON, without the changed networks."""
    limit = findings.limit
    return {
        "limit": {"kind": limit.kind, "names": list(limit.names), "load": limit.load},
        "time_share": findings.time_share,
        "waiting_share": findings.waiting_share,
        "bound_per_s": findings.bound_per_s,
        "knee_clients": findings.knee_clients,
        "arrivals_growth": findings.arrivals_growth,
        "changes": [
            {
                "change": change.kind,
                "value": change.value,
                "throughput_per_s": change.result.throughput_total_per_s if change.result else None,
                "response_s": response_mean_s(change.result) if change.result else None,
                "limit": list(change.limit.names) if change.limit else [],
                "note": change.note,
            }
            for change in findings.changes
        ],
    }
