"""The common part of all drawings of models: a chart with its own size, and colours for light and dark."""

from dataclasses import dataclass
from typing import Any

import altair as alt

from waylab.report.figures import style

# A row of a chart's data.
Row = dict[str, object]

# Text and background: as in the page's style sheet.
LIGHT = ("#222222", "white")
DARK = ("#e6e8ea", "#14171a")
PAGE = ("currentColor", "var(--back)")

# Utilisation: one hue of growing strength, visible without colour vision and on both backgrounds.
IDLE = "rgba(213, 94, 0, 0.03)"
BUSY = "rgba(213, 94, 0, 0.62)"


@dataclass(frozen=True)
class ModelFigure:
    """A chart with its own size, title and caption."""

    name: str
    title: str
    caption: str
    chart: alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart


def config(colours: tuple[str, str]) -> dict[str, Any]:
    """Return the configuration for a text colour and its background; named styles for hand-made marks."""
    text, background = colours
    content = style.config(text)
    content["background"] = "transparent" if colours == PAGE else background
    content["title"] = {"color": text, "fontSize": 14, "anchor": "start", "fontWeight": "bold"}
    content["mark"] = {"color": text}
    content["rule"]["color"] = text
    content["concat"] = {"spacing": 34}
    content["style"] = {
        "ink": {"stroke": text},
        "ink-filled": {"fill": text, "stroke": text},
        # Behind labels that cross a line.
        "halo": {"fill": background, "stroke": background, "strokeWidth": 4, "strokeJoin": "round"},
        "words": {"fill": text},
    }
    return content
