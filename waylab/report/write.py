"""Writes the report of a run: `report.html`, and every figure as SVG and PNG."""

from dataclasses import replace
from pathlib import Path

import vl_convert

from waylab.errors import LabError
from waylab.report.figures import DRAWERS, Figure, style
from waylab.report.figures.figure import OPERATION
from waylab.report.page.content import Content, read_content
from waylab.report.page.html import page
from waylab.runfolder import paths
from waylab.runfolder.files import write_bytes

_PNG_SCALE = 2.0


def write_report(directory: Path) -> Path:
    """Write the page and the figures; return the path of the page."""
    content = read_content(directory)
    figures = draw(content)
    target = directory / paths.FIGURES
    try:
        target.mkdir(exist_ok=True)
        # Removes only drawings of an earlier report: any other file in the folder belongs to the user.
        for old in (*target.glob("*.svg"), *target.glob("*.png")):
            old.unlink()
    except OSError as error:
        raise LabError(f"{target}: cannot be written: {error.strerror}") from None
    for figure in figures:
        _save(figure, target)
    path = directory / paths.REPORT
    write_bytes(path, page(content, figures).encode())
    return path


def draw(content: Content) -> list[Figure]:
    """Draw the figures for which there are data."""
    if not content.configurations:
        return []
    figures: list[Figure] = []
    for group, drawers in DRAWERS.items():
        for drawer in drawers:
            drawn = drawer(content)
            several = drawn if isinstance(drawn, list) else [drawn] if drawn is not None else []
            figures += [replace(figure, group=group) for figure in several]
    return figures


def _save(figure: Figure, target: Path) -> None:
    """Write a figure as SVG and PNG, and once more for each further operation that the page can choose."""
    specification = figure.titled.to_dict()
    specification["config"] = style.config(style.ON_WHITE)
    for suffix, chosen in {"": "", **figure.further}.items():
        name = f"{figure.name}-{suffix}" if suffix else figure.name
        for parameter in specification.get("params", []):
            if parameter["name"] == f"picked_{OPERATION}":
                parameter["value"] = chosen or parameter["value"]
                specification["title"] = f"{figure.title}, {parameter['value']}"
        svg = vl_convert.vegalite_to_svg(specification)
        write_bytes(target / f"{name}.svg", svg.encode())
        write_bytes(target / f"{name}.png", vl_convert.svg_to_png(svg, scale=_PNG_SCALE))
