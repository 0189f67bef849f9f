"""Where throughput bends and responses become slow along the factor of the figures, line by line."""

from typing import Any

from waylab.analysis.statistics.knee import first_slow_load, knee
from waylab.analysis.trial import TrialResult
from waylab.errors import LabError

# Only along these does throughput rise and bend; over the size of values, say, a knee would mean nothing.
_LOADS = ("load.clients", "load.rate", "load.pipeline", "load.threads")
_LOADS_MIN = 4
_PERCENT = "95"


def curve_results(
    spec: dict[str, Any],
    configurations: list[dict[str, Any]],
    trials: list[TrialResult],
    axes: dict[str, Any],
) -> list[dict[str, Any]]:
    """Knee and first slow load of every line with four measured loads at least; none when the axis is no load."""
    keys = {factor["name"]: factor["key"] for factor in spec["factors"]}
    if not axes["numeric"] or keys.get(axes["x"]) not in _LOADS:
        return []
    series: dict[str, list[dict[str, Any]]] = {}
    for configuration in configurations:
        if configuration["used"]:
            series.setdefault(configuration["series"], []).append(configuration)
    return [
        {"series": name, "x": axes["x"], **_curve(members, trials)}
        for name, members in series.items()
        if len(members) >= _LOADS_MIN
    ]


def curve_facts(curves: list[dict[str, Any]]) -> list[str]:
    """Say for every line where it bends and where it becomes slow."""
    return [
        f"{curve['series']}, along {curve['x']}: {curve[kind]['text']}."
        for curve in curves
        for kind in ("knee", "first_slow")
        if curve[kind] is not None
    ]


def _curve(members: list[dict[str, Any]], trials: list[TrialResult]) -> dict[str, Any]:
    members = sorted(members, key=lambda member: member["x"])
    loads = [member["x"] for member in members]
    throughput, slow_ns = [], []
    for member in members:
        used = [t.content for t in trials if t.used and t.content["configuration"] == member["name"]]
        throughput.append([content["throughput_per_s"] for content in used])
        slow_ns.append(
            [content["operations"].get("all", {}).get("percentiles_ns", {}).get(_PERCENT) for content in used]
        )
    result: dict[str, Any] = {"loads": loads, "knee": None, "first_slow": None}
    try:
        result["knee"] = _content(knee(loads, throughput))
        if all(all(values) for values in slow_ns):
            result["first_slow"] = _content(first_slow_load(loads, slow_ns))
    except LabError:
        # A trial without requests has no place on a logarithm; the gates have said so.
        pass
    return result


def _content(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("load", "low", "high", "found_share", "text")}
