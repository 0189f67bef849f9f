"""Queue length and misses, and every configuration relative to the base case."""

from collections.abc import Sequence

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import (
    INTERVALS,
    LOG,
    AnyChart,
    Figure,
    dashed_lines,
    legend,
    pick_operation,
    values,
    x_axis,
)
from waylab.report.figures.rows import Row, any_positive, distinct
from waylab.report.page.content import Content
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.numbers import Interval

_THROUGHPUT = {"throughput_per_s": "all"}
_RESPONSE = {"response_mean_ns": "all"}
_RESPONSE_APART = {"response_get_mean_ns": "get", "response_set_mean_ns": "set"}


def queue_length(content: Content) -> Figure | None:
    """What requests find ahead of them at the proxy; nothing where none ever waited."""
    rows = [_row(c, c.queue_length.mean) for c in content.configurations if c.queue_length is not None]
    if not any_positive(rows, "ratio"):
        return None
    caption = (
        "Requests that wait or are in flight ahead of an arriving request, mean over requests and trials: in the "
        "queue that it joins, or on its connection in the discipline pipelined. "
        f"{INTERVALS}"
    )
    chart = _lines(content, rows, alt.Y("ratio:Q"), ("requests ahead", ".2f"))
    return Figure("queue-length", "Queue length", caption, chart)


def miss_ratio(content: Content) -> Figure | None:
    """Share of the keys read that were not found; nothing where all were."""
    rows = [_row(c, c.miss_ratio) for c in content.configurations if c.miss_ratio.mean is not None]
    if not any_positive(rows, "ratio"):
        return None
    y = alt.Y("ratio:Q", axis=alt.Axis(format=".2~%"))
    caption = "Of the keys read; mean over trials with 95 % intervals."
    return Figure(
        "miss-ratio", "Misses", caption, _lines(content, rows, y, ("share of keys not found", ".3%"))
    )


def relative(content: Content) -> list[Figure]:
    """Throughput and response times as multiples of those of the base case."""
    apart = set(_RESPONSE_APART) <= set(content.analysis.changes.metrics)
    found = (
        _relative(content, _THROUGHPUT, "relative-throughput", "Throughput relative to the base case"),
        _relative(
            content,
            _RESPONSE_APART if apart else _RESPONSE,
            "relative-response",
            "Response time relative to the base case",
        ),
    )
    return [figure for figure in found if figure is not None]


def _relative(content: Content, metrics: dict[str, str], name: str, title: str) -> Figure | None:
    """Draw the changes of one metric, or of the same metric of several operations to choose from."""
    changes = content.analysis.changes
    rows: list[Row] = [
        {
            "x": e.x,
            "series": e.series,
            "operation": metrics[e.metric].upper(),
            "ratio": e.ratio,
            "low": e.low,
            "high": e.high,
        }
        for e in changes.entries
        if e.metric in metrics
    ]
    if not rows:
        return None
    scale = alt.Scale(type="log", base=2, nice=False, padding=14)
    y = alt.Y("ratio:Q", scale=scale, axis=alt.Axis(format="~g"))
    one = (
        alt.Chart(values([{"ratio": 1}]))
        .mark_rule(strokeDash=[4, 4], opacity=0.6)
        .encode(y="ratio:Q", color=alt.value(style.COLOURS[6]))
    )
    base = content.label(changes.base) if changes.base else "none"
    caption = (
        f"Base case: {base}. Ratios in pairs within blocks, with 95 % intervals (t) on the log scale; "
        "the dashed line is the base case itself."
    )
    operations = list(metrics.values())
    _, lists, further = pick_operation(alt.Chart(values(rows)), operations)
    drawn = _lines(content, rows, y, (f"ratio to the base case ({LOG})", ".3f"), one, operations=operations)
    return Figure(name, title, caption, drawn.add_params(*lists), further=further)


def _row(configuration: Configuration, found: Interval) -> Row:
    return {
        "x": configuration.x,
        "series": configuration.series,
        "ratio": found.mean,
        "low": found.low,
        "high": found.high,
    }


def _lines(
    content: Content,
    rows: list[Row],
    y: alt.Y,
    words: tuple[str, str],
    *behind: alt.Chart,
    operations: Sequence[str] = (),
) -> AnyChart:
    title, form = words
    y = y.title(title)
    names = distinct(rows, "series")
    chosen = alt.selection_point(fields=["series"], bind="legend")
    base = pick_operation(alt.Chart(values(rows)), list(operations))[0].encode(
        x=x_axis(content),
        color=alt.Color("series:N", title=None, scale=style.colour(names), legend=legend(content)),
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.15)),
        tooltip=[
            "series:N",
            alt.Tooltip("x:N", title=content.axes.x or "configuration"),
            *(alt.Tooltip(f"{key}:Q", format=form) for key in ("ratio", "low", "high")),
        ],
    )
    bars = base.transform_filter("isValid(datum.low)").mark_rule(clip=True)
    bars = bars.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    shape = alt.Shape("series:N", title=None, scale=style.shape(names), legend=legend(content))
    layers = dashed_lines(base.encode(y=y), "series", names) if content.axes.numeric else []
    return alt.layer(*behind, *layers, bars, base.mark_point(opacity=1).encode(y=y, shape=shape)).add_params(
        chosen
    )
