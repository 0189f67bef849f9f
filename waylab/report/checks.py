"""The tables of the section `checks` that look inside the runs: settled or not, effective sizes, laws."""

from html import escape
from typing import Any

from waylab.report.content import Content
from waylab.report.numbers import (
    NONE,
    interval,
    percent_text,
    rate_text,
    shown,
    signed_percent_text,
    time_text,
)
from waylab.report.table import table

_PERCENTS = ("50", "95", "99", "99.9")


def within_table(content: Content) -> str:
    """Warm-up, effective sample sizes and intervals of every trial that was used."""
    rows = []
    for trial in content.analysis["trials"]:
        within = trial.get("within")
        if not trial["used"] or not within or not within["warm_up"]:
            continue
        throughput, percentiles = within["throughput_per_s"], within["percentiles_ns"]
        rows.append(
            [
                escape(trial["id"]),
                shown(within["seconds"]),
                escape(within["warm_up"]["text"]),
                shown(throughput["effective"], rate_text),
                interval(throughput, rate_text),
                interval(within["response_mean_ns"], time_text),
                *(_percentile(percentiles.get(percent)) for percent in _PERCENTS),
                escape(_why_not(within)),
            ]
        )
    headings = [
        "trial",
        "seconds",
        "warm-up",
        "effective seconds",
        "throughput, 1/s",
        "mean response",
        *(f"p{percent}" for percent in _PERCENTS),
        "why no interval",
    ]
    note = (
        "Of what follows the warm-up, with 95 % intervals that allow for the correlation of its seconds. They say how "
        "well one run is known; what differs from run to run is in the intervals across trials."
    )
    return table(headings, rows, note)


def laws_table(content: Content) -> str:
    """The laws of every configuration, in the trial that is furthest off."""
    rows = [
        [
            escape(c["name"]),
            escape(law["name"]),
            shown(law["expected"], _plain),
            shown(law["found"], _plain),
            shown(law["residual"], signed_percent_text),
            shown(law["limit"], percent_text),
            _verdict(law),
        ]
        for c in content.configurations
        for law in c.get("laws", [])
    ]
    headings = ["configuration", "law", "expected", "found", "off by", "limit", "holds"]
    return table(
        headings,
        rows,
        "Operational laws between numbers that were measured independently, in the trial that is furthest off.",
    )


def _percentile(found: dict[str, Any] | None) -> str:
    if not found or found["value"] is None:
        return NONE
    return interval({"mean": found["value"], "low": found["low"], "high": found["high"]}, time_text)


def _why_not(within: dict[str, Any]) -> str:
    """Why the throughput or else the first percentile without an interval has none."""
    if within["throughput_per_s"]["text"]:
        return str(within["throughput_per_s"]["text"])
    for percent, found in within["percentiles_ns"].items():
        if found["text"]:
            return f"p{percent}: {found['text']}"
    return ""


def _verdict(law: dict[str, Any]) -> str:
    title = escape(law["text"])
    if law["holds"] is None:
        return f'<span title="{title}">{NONE}</span>'
    if not law["broken"]:
        return f'<span class="pass" title="{title}">✓</span>'
    return f'<span class="fail" title="{title}">✗ in {shown(law["broken"])} of {shown(law["trials"])}</span>'


def _plain(value: float | None) -> str:
    return NONE if value is None else f"{value:,.4g}"
