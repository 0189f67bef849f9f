"""Which factor matters: effects and shares of the variation when all factors are crossed, and the residual checks."""

import math
from typing import Any

from waylab.analysis.metrics import METRICS, told_apart, value_of
from waylab.analysis.statistics.anova import anova
from waylab.analysis.statistics.designs import two_level_plan
from waylab.analysis.statistics.diagnostics import diagnose
from waylab.analysis.statistics.factorial import choose_scale, two_level_effects
from waylab.analysis.trial import TrialResult
from waylab.errors import LabError

# More than this in one interaction cannot be read, and nobody has so many trials.
_FACTORS_MAX = 6
_SIGNIFICANT = 0.05

Contents = list[dict[str, Any]]


def factorial(spec: dict[str, Any], trials: list[TrialResult]) -> dict[str, Any]:
    """Effects of the factors on every metric, from the blocks in which every configuration was used.

    Returns `kind`: `2k` when every factor has two levels, `general` otherwise, None with the reason in `text`;
    `levels` by factor; `blocks`; and `metrics`, each with its scale, effects, shares of variation and checks.
    """
    aside = _arms_aside(spec)
    factors = {
        factor["name"]: [
            level["label"] for level in factor["levels"] if (factor["name"], level["label"]) not in aside
        ]
        for factor in spec["factors"]
    }
    result: dict[str, Any] = {"kind": None, "text": "", "levels": factors, "blocks": 0, "metrics": []}
    several = {name: levels for name, levels in factors.items() if len(levels) > 1}
    if not 2 <= len(several) <= _FACTORS_MAX:
        return result | {"text": f"it takes two to {_FACTORS_MAX} factors to tell their effects apart"}
    generators = spec["design"].get("generators") or []
    trials = [trial for trial in trials if not aside & set(trial.content["levels"].items())]
    cells = {trial.content["configuration"] for trial in trials}
    if len(cells) * 2 ** len(generators) != math.prod(len(levels) for levels in factors.values()):
        return result | {"text": "not all combinations of the levels were run"}
    contents, blocks = _complete_blocks(trials)
    if not contents:
        return result | {"text": "there is no block in which every configuration was used"}
    two_levels = all(len(levels) == 2 for levels in several.values())
    if not two_levels and blocks < 2:
        return result | {"text": "it takes two complete blocks to tell effects from errors"}
    judge = _two_levels if two_levels else _general
    metrics = []
    for metric in told_apart(contents):
        values = [value_of(content, metric) or 0.0 for content in contents]
        try:
            found = judge(several, contents, values, blocks, generators)
        except LabError as error:
            return result | {"text": str(error)}
        metrics.append({"metric": metric, "title": METRICS[metric], **found})
    return result | {"kind": "2k" if two_levels else "general", "blocks": blocks, "metrics": metrics}


def factorial_facts(found: dict[str, Any]) -> list[str]:
    """Say for every metric which effects explain most, and what is against the model."""
    sentences = []
    for metric in found["metrics"]:
        ranked = sorted(metric["shares"], key=lambda part: part["share"], reverse=True)
        most = [part for part in ranked if part["name"] not in ("error", "blocks")][:3]
        listed = ", ".join(f"{part['name']} {100 * part['share']:.1f} %" for part in most)
        error = next((part["share"] for part in ranked if part["name"] == "error"), 0.0)
        sentences.append(
            f"Of the variation of {metric['title']}, {listed}; the error {100 * error:.1f} % "
            f"({metric['scale']['scale']} model, {found['blocks']} complete blocks)."
        )
        against = [check["text"] for check in metric["checks"] if check["kept"] is False]
        if against:
            sentences.append(f"Against that model of {metric['title']}: {'; '.join(against)}.")
    return sentences


def _arms_aside(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """Name the levels that only check the instrument: the second of a null arm, a positive control."""
    return {
        (compare["factor"], compare["candidate"])
        for compare in spec["compare"]
        if compare.get("role", "effect") in ("null", "control")
    }


def _complete_blocks(trials: list[TrialResult]) -> tuple[Contents, int]:
    """Return the trials of the blocks in which every configuration was used, in the order in which they ran."""
    everything = {trial.content["configuration"] for trial in trials}
    blocks: dict[int, set[str]] = {}
    for trial in trials:
        if trial.used:
            blocks.setdefault(trial.content["block"], set()).add(trial.content["configuration"])
    whole = {block for block, names in blocks.items() if names == everything}
    kept = [trial.content for trial in trials if trial.used and trial.content["block"] in whole]
    return sorted(kept, key=lambda content: content["order"]), len(whole)


def _scale(contents: Contents, values: list[float]) -> dict[str, Any]:
    cells: dict[str, list[float]] = {}
    for content, value in zip(contents, values, strict=True):
        cells.setdefault(content["configuration"], []).append(value)
    chosen = choose_scale(list(cells.values()))
    return {
        "scale": chosen.scale,
        "reason": chosen.reason,
        "range_ratio": chosen.range_ratio,
        "spread_slope": chosen.spread_slope,
    }


def _two_levels(
    factors: dict[str, list[str]], contents: Contents, values: list[float], blocks: int, generators: list[str]
) -> dict[str, Any]:
    scale = _scale(contents, values)
    aliases = two_level_plan(list(factors), generators).aliases if generators else ()
    words = [tuple(group[0].split(" x ")) for group in aliases] or None
    signs = [
        [1 if content["levels"][name] == levels[1] else -1 for name, levels in factors.items()]
        for content in contents
    ]
    names = [content["block"] for content in contents] if blocks > 1 else None
    found = two_level_effects(signs, values, list(factors), names, scale["scale"], words)
    mean = found.effect("mean").value
    effects = [
        {
            "name": effect.name,
            "value": effect.value,
            "low": effect.low,
            "high": effect.high,
            "significant": effect.significant,
            "aliases": next((list(group[1:]) for group in aliases if group[0] == effect.name), []),
            **_relative((effect.value, effect.low, effect.high), mean, scale["scale"]),
        }
        for effect in found.effects
        if effect.name != "mean"
    ]
    shares = [
        {"name": effect.name, "share": effect.share, "significant": effect.significant}
        for effect in found.effects
        if effect.name != "mean"
    ]
    shares += [{"name": "blocks", "share": found.share_blocks, "significant": None}] if blocks > 1 else []
    shares.append({"name": "error", "share": found.share_error, "significant": None})
    return {
        "scale": scale,
        "mean": mean,
        "effects": effects,
        "shares": shares,
        "error_deviation": found.error_deviation,
        "degrees": found.degrees,
        **_checks(contents, found.residuals, found.fitted, found.degrees),
    }


def _general(
    factors: dict[str, list[str]], contents: Contents, values: list[float], blocks: int, generators: list[str]
) -> dict[str, Any]:
    assert blocks > 1 and not generators, (
        "fractions have two levels, and without repetitions there is no error"
    )
    scale = _scale(contents, values)
    given = {name: [content["levels"][name] for content in contents] for name in factors}
    found = anova(given, values, [content["block"] for content in contents], 2, scale["scale"])
    effects = [
        {
            "name": f"{effect.factor} {effect.level}",
            "value": effect.value,
            "low": effect.low,
            "high": effect.high,
            "significant": not effect.low <= 0 <= effect.high,
            **_relative((effect.value, effect.low, effect.high), found.mean, scale["scale"]),
        }
        for effect in sorted(
            found.effects,
            key=lambda one: (list(factors).index(one.factor), factors[one.factor].index(one.level)),
        )
    ]
    shares = [
        {
            "name": source.name,
            "share": source.share,
            "significant": None
            if source.p is None or source.name == "blocks"
            else bool(source.p < _SIGNIFICANT),
            "f": source.f,
            "p": source.p,
        }
        for source in found.sources
    ]
    return {
        "scale": scale,
        "mean": found.mean,
        "effects": effects,
        "shares": shares,
        "error_deviation": found.error_deviation,
        "degrees": next(source.degrees for source in found.sources if source.name == "error"),
        **_checks(contents, found.residuals, found.fitted, 1),
    }


def _relative(
    numbers: tuple[float, float | None, float | None], mean: float, scale: str
) -> dict[str, float | None]:
    """Return an effect as a share of the mean: q / mean, or 10^q - 1 where effects multiply."""

    def share(value: float | None) -> float | None:
        if value is None:
            return None
        return 10**value - 1 if scale == "multiplicative" else value / mean

    return {
        key: share(value)
        for key, value in zip(("relative", "relative_low", "relative_high"), numbers, strict=True)
    }


def _checks(contents: Contents, residuals: Any, fitted: Any, degrees: int) -> dict[str, Any]:
    """Return the checks of the residuals with the numbers of their plots; nothing where nothing is left over."""
    if degrees < 1:
        return {"checks": [], "residuals": [], "text": "without repetitions there are no residuals to check"}
    cells = [content["configuration"] for content in contents]
    try:
        found = diagnose(residuals, fitted, [content["order"] for content in contents], cells)
    except LabError as error:
        return {"checks": [], "residuals": [], "text": str(error)}
    ranked = sorted(range(len(contents)), key=lambda place: found.residuals[place])
    normal = {place: float(found.normal[rank]) for rank, place in enumerate(ranked)}
    return {
        "checks": [
            {key: getattr(check, key) for key in ("name", "statistic", "p", "kept", "text")}
            for check in found.checks
        ],
        "residuals": [
            {
                "trial": content["id"],
                "configuration": content["configuration"],
                "order": content["order"],
                "residual": float(found.residuals[place]),
                "previous": float(found.residuals[place - 1]) if place else None,
                "fitted": float(found.fitted[place]),
                "normal": normal[place],
            }
            for place, content in enumerate(contents)
        ],
        "text": "",
    }
