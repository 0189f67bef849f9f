"""Writes the page with sliders: the grid of predictions as JSON within one HTML file."""

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from waylab.errors import LabError
from waylab.predict.runs.what_if import Grid, GridCell
from waylab.report.page.offline import document, script

_DIGITS = 4
# How settings are named for `--set`, and what their values are.
_LABELS = {
    "clients": ("clients", ""),
    "rate_per_s": ("rate", "requests per second"),
    "think_s": ("think", "s"),
    "load_threads": ("threads", "of the load generator"),
    "writes_share": ("writes", "share of SETs"),
    "value_bytes": ("value", "bytes"),
    "proxies": ("proxy", "proxies"),
    "slots": ("workers", "requests in flight behind the proxies"),
    "service_s": ("service_time", "s"),
}


def write_what_if(grid: Grid, path: Path, title: str, notes: Sequence[str] = ()) -> None:
    """Write the page; `notes` are sentences about the fit that the reader should know.

    Raises:
        LabError: when the file cannot be written.
    """
    said = "".join(f'<p class="warning">{escape(note)}</p>' for note in notes)
    data = json.dumps(_content(grid), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    main = _file("body.html").replace("<!--notes-->", said)
    main += f'<script type="application/json" id="grid">{data}</script><script>{script(_file("page.js"))}</script>'
    try:
        path.write_text(document(title, "", main, style=_file("page.css")), encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None


def _file(name: str) -> str:
    return resources.files("waylab.report.what_if").joinpath(name).read_text(encoding="utf-8")


def _content(grid: Grid) -> dict[str, Any]:
    varied = {one.name for one in grid.factors}
    return {
        "factors": [
            {
                "name": _LABELS.get(one.name, (one.name, ""))[0],
                "unit": _LABELS.get(one.name, ("", ""))[1],
                "levels": one.levels,
                "measured": one.measured,
                "start": one.start,
            }
            for one in grid.factors
        ],
        "fixed": {
            _LABELS.get(name, (name, ""))[0]: value
            for name, value in grid.base.as_dict().items()
            if name not in varied and value
        },
        "cells": [_cell(one) for one in grid.cells],
    }


def _cell(cell: GridCell) -> dict[str, Any]:
    """One cell in short names, because there are hundreds: x throughput, r response time, p percentiles."""
    found: dict[str, Any] = {}
    if cell.throughputs_per_s:
        found |= {"mx": _short(cell.throughputs_per_s), "mr": _short(cell.responses_s)}
    one = cell.prediction
    if one is None:
        return found | {"no": cell.refused}
    found |= {
        "x": _short((one.throughput_per_s.value, one.throughput_per_s.low, one.throughput_per_s.high)),
        "r": _short((one.response_s.value, one.response_s.low, one.response_s.high)),
        "p": {share: _short([value])[0] for share, value in one.percentiles_s.get("all", {}).items()},
        "u": {name: round(share, 3) for name, share in one.utilisation.items()},
        "b": one.bottleneck,
    }
    if one.extrapolates:
        found["e"] = list(one.extrapolates)
    return found


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in values]
