"""Factorial designs: effects with intervals, shares of the variation, and the plots that check the residuals."""

import altair as alt

from waylab.report.figures import style
from waylab.report.figures.figure import Figure, pick, values
from waylab.report.figures.rows import Row, distinct
from waylab.report.page.content import Content
from waylab.runfolder.effects import FactorialMetric

_ROW_HEIGHT = 26
_CLEAR = {True: "interval excludes 0", False: "interval includes 0", None: "no interval"}
_PLOTS = (
    ("order", "residuals-order", "Residuals in the order of the trials", "order of the trial"),
    (
        "previous",
        "residuals-previous",
        "Residuals against those of the trial before",
        "residual of the trial before",
    ),
    ("fitted", "residuals-spread", "Residuals against what the model says", "fitted"),
    ("normal", "residuals-normal", "Residuals against the normal distribution", "normal quantile"),
)
_WORDS = {
    "order": "A slope or a curve would be a drift of the machine.",
    "previous": "A slope would mean that trials are not independent of the one before.",
    "fitted": "A funnel would mean that the spread grows with the response, so that effects multiply.",
    "normal": "On a straight line when the errors are normal.",
}


def effects(content: Content) -> list[Figure]:
    """Effects and shares of the variation, if the design allows a factorial analysis."""
    found = content.analysis.factorial
    titles = [metric.title for metric in found.metrics]
    if not titles:
        return []
    return [_effects(found.metrics, titles), _variation(found.metrics, titles)]


def residuals(content: Content) -> list[Figure]:
    """Plots that check the residuals of the factorial model."""
    metrics = content.analysis.factorial.metrics
    titles = [metric.title for metric in metrics]
    drawn = (_residuals(content, titles, plot) for plot in _PLOTS) if metrics else ()
    return [figure for figure in drawn if figure]


def _axis() -> alt.Axis:
    """Write numbers below 10 as they are, and larger ones with a prefix: 0.5 rather than 500m."""
    return alt.Axis(
        labelExpr="abs(datum.value) < 10 ? format(datum.value, '.3~g') : format(datum.value, '.3~s')"
    )


def _effects(metrics: list[FactorialMetric], titles: list[str]) -> Figure:
    rows: list[Row] = [
        {
            "title": metric.title,
            "name": effect.name,
            "rank": rank,
            "relative": effect.relative,
            "relative_low": effect.relative_low,
            "relative_high": effect.relative_high,
            "clear": _CLEAR[effect.significant],
        }
        for metric in metrics
        for rank, effect in enumerate(metric.effects)
    ]
    parameter, condition = pick("title", "metric", titles, titles[0])
    kinds = distinct(rows, "clear")
    base = (
        alt.Chart(values(rows))
        .transform_filter(condition)
        .encode(
            y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color("clear:N", title=None, scale=style.colour(kinds), legend=alt.Legend(columns=1)),
            tooltip=[
                "name:N",
                *(
                    alt.Tooltip(f"{key}:Q", format="+.2%")
                    for key in ("relative", "relative_low", "relative_high")
                ),
            ],
        )
    )
    title = "ratio to the first level, minus 1"
    axis = alt.Axis(format="+.0~%")
    zero = (
        alt.Chart(values([{"ratio": 1}]))
        .mark_rule(strokeDash=[4, 4], opacity=0.6)
        .encode(x=alt.datum(0), color=alt.value(style.COLOURS[6]))
    )
    bars = base.transform_filter("isValid(datum.relative_low)").mark_rule(strokeWidth=3)
    bars = bars.encode(x=alt.X("relative_low:Q", title=title, axis=axis), x2="relative_high:Q")
    points = base.mark_point(filled=True).encode(x=alt.X("relative:Q", title=title, axis=axis))
    caption = "The ratio to the first level, minus 1, with 95 % intervals; of interactions ratios of ratios."
    count = max(len(metric.effects) for metric in metrics)
    return Figure(
        "factorial-effects",
        "Effects of the factors",
        caption,
        alt.layer(zero, bars, points).add_params(parameter),
        height=60 + _ROW_HEIGHT * count,
    )


def _variation(metrics: list[FactorialMetric], titles: list[str]) -> Figure:
    rows: list[Row] = [
        {"title": metric.title, "name": part.name, "share": part.share}
        for metric in metrics
        for part in metric.shares
    ]
    parameter, condition = pick("title", "metric", titles, titles[0])
    bars = (
        alt.Chart(values(rows))
        .transform_filter(condition)
        .mark_bar(color=style.COLOURS[0])
        .encode(
            x=alt.X("share:Q", title="share of the variation", axis=alt.Axis(format=".0%")),
            y=alt.Y("name:N", title=None, sort="-x", axis=alt.Axis(labelLimit=220)),
            tooltip=["name:N", alt.Tooltip("share:Q", format=".2%")],
        )
    )
    caption = (
        "How much of the variation of all trials each factor and interaction explains; the error is the rest."
    )
    count = max(len(metric.shares) for metric in metrics)
    return Figure(
        "factorial-variation",
        "Share of the variation",
        caption,
        bars.add_params(parameter),
        height=60 + _ROW_HEIGHT * count,
    )


def _residuals(content: Content, titles: list[str], plot: tuple[str, str, str, str]) -> Figure | None:
    field, name, title, axis = plot
    rows: list[Row] = [
        {
            "title": metric.title,
            "configuration": content.label(point.configuration),
            "residual": point.residual,
            "along": getattr(point, field),
        }
        for metric in content.analysis.factorial.metrics
        for point in metric.residuals
        if getattr(point, field) is not None
    ]
    if not rows:
        return None
    parameter, condition = pick("title", "metric", titles, titles[0])
    zero = alt.Chart(values([{"ratio": 1}])).mark_rule(strokeDash=[4, 4], opacity=0.6)
    zero = zero.encode(y=alt.datum(0), color=alt.value(style.COLOURS[6]))
    scale = alt.Scale(zero=False, nice=True)
    points = (
        alt.Chart(values(rows))
        .transform_filter(condition)
        .mark_point(filled=True, size=40, color=style.COLOURS[0])
        .encode(
            x=alt.X("along:Q", title=axis, scale=scale, axis=_axis()),
            y=alt.Y("residual:Q", title="residual", axis=_axis()),
            tooltip=["configuration:N", alt.Tooltip("residual:Q", format=".4~g")],
        )
    )
    return Figure(name, title, _WORDS[field], alt.layer(zero, points).add_params(parameter), height=240)
