"""Tables of what changes: against the base case, by factors, and what the residual checks say."""

from html import escape
from typing import Any

from waylab.report.content import Content
from waylab.report.numbers import NONE, percent_text, shown, signed_percent_text
from waylab.report.table import table

# Between these a change is told in percent.
_NEAR = (0.4, 2.5)


def percent_change(ratio: float) -> str:
    """Write a ratio as a change in percent."""
    return f"{100 * (ratio - 1):+.1f} %"


def multiple(ratio: float) -> str:
    """Write a ratio as a multiple, which is easier to read where it is far from 1."""
    return f"× {ratio:.3g}"


def change_table(content: Content) -> str:
    """Every configuration against the base case; nothing for a single configuration."""
    changes = content.analysis.get("changes") or {"entries": []}
    if not changes["entries"]:
        return ""
    found: dict[str, dict[str, Any]] = {}
    for entry in changes["entries"]:
        found.setdefault(entry["name"], {})[entry["metric"]] = entry
    rows = [
        [escape(name), *(_change(entries.get(metric)) for metric in changes["metrics"])]
        for name, entries in found.items()
        if name != changes["base"]
    ]
    words = (
        f"Against the base case {changes['base']}: geometric means of the ratios within blocks, with 95 % intervals. "
        "Bold where the interval excludes no change."
    )
    headings = ["configuration", *changes["metrics"].values()]
    return f"<h3>Change against the base case</h3>{table(headings, rows, words)}"


def factorial_tables(content: Content) -> str:
    """Shares of the variation of every metric side by side, and the effects of each."""
    metrics = (content.analysis.get("factorial") or {"metrics": []})["metrics"]
    if not metrics:
        return ""
    names = list(dict.fromkeys(part["name"] for metric in metrics for part in metric["shares"]))
    by_metric = [{part["name"]: part for part in metric["shares"]} for metric in metrics]
    rows = [[escape(name), *(_share(parts.get(name)) for parts in by_metric)] for name in names]
    titles = [metric["title"] for metric in metrics]
    text = "<h3>Which factor matters</h3>"
    text += table(
        ["factor or interaction", *titles], rows, "Share of the variation; bold where the effect is clear."
    )
    effects = list(dict.fromkeys(effect["name"] for metric in metrics for effect in metric["effects"]))
    known = [{effect["name"]: effect for effect in metric["effects"]} for metric in metrics]
    rows = [[escape(name), *(_effect(parts.get(name)) for parts in known)] for name in effects]
    models = "; ".join(f"{m['title']}: {m['scale']['scale']}, {m['scale']['reason']}" for m in metrics)
    text += table(["effect", *titles], rows, "As a share of the mean, with 95 % intervals.")
    aliases = {effect["name"]: effect["aliases"] for effect in metrics[0]["effects"] if effect.get("aliases")}
    if aliases:
        said = "; ".join(f"{name} with {', '.join(others)}" for name, others in aliases.items())
        text += f'<p class="note">The design is a fraction and cannot tell apart: {escape(said)}.</p>'
    return text + f'<p class="soft small">Model: {escape(models)}.</p>'


def residual_checks(content: Content) -> str:
    """What the tests of the residuals say of every metric."""
    metrics = (content.analysis.get("factorial") or {"metrics": []})["metrics"]
    rows = [
        [escape(metric["title"]), escape(check["name"]), _mark(check["kept"]), escape(check["text"])]
        for metric in metrics
        for check in metric["checks"]
    ]
    if not rows:
        return ""
    words = (
        "Assumptions behind the intervals of the effects. A test that fails says that the model is wrong; "
        "one that does not, with few trials, says little."
    )
    return f"<h3>Residuals</h3>{table(['metric', 'check', 'holds', 'what was found'], rows, words)}"


def _change(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return NONE
    numbers = [entry[key] for key in ("ratio", "low", "high") if entry[key] is not None]
    near = all(_NEAR[0] < number < _NEAR[1] for number in numbers)
    text, *bounds = (shown(number, percent_change if near else multiple) for number in numbers)
    text = f"<b>{text}</b>" if entry["excludes_1"] else text
    return f'{text} <span class="interval">[{", ".join(bounds)}]</span>' if bounds else text


def _share(part: dict[str, Any] | None) -> str:
    if part is None:
        return NONE
    text = shown(part["share"], percent_text)
    return f"<b>{text}</b>" if part["significant"] else text


def _effect(effect: dict[str, Any] | None) -> str:
    if effect is None:
        return NONE
    text = shown(effect["relative"], signed_percent_text)
    text = f"<b>{text}</b>" if effect["significant"] else text
    if effect["relative_low"] is None:
        return text
    low, high = (shown(effect[key], signed_percent_text) for key in ("relative_low", "relative_high"))
    return f'{text} <span class="interval">[{low}, {high}]</span>'


def _mark(kept: bool | None) -> str:
    return NONE if kept is None else '<span class="pass">✓</span>' if kept else '<span class="fail">✗</span>'
