"""A configuration over time, second by second, with the warm-up that was cut off and the one that was found."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import Figure, busiest, milliseconds, pick, values
from waylab.report.figures.rows import Row, distinct
from waylab.report.page.content import Content


def traces(content: Content) -> list[Figure]:
    """Throughput and response time over time, one line for each block."""
    found = [
        (content.label(trial.configuration), f"block {trial.block}", trial.numbers.trace)
        for trial in content.analysis.trials
        if trial.used and trial.numbers and trial.numbers.trace
    ]
    if not found:
        return []
    rows: list[Row] = [
        {
            "name": name,
            "block": block,
            "second": second.second,
            "throughput_per_s": second.throughput_per_s,
            "response_mean_ns": second.response_mean_ns,
            "response_p99_ns": second.response_p99_ns,
        }
        for name, block, trace in found
        for second in trace.seconds
    ]
    marks: list[Row] = [
        {
            "name": name,
            "block": block,
            "measured_from": trace.measured_from,
            "settled_from": trace.settled_from,
        }
        for name, block, trace in found
    ]
    caption = (
        "Each whole second of the trials, one line for each block. Grey: measuring begins. Dotted: the warm-up that "
        "MSER-5 finds ends here, where that is later; none where the trial is too short to tell."
    )
    figures = [
        _trace(
            content, rows, marks, ("throughput_per_s", "throughput_per_s", "throughput (requests/s)"), caption
        )
    ]
    if any(row["response_mean_ns"] is not None for row in rows):
        figures.append(
            _trace(
                content,
                rows,
                marks,
                ("response_mean_ns", "response_mean_ms", "mean response time (ms)"),
                caption,
            )
        )
    return figures


def _trace(
    content: Content,
    rows: list[Row],
    marks: list[Row],
    field: tuple[str, str, str],
    caption: str,
) -> Figure:
    raw, shown, title = field
    names = distinct(rows, "name")
    blocks = sorted(distinct(rows, "block"), key=lambda name: int(name.split()[1]))
    first = content.label(busiest(content).name)
    parameter, condition = pick("name", "configuration", names, first if first in names else names[0])
    data = alt.Chart(values(rows))
    data = milliseconds(data, raw) if raw.endswith("_ns") else data
    x = alt.X("second:Q", title="time in the trial (s)", scale=alt.Scale(nice=False))
    legend = alt.Legend(columns=style.columns(blocks)) if len(blocks) > 1 else None
    colour = alt.Color("block:N", title=None, scale=style.colour(blocks), sort=blocks, legend=legend)
    lines = (
        data.transform_filter(condition)
        .mark_line(point=alt.OverlayMarkDef(size=12), strokeWidth=1.4)
        .encode(
            x=x,
            y=alt.Y(f"{shown}:Q", title=title, scale=alt.Scale(zero=True)),
            color=colour,
            tooltip=["block:N", "second:Q", alt.Tooltip(f"{shown}:Q", format=",.4~g")],
        )
    )
    base = alt.Chart(values(marks)).transform_filter(condition)
    begins = base.mark_rule(color=style.COLOURS[6], strokeWidth=1).encode(x="measured_from:Q")
    steady = (
        base.transform_filter("isValid(datum.settled_from) && datum.settled_from > datum.measured_from")
        .mark_rule(strokeDash=[2, 3], strokeWidth=1.5)
        .encode(x="settled_from:Q", color=colour)
    )
    what = "throughput" if raw == "throughput_per_s" else "response"
    heading = "Throughput over time" if what == "throughput" else "Response time over time"
    chart = alt.layer(begins, steady, lines).add_params(parameter)
    return Figure(f"trace-{what}", heading, caption, chart)
