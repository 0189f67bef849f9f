"""What a page that needs no network carries within itself: scripts, styles and charts, safe between its tags."""

import json
from importlib import resources
from typing import Any


def script(text: str) -> str:
    """Return a script that cannot end its tag by itself."""
    return text.replace("</script", "<\\/script")


def resource(name: str) -> str:
    """Return a style or a script that is installed with the package."""
    return resources.files("waylab.report").joinpath(name).read_text(encoding="utf-8")


def charts_as_json(charts: dict[str, dict[str, Any]]) -> str:
    """Return chart specifications by name as JSON that may stand within a page."""
    for specification in charts.values():
        # Only a name, but a page that needs no network should not mention one.
        specification.pop("$schema", None)
    return json.dumps(charts, separators=(",", ":")).replace("<", "\\u003c")
