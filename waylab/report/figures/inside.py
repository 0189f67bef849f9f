"""Figures of what goes on inside: stages, both views, CPU time, models, comparisons."""

import altair as alt

from waylab.predict import descriptions
from waylab.report.figures import style
from waylab.report.figures.figure import (
    LOG,
    Figure,
    legend,
    log_axis,
    milliseconds,
    quantity_axis,
    values,
    x_axis,
)
from waylab.report.figures.rows import Row, distinct, ratio_columns
from waylab.report.figures.stacked import Unit, stacked
from waylab.report.page.content import Content
from waylab.report.tables.difference import comparison_name
from waylab.runfolder.trial_numbers import STAGES, TOTAL

_STAGES = list(STAGES)


def stage_times(content: Content) -> list[Figure]:
    """Mean time in each stage of the proxy: as shares of the total, and stacked to the total."""
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "part": stage,
            "rank": _STAGES.index(stage),
            "mean_ns": numbers.mean_ns.mean,
        }
        for c in content.configurations
        if "all" in c.stages
        for stage, numbers in c.stages["all"].stages.items()
        if stage in _STAGES
    ]
    if not rows:
        return []
    totals: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "mean_ns": c.stages["all"].stages[TOTAL].mean_ns.mean,
        }
        for c in content.configurations
        if "all" in c.stages
    ]
    caption = f"The stages of a request in the {content.middle}; they add up exactly to the time from its receipt to "
    caption += "its reply, which is written above each bar. "
    caption += (
        "The stage queue is the wait for a connection or lane; the stage backend is the database."
        if content.middle == "service"
        else "The stage queue is zero in the discipline pipelined."
    )
    title = f"Mean time per stage in the {content.middle}"
    share, time = Unit("share", "ms", 1e6, shares=True), Unit(f"mean time in the {content.middle}", "ms", 1e6)
    return [
        Figure(
            "stage-shares",
            f"Where the time in the {content.middle} goes",
            caption,
            stacked(content, rows, totals, _STAGES, share),
        ),
        Figure("stage-times", title, caption, stacked(content, rows, totals, _STAGES, time)),
    ]


def both_views(content: Content) -> Figure | None:
    """The client's and the proxy's view of the same requests."""
    rows: list[Row] = [
        {"x": c.x, "series": c.series, "view": view, "mean_ns": found.mean}
        for c in content.configurations
        if c.proxy_view is not None
        for view, found in (
            ("client", c.proxy_view.client_mean_ns),
            (content.middle, c.proxy_view.proxy_mean_ns),
            ("difference", c.proxy_view.difference_mean_ns),
        )
    ]
    if not rows:
        return None
    views = ["client", content.middle, "difference"]
    chart = milliseconds(alt.Chart(values(rows)), "mean_ns").encode(
        x=x_axis(content),
        y=quantity_axis("mean_ms:Q", "mean time", "ms", rows, "mean_ns"),
        color=alt.Color("view:N", title=None, scale=style.colour(views), sort=views),
        detail="series:N",
        tooltip=["series:N", "x:N", "view:N", alt.Tooltip("mean_ms:Q", format=".3f")],
    )
    dashes = alt.StrokeDash("series:N", title=None, scale=style.dash(content.series), legend=legend(content))
    shapes = alt.Shape("view:N", title=None, scale=style.shape(views), sort=views)
    layers = [chart.mark_line().encode(strokeDash=dashes)] if content.axes.numeric else []
    caption = (
        "The same requests seen from both ends (records joined on port and sequence). The difference is what the "
        f"{content.middle} cannot see: the network, and waiting for a CPU."
    )
    return Figure(
        "both-views",
        f"Response time seen by the client and by the {content.middle}",
        caption,
        alt.layer(*layers, chart.mark_point(opacity=1).encode(shape=shapes)),
    )


def cpu_time(content: Content) -> Figure | None:
    """CPU time per request, by program."""
    plans = sorted((trial.description.programs for trial in content.run.plan), key=len, reverse=True)
    roles = list(dict.fromkeys(["load", *(role for programs in plans for role in programs)]))
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "part": role,
            "rank": roles.index(role),
            "mean_ns": c.cpu_per_request_ns[role].mean,
        }
        for c in content.configurations
        for role in roles
        if role in c.cpu_per_request_ns
    ]
    if not rows:
        return None
    totals: list[Row] = [
        {"x": c.x, "series": c.series, "mean_ns": c.cpu_per_request_ns["total"].mean}
        for c in content.configurations
        if "total" in c.cpu_per_request_ns
    ]
    bars = stacked(content, rows, totals, distinct(rows, "part"), Unit("CPU time per request", "µs", 1e3))
    caption = "User and system time of each program in the measured window, by the requests of that window."
    return Figure("cpu-time", "CPU time per request", caption, bars)


def models(content: Content) -> Figure | None:
    """Response times of the models beside the measured ones."""
    rows: list[Row] = [
        {
            "x": c.x,
            "series": c.series,
            "model": "measured",
            "mean_ns": c.operations["all"].response_mean_ns.mean,
        }
        for c in content.configurations
        if "all" in c.operations
    ]
    names = ["measured"]
    for entry in content.predictions.entries:
        if entry.predicted is not None:
            names += [entry.model] if entry.model not in names else []
            rows.append(
                {
                    "x": entry.x,
                    "series": entry.series,
                    "model": entry.model,
                    "mean_ns": entry.predicted.response_mean_ns,
                }
            )
    if len(names) == 1:
        return None
    chosen = alt.selection_point(fields=["series"], bind="legend")
    chart = milliseconds(alt.Chart(values(rows)), "mean_ns").encode(
        x=x_axis(content),
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.1)),
        y=alt.Y(
            "mean_ms:Q",
            title=f"mean response time (ms, {LOG})",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=log_axis(),
        ),
        color=alt.Color(
            "model:N",
            title=None,
            scale=style.colour(names),
            sort=names,
            legend=alt.Legend(columns=style.columns(names)),
        ),
        detail="series:N",
        tooltip=["model:N", "series:N", "x:N", alt.Tooltip("mean_ms:Q", format=".4f")],
    )
    shapes = alt.Shape("model:N", title=None, scale=style.shape(names), sort=names)
    dashes = alt.StrokeDash("series:N", title=None, scale=style.dash(content.series), legend=legend(content))
    layers = [chart.mark_line().encode(strokeDash=dashes)] if content.axes.numeric else []
    caption = (
        "A model is missing if its assumptions do not hold (mostly: utilisation not below 1); "
        "the table says which. Click a name of a line to single it out."
    )
    described = [name for name in names if name in descriptions(content.predictions)]
    if described:
        caption += (
            f" These lines describe configurations that the model was fitted to: {', '.join(described)}."
        )
    return Figure(
        "models",
        "Predicted and measured response time",
        caption,
        alt.layer(*layers, chart.mark_point().encode(shape=shapes)).add_params(chosen),
    )


def comparisons(content: Content) -> Figure | None:
    """Ratios of the comparisons with their intervals."""
    rows: list[Row] = [
        {
            "name": comparison_name(c),
            **ratio_columns(c.overall),
        }
        for c in content.analysis.comparisons
        if c.overall.ratio is not None
    ]
    if not rows:
        return None
    base = alt.Chart(values(rows)).encode(
        y=alt.Y(
            "name:N",
            title=None,
            sort=None,
            axis=alt.Axis(labelLimit=260, labelExpr="split(datum.label, ': ')"),
        ),
        color=alt.value(style.COLOURS[0]),
        tooltip=["name:N", *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("ratio", "low", "high"))],
    )
    ratio = alt.X("ratio:Q", title="ratio, candidate to baseline", scale=alt.Scale(zero=False))
    one = (
        alt.Chart(values([{"ratio": 1}]))
        .mark_rule(strokeDash=[4, 4], opacity=0.6)
        .encode(x="ratio:Q", color=alt.value(style.COLOURS[6]))
    )
    bars = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule()
        .encode(x=alt.X("low:Q", title="ratio, candidate to baseline"), x2="high:Q")
    )
    caption = (
        "Paired within blocks on the log scale; thin lines are 95 % confidence intervals across blocks. "
        "The dashed line is no difference."
    )
    return Figure(
        "comparisons",
        "Comparisons",
        caption,
        alt.layer(one, bars, base.mark_point(opacity=1).encode(x=ratio)),
        height=60 + 50 * len(rows),
    )
