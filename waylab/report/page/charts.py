"""Figures within the page: their places, and their charts as JSON that the page's script draws."""

from collections.abc import Mapping, Sequence
from html import escape

from waylab.report.figures import Figure, style
from waylab.report.page.offline import Chart, charts_as_json


def figure_html(figure: Figure, caption: bool = True) -> str:
    """Return the place of a figure with its words; the script draws the chart."""
    words = f"<figcaption>{escape(figure.caption)}</figcaption>" if caption else ""
    return (
        f'<figure id="figure-{figure.name}"><h3>{escape(figure.title)}</h3>'
        f'<div class="chart" id="chart-{figure.name}" role="img" '
        f'aria-label="{escape(figure.title)}. {escape(figure.caption)}"></div>{words}</figure>'
    )


def specifications(figures: Sequence[Figure], heights: Mapping[str, int]) -> str:
    """Return every chart as JSON; `heights` are those of figures that are smaller than usual."""
    charts: dict[str, Chart] = {}
    for figure in figures:
        height = heights.get(figure.name, figure.height)
        chart = figure.chart.properties(width="container", height=height).to_dict()
        chart["config"] = style.config("currentColor")
        chart["autosize"] = {"type": "fit-x", "contains": "padding"}
        charts[figure.name] = chart
    return charts_as_json(charts)
