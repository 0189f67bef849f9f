"""What a study found beside what was measured here: ratios, knees, bottlenecks. A stated rule says what is reproduced.

Never absolute times: the machines differ. Rates only where a link sets them.
"""

import math
from collections.abc import Callable
from statistics import median
from typing import Any

from waylab.analysis.comparisons import metric_of
from waylab.analysis.statistics import mean_interval, paired_ratio
from waylab.analysis.statistics.factorial import choose_scale, two_level_effects
from waylab.analysis.trial import TrialResult
from waylab.errors import LabError

YES, NO, UNDECIDED, NOT_RUN = "yes", "no", "undecided", "not run"
# The share of the best throughput from which on a load counts as enough.
PLATEAU_SHARE = 0.9
# From here on a link is what limits; the rest is lost where its queue runs empty for a moment.
FULL_SHARE = 0.9

Contents = list[dict[str, Any]]


def published_results(spec: dict[str, Any], trials: list[TrialResult]) -> dict[str, Any] | None:
    """Set every finding of `[published]` beside ours; None when the specification names none.

    Each has `theirs` (None when only a direction is known), `ours` with `low` and `high` of a 95 % interval, or the
    smallest and largest of all blocks for a plateau, the `rule` in words, and `reproduced`.
    """
    published = spec.get("published") or {"findings": []}
    if not published["findings"]:
        return None
    used = [trial.content for trial in trials if trial.used]
    findings = [_finding(finding, used) for finding in published["findings"]]
    counts = {
        word: sum(one["reproduced"] == word for one in findings) for word in (YES, NO, UNDECIDED, NOT_RUN)
    }
    return {"source": published["source"], "findings": findings, "counts": counts}


def published_facts(published: dict[str, Any] | None) -> list[str]:
    """Say in one sentence how many findings are reproduced."""
    if published is None:
        return []
    counts, total = published["counts"], len(published["findings"])
    sentence = (
        f"Of {total} findings of {published['source']}, {counts[YES]} are reproduced and {counts[NO]} are not"
    )
    rest = [f"{counts[UNDECIDED]} undecided"] if counts[UNDECIDED] else []
    rest += [f"{counts[NOT_RUN]} not run at this scale"] if counts[NOT_RUN] else []
    return [sentence + (f"; {', '.join(rest)}." if rest else ".")]


def _finding(finding: dict[str, Any], used: Contents) -> dict[str, Any]:
    judges: dict[str, Callable[[dict[str, Any], Contents], dict[str, Any] | None]] = {
        "ratio": _ratio,
        "value": _value,
        "plateau": _plateau,
        "stage": _stage,
        "link": _link,
        "effect": _effect,
    }
    head = {
        "text": finding["text"],
        "kind": finding["kind"],
        "metric": finding["metric"],
        "of": finding["of"],
    }
    head |= {"to": finding["to"], "theirs": finding["theirs"] or finding["share"] or None}
    found = judges[finding["kind"]](finding, used)
    if found is None:
        nothing = {"ours": None, "low": None, "high": None, "blocks": 0, "said": ""}
        return head | nothing | {"rule": "no trial that was used is of this kind", "reproduced": NOT_RUN}
    return head | {"said": ""} | found


def _ratio(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    """Paired within blocks, and within the levels that neither side names."""
    named = {*finding["of"], *finding["to"]}
    sides = (("of", finding["metric"]), ("to", finding["to_metric"] or finding["metric"]))
    found: dict[tuple[int, str], dict[str, list[float]]] = {}
    for content in used:
        others = ", ".join(f"{k}={v}" for k, v in content["levels"].items() if k not in named)
        for side, metric in sides:
            value = _metric(content, metric) if _meant(content, finding[side]) else None
            if value:
                pair = found.setdefault((content["block"], others), {})
                pair.setdefault(side, []).append(math.log(value))
    pairs = {key: _mean(pair["of"]) - _mean(pair["to"]) for key, pair in found.items() if len(pair) == 2}
    if not pairs:
        return None
    result = paired_ratio(_by_block(pairs))
    judged = _judged(finding, result["ratio"], result["low"], result["high"], result["blocks"])
    if finding["within"] and result["excludes_1"] and finding["theirs"] != 1:
        same = (result["ratio"] > 1) == (finding["theirs"] > 1)
        judged["said"] = f"ours lies on {'the same' if same else 'the other'} side of 1"
    return judged


def _value(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    values = [_metric(content, finding["metric"]) for content in used if _meant(content, finding["of"])]
    interval = mean_interval([value for value in values if value is not None])
    if not interval["count"]:
        return None
    return _judged(finding, interval["mean"], interval["low"], interval["high"], interval["count"])


def _judged(
    finding: dict[str, Any], ours: float, low: float | None, high: float | None, blocks: int
) -> dict[str, Any]:
    """Compare an interval with a number and its margin, or with the side of 1 that it lies on."""
    theirs, within = finding["theirs"], finding["within"]
    if within and theirs:
        least, most = theirs / (1 + within), theirs * (1 + within)
        rule = f"the interval lies within {100 * within:g} % of theirs"
        outside = low is not None and high is not None and (low > most or high < least)
        inside = low is not None and high is not None and least <= low and high <= most
    else:
        above = finding["expect"] == "above" if finding["expect"] else theirs > 1
        rule = f"the interval lies {'above' if above else 'below'} 1"
        inside = low is not None and high is not None and (low > 1 if above else high < 1)
        outside = low is not None and high is not None and (high < 1 if above else low > 1)
    verdict = YES if inside else NO if outside else UNDECIDED
    return {"ours": ours, "low": low, "high": high, "blocks": blocks, "rule": rule, "reproduced": verdict}


def _plateau(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    blocks: dict[int, dict[float, list[float]]] = {}
    for content in used:
        value = _metric(content, finding["metric"]) if _meant(content, finding["of"]) else None
        if value is not None:
            level = float(content["levels"][finding["factor"]])
            blocks.setdefault(content["block"], {}).setdefault(level, []).append(value)
    levels = sorted({level for block in blocks.values() for level in block})
    # A block that lacks a load might have its best there.
    curves = [
        {level: _mean(block[level]) for level in levels}
        for block in blocks.values()
        if set(block) == set(levels)
    ]
    if not curves or len(levels) < 3:
        return None
    knees = [min(n for n, x in curve.items() if x >= PLATEAU_SHARE * max(curve.values())) for curve in curves]
    rule = (
        f"in every block theirs lies above the last load before the first with {100 * PLATEAU_SHARE:g} % of the best, "
        "and not above that"
    )
    before = [max([level for level in levels if level < knee], default=0.0) for knee in knees]
    right = sum(low < finding["theirs"] <= knee for low, knee in zip(before, knees, strict=True))
    verdict = YES if right == len(knees) else NO if not right else UNDECIDED
    return {
        "ours": median(knees),
        "low": min(knees),
        "high": max(knees),
        "blocks": len(knees),
        "rule": rule,
        "reproduced": verdict if len(knees) > 1 else UNDECIDED,
    }


def _stage(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    shares: dict[int, list[tuple[float, int]]] = {}
    largest: dict[str, int] = {}
    for content in used:
        stages = content.get("stages", {}).get(finding["operation"], {}).get("stages")
        if stages is None or not _meant(content, finding["of"]):
            continue
        means = {name: numbers["mean_ns"] for name, numbers in stages.items() if name != "total"}
        order = sorted(means, key=lambda name: -means[name])
        largest[order[0]] = largest.get(order[0], 0) + 1
        place = order.index(finding["stage"]) + 1
        share = means[finding["stage"]] / stages["total"]["mean_ns"]
        shares.setdefault(content["block"], []).append((share, place))
    if not shares:
        return None
    interval = mean_interval([_mean([share for share, _ in block]) for block in shares.values()])
    places = [place for block in shares.values() for _, place in block]
    right = sum(place == finding["place"] for place in places)
    order_word = {1: "the longest stage", 2: "the second longest stage"}.get(
        finding["place"], f"stage number {finding['place']} by length"
    )
    return {
        "ours": interval["mean"],
        "low": interval["low"],
        "high": interval["high"],
        "blocks": interval["count"],
        "rule": f"{finding['stage']} is {order_word} in every trial",
        "reproduced": YES if right == len(places) else NO if not right else UNDECIDED,
        "said": f"so in {right} of {len(places)} trials; the longest is "
        + ", ".join(f"{name} in {count}" for name, count in largest.items()),
    }


def _link(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    uses = [
        content["links"]["utilisation"][finding["link"]]
        for content in used
        if _meant(content, finding["of"]) and finding["link"] in content["links"]["utilisation"]
    ]
    if not uses:
        return None
    interval = mean_interval(uses)
    low, high = interval["low"], interval["high"]
    verdict = UNDECIDED
    if low is not None:
        verdict = YES if low >= FULL_SHARE else NO if high < FULL_SHARE else UNDECIDED
    rule = f"{finding['link']} is used to {100 * FULL_SHARE:g} % at least"
    numbers = {"ours": interval["mean"], "low": low, "high": high, "blocks": interval["count"]}
    return numbers | {"rule": rule, "reproduced": verdict}


def _effect(finding: dict[str, Any], used: Contents) -> dict[str, Any] | None:
    """Judge which effect of a 2^k r design explains most of the variation (Jain 1991, chapter 18)."""
    meant = [content for content in used if _meant(content, finding["of"])]
    names = [name for name in (meant[0]["levels"] if meant else {}) if name not in finding["of"]]
    levels = {name: list(dict.fromkeys(content["levels"][name] for content in meant)) for name in names}
    if not meant or any(len(found) != 2 for found in levels.values()):
        return None
    by_block: dict[int, Contents] = {}
    for content in meant:
        by_block.setdefault(content["block"], []).append(content)
    complete = [one for block in by_block.values() if len(block) == 2 ** len(names) for one in block]
    if not complete:
        return None
    signs = [[1 if one["levels"][name] == levels[name][1] else -1 for name in names] for one in complete]
    values = [_metric(one, finding["metric"]) or 0.0 for one in complete]
    cells: dict[str, list[float]] = {}
    for one, value in zip(complete, values, strict=True):
        cells.setdefault(one["configuration"], []).append(value)
    try:
        scale = choose_scale(list(cells.values())).scale
        design = two_level_effects(signs, values, names, [one["block"] for one in complete], scale)
    except LabError:
        return None
    effects = sorted(design.effects[1:], key=lambda effect: -effect.share)
    mine = design.effect(finding["factor"])
    verdict = UNDECIDED
    if effects[0].significant:
        verdict = YES if effects[0].name == mine.name else NO
    return {
        "ours": mine.share,
        "low": None,
        "high": None,
        "blocks": len(complete) // 2 ** len(names),
        "rule": f"{mine.name} explains more of the variation than any other effect, and its interval excludes 0",
        "reproduced": verdict,
        "said": f"most is explained by {effects[0].name}",
    }


def _metric(content: dict[str, Any], name: str) -> float | None:
    """Return a number of a trial: as in comparisons, or behind `set.` or so the response of one operation."""
    operation, _, rest = name.partition(".")
    if not rest.startswith("response_"):
        return metric_of(content, name)
    numbers = content["operations"].get(operation)
    return metric_of({"operations": {"all": numbers}}, rest) if numbers else None


def _meant(content: dict[str, Any], levels: dict[str, Any]) -> bool:
    return all(content["levels"].get(factor) in labels for factor, labels in levels.items())


def _by_block(pairs: dict[tuple[int, str], float]) -> list[float]:
    """One number for each block, over the levels that every block has; else the blocks would not mean the same."""
    blocks: dict[int, dict[str, float]] = {}
    for (block, others), value in pairs.items():
        blocks.setdefault(block, {})[others] = value
    everywhere = set.intersection(*(set(block) for block in blocks.values()))
    if everywhere:
        return [_mean([block[others] for others in sorted(everywhere)]) for block in blocks.values()]
    most = max((frozenset(block) for block in blocks.values()), key=len)
    return [_mean(list(block.values())) for block in blocks.values() if frozenset(block) == most]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
