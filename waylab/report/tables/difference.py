"""Tables of differences: announced comparisons, changes against the base case, effects of the factors."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import (
    NONE,
    percent_text,
    rate_text,
    ratio_text,
    shown,
    signed_percent_text,
    time_text,
)
from waylab.report.tables.table import table
from waylab.runfolder.analysis import Change, Comparison
from waylab.runfolder.effects import Effect, Share
from waylab.runfolder.metric_words import metric_words
from waylab.runfolder.words import level_text

# Between these ratios a change is shown in percent.
_NEAR = (0.4, 2.5)


def comparison_name(comparison: Comparison) -> str:
    """Name metric and levels of a comparison: `throughput: 3 replicas / 1 replica`."""
    of, to = (level_text(comparison.factor, label) for label in (comparison.candidate, comparison.baseline))
    return f"{metric_words(comparison.metric)}: {of} / {to}"


def comparisons_table(content: Content) -> str:
    """Every comparison, overall and by the levels of the other factors."""
    rows = []
    for c in content.analysis.comparisons:
        time = time_text if c.metric.endswith("_ns") or "cpu" in c.metric else rate_text
        parts = [("all", c.overall), *((part.levels, part) for part in c.strata if part.levels)]
        for levels, part in parts:
            overall = part is c.overall
            rows.append(
                [
                    escape(comparison_name(c)),
                    escape(levels),
                    shown(c.baseline_value.mean, time) if overall else "",
                    shown(c.candidate_value.mean, time) if overall else "",
                    shown(part.ratio, ratio_text),
                    f"{shown(part.low, ratio_text)} to {shown(part.high, ratio_text)}",
                    shown(part.blocks),
                    {True: "excludes 1", False: "includes 1", None: NONE}[part.excludes_1],
                    {True: "shown", False: "not shown", None: NONE}[part.equivalent],
                ]
            )
    headings = [
        "comparison",
        "where",
        "baseline, mean",
        "candidate, mean",
        "ratio",
        "95 % interval",
        "blocks",
        "interval",
        "equivalence",
    ]
    return table(headings, rows, "Paired within blocks on the log scale; the block is the unit.")


def percent_change(ratio: float) -> str:
    """Write a ratio as a change in percent."""
    return f"{100 * (ratio - 1):+.1f} %"


def multiple(ratio: float) -> str:
    """Write a ratio as a multiple, which is easier to read where it is far from 1."""
    return f"× {ratio:.3g}"


def change_table(content: Content) -> str:
    """Every configuration against the base case; nothing for a single configuration."""
    changes = content.analysis.changes
    if not changes.entries:
        return ""
    found: dict[str, dict[str, Change]] = {}
    for entry in changes.entries:
        found.setdefault(entry.name, {})[entry.metric] = entry
    rows = [
        [escape(content.label(name)), *(_change(entries.get(metric)) for metric in changes.metrics)]
        for name, entries in found.items()
        if name != changes.base
    ]
    base = content.label(changes.base) if changes.base else NONE
    words = (
        f"Against the base case, {base}: geometric means of the ratios within blocks, with 95 % intervals. "
        f"Bold where the ratio differs from 1 at 5 % for all {changes.family} ratios of the table (Holm)."
    )
    headings = ["configuration", *changes.metrics.values()]
    return f"<h3>Change against the base case</h3>{table(headings, rows, words)}"


def factorial_tables(content: Content) -> str:
    """Shares of the variation of every metric side by side, and the effects of each."""
    metrics = content.analysis.factorial.metrics
    if not metrics:
        return ""
    names = list(dict.fromkeys(part.name for metric in metrics for part in metric.shares))
    by_metric = [{part.name: part for part in metric.shares} for metric in metrics]
    rows = [[escape(name), *(_share(parts.get(name)) for parts in by_metric)] for name in names]
    titles = [metric.title for metric in metrics]
    text = "<h3>Which factor matters</h3>"
    text += table(
        ["factor or interaction", *titles], rows, "Share of the variation; bold where the effect is clear."
    )
    effects = list(dict.fromkeys(effect.name for metric in metrics for effect in metric.effects))
    known = [{effect.name: effect for effect in metric.effects} for metric in metrics]
    rows = [[escape(name), *(_effect(parts.get(name)) for parts in known)] for name in effects]
    words = "Ratio to the first level, minus 1, with 95 % intervals; bold if clear in its column (Holm)."
    text += table(["effect", *titles], rows, words)
    aliases = {effect.name: effect.aliases for effect in metrics[0].effects if effect.aliases}
    if aliases:
        said = "; ".join(f"{name} with {', '.join(others)}" for name, others in aliases.items())
        text += f'<p class="note">The design is a fraction and cannot tell apart: {escape(said)}.</p>'
    words = "Model: logarithm = configuration + block + error, the same as of every comparison."
    return text + f'<p class="soft small">{words}</p>'


def _change(entry: Change | None) -> str:
    if entry is None:
        return NONE
    numbers = [number for number in (entry.ratio, entry.low, entry.high) if number is not None]
    near = all(_NEAR[0] < number < _NEAR[1] for number in numbers)
    text, *bounds = (shown(number, percent_change if near else multiple) for number in numbers)
    text = f"<b>{text}</b>" if entry.excludes_1 else text
    return f'{text} <span class="interval">[{", ".join(bounds)}]</span>' if bounds else text


def _share(part: Share | None) -> str:
    if part is None:
        return NONE
    text = shown(part.share, percent_text)
    return f"<b>{text}</b>" if part.significant else text


def _effect(effect: Effect | None) -> str:
    if effect is None:
        return NONE
    text = shown(effect.relative, signed_percent_text)
    text = f"<b>{text}</b>" if effect.significant else text
    if effect.relative_low is None:
        return text
    low, high = (shown(bound, signed_percent_text) for bound in (effect.relative_low, effect.relative_high))
    return f'{text} <span class="interval">[{low}, {high}]</span>'
