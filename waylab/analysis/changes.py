"""Every configuration against the base case, in pairs within blocks on the log scale."""

import math
from typing import Any

from waylab.analysis.metrics import METRICS, told_apart, value_of
from waylab.analysis.statistics import paired_ratio
from waylab.analysis.trial import TrialResult


def changes(
    spec: dict[str, Any], configurations: list[dict[str, Any]], trials: list[TrialResult]
) -> dict[str, Any]:
    """Compare all configurations with the one that has the first level of every factor.

    Returns `base` (its name, None without factors), `metrics` (name and words) and `entries`: for each
    configuration, the base case included, and metric the ratio with its interval over blocks. `text` says why there
    are none.
    """
    base = next(
        (c for c in configurations if c["levels"] == _first_levels(spec) and len(configurations) > 1), None
    )
    if base is None:
        return {"base": None, "metrics": {}, "entries": [], "text": "there is a single configuration"}
    used = [trial.content for trial in trials if trial.used]
    names = told_apart(used)
    by_block: dict[str, dict[int, dict[str, Any]]] = {}
    for content in used:
        by_block.setdefault(content["configuration"], {})[content["block"]] = content
    found = by_block.get(base["name"], {})
    if not found:
        text = f"no trial of the base case {base['name']} was used"
        return {"base": base["name"], "metrics": {}, "entries": [], "text": text}
    entries = [
        {
            **{key: other[key] for key in ("name", "x", "series")},
            "metric": metric,
            **_ratio(found, by_block.get(other["name"], {}), metric),
        }
        for other in configurations
        for metric in names
    ]
    return {
        "base": base["name"],
        "metrics": {name: METRICS[name] for name in names},
        "entries": [entry for entry in entries if entry["ratio"] is not None],
        "text": "",
    }


def _first_levels(spec: dict[str, Any]) -> dict[str, str]:
    return {factor["name"]: factor["levels"][0]["label"] for factor in spec["factors"]}


def _ratio(base: dict[int, dict[str, Any]], other: dict[int, dict[str, Any]], metric: str) -> dict[str, Any]:
    if base is other:
        return {"blocks": len(base), "ratio": 1.0, "low": None, "high": None, "excludes_1": None}
    ratios = []
    for block in sorted(set(base) & set(other)):
        before, after = value_of(base[block], metric), value_of(other[block], metric)
        if before and after:
            ratios.append(math.log(after / before))
    return {key: value for key, value in paired_ratio(ratios).items() if key != "equivalent"}
