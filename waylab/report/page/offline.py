"""What a page that needs no network carries within itself: scripts, styles and charts, safe between its tags."""

import json
from html import escape
from importlib import resources
from typing import Any

import vl_convert

# A chart as Vega-Lite describes it.
Chart = dict[str, Any]


def script(text: str) -> str:
    """Return a script that cannot end its tag by itself."""
    return text.replace("</script", "<\\/script")


def resource(name: str) -> str:
    """Return a style or a script that is installed with the package."""
    return resources.files("waylab.report.page").joinpath(name).read_text(encoding="utf-8")


def charts_as_json(charts: dict[str, Chart]) -> str:
    """Return chart specifications by name as JSON that may stand within a page."""
    for specification in charts.values():
        # Only a name, but a page that needs no network should not mention one.
        specification.pop("$schema", None)
    return json.dumps(charts, separators=(",", ":")).replace("<", "\\u003c")


def document(
    title: str, header: str, main: str, charts: str = "", style: str = "", dark: bool = False
) -> str:
    """Return a whole page: title is text, header and main are HTML, charts come from `charts_as_json`."""
    scheme = ' style="color-scheme: dark"' if dark else ""
    return f"""<!DOCTYPE html>
<html lang="en"{scheme}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{resource("page.css")}{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1>{header}</header>
<main>{main}</main>
{_drawing(charts) if charts else ""}</body>
</html>
"""


def _drawing(charts: str) -> str:
    return f"""<script type="application/json" id="figures">{charts}</script>
<script>{script(_vega())}</script>
<script>{script(resource("page.js"))}</script>
"""


def _vega() -> str:
    """Return the scripts that draw charts."""
    # Its types ask for a snippet; without one it returns the libraries alone, as documented.
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]
