"""One configuration over its trials: means with t intervals, merged histograms, pooled stages."""

from typing import Any

from waylab.analysis import histograms, stages
from waylab.analysis.axes import place
from waylab.analysis.law_checks import worst_laws
from waylab.analysis.shapes import shape
from waylab.analysis.statistics import mean_interval
from waylab.analysis.statistics.repetitions import geometric_interval
from waylab.analysis.trial import TrialResult
from waylab.analysis.within import effective_counts


def configuration_results(
    plan: list[dict[str, Any]], trials: list[TrialResult], chosen: dict[str, Any]
) -> list[dict[str, Any]]:
    """Put together the trials of every configuration, in the order of the plan's levels."""
    by_name: dict[str, list[TrialResult]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for planned, trial in zip(plan, trials, strict=True):
        by_name.setdefault(planned["configuration"], []).append(trial)
        settings[planned["configuration"]] = planned
    results = [_configuration(settings[name], members, chosen) for name, members in by_name.items()]
    rank = {value: index for index, value in enumerate(chosen["levels"])}
    return sorted(results, key=lambda result: (result["series"], rank.get(result["x"], -1)))


def _configuration(
    planned: dict[str, Any], members: list[TrialResult], chosen: dict[str, Any]
) -> dict[str, Any]:
    used = [trial for trial in members if trial.used]
    contents = [trial.content for trial in used]
    merged = {
        name: histograms.merge([trial.histograms[name] for trial in used if name in trial.histograms])
        for name in dict.fromkeys(name for trial in used for name in trial.histograms)
    }
    return {
        "name": planned["configuration"],
        "levels": planned["levels"],
        **place(planned["levels"], chosen),
        "places": {view["x"]: place(planned["levels"], view) for view in chosen["views"]},
        "system": planned["system"],
        "load": planned["load"],
        "server": contents[0]["server"] if contents else None,
        "trials": len(members),
        "used": len(used),
        "think_mean_s": contents[0]["think_mean_s"] if contents else None,
        "throughput_per_s": mean_interval([content["throughput_per_s"] for content in contents]),
        "largest_second_per_s": max(
            (c["largest_second_per_s"] for c in contents if c["largest_second_per_s"]), default=None
        ),
        "interactive_law_error": mean_interval(
            [c["interactive_law_error"] for c in contents if c["interactive_law_error"] is not None]
        ),
        "hit_ratio": mean_interval([c["hit_ratio"] for c in contents if c["hit_ratio"] is not None]),
        "miss_ratio": mean_interval([1 - c["hit_ratio"] for c in contents if c["hit_ratio"] is not None]),
        "queue_length": _by_key(contents, lambda content: content.get("queue_length") or {}),
        "generator_cpu_share": mean_interval([content["generator_cpu_share"] for content in contents]),
        "busy_share": mean_interval([content["processor"]["busy_share"] for content in contents]),
        "laws": worst_laws(contents),
        "operations": {name: _operation(name, histogram, contents) for name, histogram in merged.items()},
        "distribution": histograms.curve(merged["all"]) if "all" in merged else [],
        "shapes": {name: shape(histogram, planned["configuration"]) for name, histogram in merged.items()},
        "cpu_per_request_ns": _by_key(contents, lambda content: content["processor"]["cpu_per_request_ns"]),
        "link_utilisation": _by_key(contents, lambda content: content["links"]["utilisation"]),
        "database": _by_key(contents, lambda content: content.get("database") or {}),
        "stages": _stages(used),
        "proxy_view": _by_key(contents, lambda content: content.get("proxy_view") or {}),
        "server_view": _by_key(contents, lambda content: content.get("server_view") or {}),
    }


def _operation(name: str, histogram: Any, contents: list[dict[str, Any]]) -> dict[str, Any]:
    means = [
        content["operations"][name]["response_mean_ns"]
        for content in contents
        if name in content["operations"]
    ]
    return {
        "count": int(histogram.get_total_count()),
        "response_mean_ns": mean_interval(means),
        "percentiles_ns": histograms.percentiles(histogram, _effective(name, contents)),
        "percentile_intervals_ns": _percentile_intervals(name, contents),
    }


def _effective(name: str, contents: list[dict[str, Any]]) -> dict[str, float]:
    """Effective sample sizes of all trials together, for the percentiles of which every trial knows its own."""
    known = [effective_counts(content["within"]) if name == "all" else {} for content in contents]
    shared = set.intersection(*(set(one) for one in known)) if known else set()
    return {percent: sum(one[percent] for one in known) for percent in shared}


def _percentile_intervals(name: str, contents: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means over trials: how far a percentile differs from run to run; where every trial has it."""
    found = [
        content["operations"][name]["percentiles_ns"] for content in contents if name in content["operations"]
    ]
    shared = [percent for percent in (found[0] if found else {}) if all(one.get(percent) for one in found)]
    return {percent: geometric_interval([one[percent] for one in found]) for percent in shared}


def _by_key(contents: list[dict[str, Any]], part: Any) -> dict[str, Any]:
    """Mean with interval of every number in one part of the trials."""
    keys = list(dict.fromkeys(key for content in contents for key in part(content)))
    return {
        key: mean_interval([part(content)[key] for content in contents if key in part(content)])
        for key in keys
    }


def _stages(used: list[TrialResult]) -> dict[str, Any]:
    """Means over trials with intervals; percentiles of all requests together."""
    pooled = stages.stage_summary(stages.pool([trial.stages for trial in used]))
    for operation, summary in pooled.items():
        for stage, numbers in summary["stages"].items():
            means = [
                trial.content["stages"][operation]["stages"][stage]["mean_ns"]
                for trial in used
                if operation in trial.content.get("stages", {})
            ]
            numbers["mean_ns"] = mean_interval(means)
    return pooled
