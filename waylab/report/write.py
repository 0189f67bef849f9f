"""Writes the report of a run: `report.html`, and every figure as SVG and PNG."""

import shutil
from pathlib import Path

import vl_convert

from waylab.report.figures import DRAWERS, Figure, style
from waylab.report.page.content import Content, read_content
from waylab.report.page.html import page
from waylab.runfolder import paths

_PNG_SCALE = 2.0


def write_report(directory: Path) -> Path:
    """Write the page and the figures; return the path of the page."""
    content = read_content(directory)
    figures = draw(content)
    target = directory / paths.FIGURES
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for figure in figures:
        _save(figure, target)
    path = directory / paths.REPORT
    temporary = path.with_suffix(".partial")
    temporary.write_text(page(content, figures), encoding="utf-8")
    temporary.replace(path)
    return path


def draw(content: Content) -> list[Figure]:
    """Draw the figures for which there are data."""
    if not content.configurations:
        return []
    figures: list[Figure] = []
    for drawer in DRAWERS:
        drawn = drawer(content)
        figures += drawn if isinstance(drawn, list) else [drawn] if drawn is not None else []
    return figures


def _save(figure: Figure, target: Path) -> None:
    specification = figure.chart.properties(
        width=style.WIDTH, height=figure.height, title=figure.title
    ).to_dict()
    specification["config"] = style.config("#222222")
    svg = vl_convert.vegalite_to_svg(specification)
    (target / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
    (target / f"{figure.name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=_PNG_SCALE))
