"""Colours, marks and text sizes of all figures: readable in light and dark, and without colour vision."""

from typing import Any

import altair as alt

# Okabe and Ito's palette without black and yellow, which vanish on one of the two backgrounds.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1], [1, 3], [10, 4]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]

WIDTH = 640
HEIGHT = 340


ON_WHITE = "#222222"
"""The colour of text in files and notebooks, which have a white background."""


def config(text: str) -> dict[str, Any]:
    """Return the configuration of a figure; `currentColor` follows the page, a real colour is for files."""
    axis: dict[str, object] = {
        "labelColor": text,
        "titleColor": text,
        "tickColor": text,
        "domainColor": text,
        "gridColor": text,
        "gridOpacity": 0.15,
        "domainOpacity": 0.5,
        "tickOpacity": 0.5,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    legend: dict[str, object] = {
        "labelColor": text,
        "titleColor": text,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "labelLimit": 320,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
        "columns": 3,
        "layout": {"top": {"direction": "vertical", "anchor": "start"}},
    }
    return {
        "background": "transparent" if text == "currentColor" else "white",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": axis,
        "legend": legend,
        "header": {"labelColor": text, "titleColor": text},
        "text": {"color": text},
        "line": {"strokeWidth": 2},
        "point": {"size": 60, "filled": True},
        "rule": {"strokeWidth": 1.5},
    }


def columns(names: list[str]) -> int:
    """How many names of a legend stand side by side, even on a phone."""
    longest = max((len(name) for name in names), default=0)
    return 1 if longest > 24 else 2 if longest > 12 else 3


def colour(domain: list[str]) -> alt.Scale:
    """Scale of colours for named things."""
    return alt.Scale(domain=domain, range=[COLOURS[i % len(COLOURS)] for i in range(len(domain))])


def dash(domain: list[str]) -> alt.Scale:
    """Scale of dashes for named things."""
    return alt.Scale(domain=domain, range=[DASHES[i % len(DASHES)] for i in range(len(domain))])


def shape(domain: list[str]) -> alt.Scale:
    """Scale of marks for named things."""
    return alt.Scale(domain=domain, range=[SHAPES[i % len(SHAPES)] for i in range(len(domain))])


def chart_config() -> dict[str, Any]:
    """Return the configuration for a chart of Altair itself, which knows fewer keys than Vega-Lite does."""
    found = config(ON_WHITE)
    return {**found, "legend": {key: value for key, value in found["legend"].items() if key != "layout"}}
