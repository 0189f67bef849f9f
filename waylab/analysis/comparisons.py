"""Two levels of one factor, compared in pairs within blocks on the log scale."""

import math
from typing import Any

from waylab.analysis.statistics import mean_interval, paired_ratio
from waylab.analysis.statistics.pairs import null_arm, positive_control
from waylab.analysis.trial import TrialResult
from waylab.analysis.verdicts import verdict, verdict_sentence


def comparison_results(spec: dict[str, Any], trials: list[TrialResult]) -> list[dict[str, Any]]:
    """Carry out every `[[compare]]` of the specification."""
    return [_comparison(compare, trials) for compare in spec["compare"]]


def metric_of(content: dict[str, Any], metric: str) -> float | None:
    """Return one number of a trial under the name that specifications use."""
    if metric == "throughput_per_s":
        return content.get("throughput_per_s")
    if metric.startswith("cpu_per_request_ns."):
        return content["processor"]["cpu_per_request_ns"].get(metric.rsplit(".", 1)[1])
    if metric.endswith(("_per_request", "_per_message")):
        return (content.get("database") or {}).get(metric)
    everything = content["operations"].get("all")
    return _of_response(content, everything, metric) if everything else None


def _of_response(content: dict[str, Any], everything: dict[str, Any], metric: str) -> float | None:
    if metric == "response_mean_ns":
        return everything["response_mean_ns"]
    if metric == "response_by_law_ratio":
        return _by_law(content, everything["response_mean_ns"] * 1e-9)
    return everything["percentiles_ns"].get(metric.removeprefix("response_p").removesuffix("_ns"))


def _by_law(content: dict[str, Any], response_s: float) -> float | None:
    """Return the response time by the interactive law, N/X - Z, over that which was measured."""
    error = content.get("interactive_law_error")
    if error is None or not response_s:
        return None
    think_s = content["think_mean_s"]
    return float(((response_s + think_s) / (1 + error) - think_s) / response_s)


def _comparison(compare: dict[str, Any], trials: list[TrialResult]) -> dict[str, Any]:
    factor, wanted = compare["factor"], (compare["baseline"], compare["candidate"])
    pairs: dict[tuple[int, str], dict[str, dict[str, Any]]] = {}
    for trial in trials:
        levels = dict(trial.content["levels"])
        level = levels.pop(factor)
        if trial.used and level in wanted:
            others = ", ".join(f"{name}={label}" for name, label in levels.items())
            pairs.setdefault((trial.content["block"], others), {})[level] = trial.content
    ratios: dict[tuple[int, str], float] = {}
    both: dict[tuple[int, str], list[float]] = {}
    values: dict[str, list[float]] = {level: [] for level in wanted}
    for key, pair in pairs.items():
        numbers = [metric_of(pair[level], compare["metric"]) if level in pair else None for level in wanted]
        if all(numbers):
            ratios[key] = math.log(numbers[1] / numbers[0])
            both[key] = numbers
            for level, number in zip(wanted, numbers, strict=True):
                values[level].append(number)
    strata = list(dict.fromkeys(others for _, others in ratios))
    balanced = _balanced(ratios)
    overall = paired_ratio(_per_block(balanced), compare["margin"])
    head = f"{compare['metric']}, {factor} {wanted[1]} against {wanted[0]}"
    return {
        **compare,
        "verdict": verdict(overall, compare["metric"]),
        "verdict_text": verdict_sentence(overall, compare["metric"], compare["margin"], head),
        **_arm(compare, balanced, both),
        "baseline_value": mean_interval(values[wanted[0]]),
        "candidate_value": mean_interval(values[wanted[1]]),
        "pairs": len(balanced),
        "pairs_left_out": len(ratios) - len(balanced),
        "overall": overall,
        "strata": [
            {
                "levels": stratum,
                **paired_ratio(
                    [ratio for (_, others), ratio in ratios.items() if others == stratum], compare["margin"]
                ),
            }
            for stratum in strata
        ],
    }


def _arm(
    compare: dict[str, Any], ratios: dict[tuple[int, str], float], both: dict[tuple[int, str], list[float]]
) -> dict[str, Any]:
    """Judge a null arm (`null`) or a positive control (`control`); an effect has neither.

    A control of a time is judged by paired differences in the metric's unit, one of a ratio on the log scale.
    """
    role = compare.get("role", "effect")
    if role == "null":
        return {"null": null_arm(_per_block(ratios), compare["margin"])}
    if role != "control":
        return {}
    if not compare["added_ns"]:
        found = positive_control(
            [0.0] * len(_per_block(ratios)), _per_block(ratios), math.log(compare["ratio"])
        )
        as_ratio = {
            name: None if found[name] is None else math.exp(found[name]) for name in ("mean", "low", "high")
        }
        if found["found"] is None:
            return {"control": {**found, **as_ratio, "added": compare["ratio"]}}
        verdict = (
            "was found" if found["found"] else "was NOT found: this campaign cannot see such a difference"
        )
        text = (
            f"the positive control {verdict}: ratio {as_ratio['mean']:.4g}, interval {as_ratio['low']:.4g} "
            f"to {as_ratio['high']:.4g}, of {compare['ratio']:.4g} expected"
        )
        return {"control": {**found, **as_ratio, "added": compare["ratio"], "text": text}}
    arms = [_per_block({key: both[key][place] for key in ratios}) for place in (0, 1)]
    return {"control": positive_control(arms[0], arms[1], compare["added_ns"])}


def _balanced(ratios: dict[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    """Keep the pairs that make all blocks mean the same.

    If some pair is missing somewhere, its levels are left out of all blocks, for blocks are dearer than levels.
    Where no levels are complete, only the most complete blocks are kept.
    """
    blocks: dict[int, set[str]] = {}
    for block, others in ratios:
        blocks.setdefault(block, set()).add(others)
    if not blocks:
        return {}
    everywhere = set.intersection(*blocks.values())
    if everywhere:
        return {key: ratio for key, ratio in ratios.items() if key[1] in everywhere}
    most = max(blocks.values(), key=len)
    return {key: ratio for key, ratio in ratios.items() if blocks[key[0]] == most and key[1] in most}


def _per_block(ratios: dict[tuple[int, str], float]) -> list[float]:
    """One number per block, the mean over its pairs: the block is the unit, its pairs are not independent."""
    blocks: dict[int, list[float]] = {}
    for (block, _), ratio in ratios.items():
        blocks.setdefault(block, []).append(ratio)
    return [math.fsum(pairs) / len(pairs) for pairs in blocks.values()]
