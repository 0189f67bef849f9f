"""Findings and sweeps as plain numbers, for JSON, tables and drawings."""

from collections.abc import Sequence
from typing import Any

from waylab.models.result import Result
from waylab.models.summary.findings import Findings, limit_of
from waylab.models.summary.result import response_mean_s, result_as_dict


def sweep_as_dicts(values: Sequence[float], results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a sweep as content for JSON: a row for each value, with what limits it there."""
    rows = []
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
                    {name: part[name] for name in ("name", "throughput_per_s", "response_s")}
                    for part in content["classes"]
                ],
                "stations": [
                    {
                        name: part[name]
                        for name in ("name", "load", "utilisation", "queue_length", "response_s")
                    }
                    for part in content["stations"]
                ],
            }
        )
    return rows


def findings_as_dict(findings: Findings) -> dict[str, Any]:
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
