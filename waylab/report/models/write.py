"""Writes figures of models: one SVG or PNG, or an offline page that follows the reader's colour scheme."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import altair as alt
import vl_convert

from waylab.errors import LabError
from waylab.report.models.figure import DARK, LIGHT, PAGE, ModelFigure, config
from waylab.report.page.offline import charts_as_json, document

_PNG_SCALE = 2.0
# Drawings keep their size, so that their labels keep their places; wide drawings scroll.
_STYLE = ".chart { overflow-x: auto; } figure { margin: 0 0 2rem; } figcaption, li { max-width: 46rem; }"


def write_figures(
    figures: Sequence[ModelFigure], path: Path, title: str, words: Sequence[str] = (), dark: bool = False
) -> None:
    """Write figures to a file in the format of its suffix.

    Raises:
        LabError: when the file cannot be written.
    """
    try:
        if path.suffix == ".html":
            path.write_text(_page(figures, title, words, dark), encoding="utf-8")
            return
        svg = picture(figures, dark)
        if path.suffix == ".svg":
            path.write_text(svg, encoding="utf-8")
        else:
            path.write_bytes(vl_convert.svg_to_png(svg, scale=_PNG_SCALE))
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None


def picture(figures: Sequence[ModelFigure], dark: bool = False) -> str:
    """Return all figures as one SVG, one below the other."""
    chart = figures[0].chart
    if len(figures) > 1:
        chart = alt.vconcat(*(figure.chart for figure in figures)).resolve_scale(
            color="independent", fill="independent", strokeDash="independent", shape="independent"
        )
    specification = chart.to_dict()
    specification["config"] = config(DARK if dark else LIGHT)
    return vl_convert.vegalite_to_svg(specification)


def _page(figures: Sequence[ModelFigure], title: str, words: Sequence[str], dark: bool) -> str:
    drawn = "".join(
        f'<figure id="figure-{f.name}"><div class="chart" id="chart-{f.name}" role="img" '
        f'aria-label="{escape(f.title)}"></div><figcaption>{escape(f.caption)}</figcaption></figure>'
        for f in figures
    )
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in words)
    style = _STYLE + (_dark_colours() if dark else "")
    return document(title, "", f"{drawn}<ul>{said}</ul>", _specifications(figures), style, dark)


def _dark_colours() -> str:
    text, background = DARK
    return f":root {{ --text: {text}; --soft: #a0a8b0; --back: {background}; --line: #3a4047; --panel: #1d2126; }}"


def _specifications(figures: Sequence[ModelFigure]) -> str:
    return charts_as_json(
        {figure.name: figure.chart.to_dict() | {"config": config(PAGE)} for figure in figures}
    )
