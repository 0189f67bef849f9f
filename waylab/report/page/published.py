"""The section that sets our figures beside those of the study whose experiment was repeated."""

from collections.abc import Callable
from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import NONE, percent_text, rate_text, shown
from waylab.report.tables.table import table
from waylab.runfolder.analysis import FindingResult
from waylab.runfolder.words import labels_text, number_text

_MARKS = {
    "yes": '<span class="pass">✓ yes</span>',
    "no": '<span class="fail">✗ no</span>',
    "undecided": "undecided",
    "not run": "not run",
}
_UNITS: dict[str, Callable[[float], str]] = {
    "stage": percent_text,
    "link": percent_text,
    "effect": percent_text,
    "plateau": rate_text,
}


def published_section(content: Content) -> str:
    """Return the part of the page; nothing when the specification names no findings of others."""
    published = content.analysis.published
    if not published:
        return ""
    source = escape(published.source)
    counts = published.counts
    words = (
        f"<p>What {source} found, and the same of this run. Machines differ, so that ratios, knees and bottlenecks are "
        "compared and not times; rates only where a link sets them. "
        f"Reproduced: {shown(counts['yes'])}; not: {shown(counts['no'])}; undecided: {shown(counts['undecided'])}; "
        f"not run at this scale: {shown(counts['not run'])}.</p>"
    )
    rows = [_row(finding) for finding in published.findings]
    headings = ["finding", "where", "theirs", "ours", "reproduced", "if"]
    note = (
        "In brackets the 95 % interval over blocks; of a knee the smallest and largest of all blocks. Undecided: the "
        "interval reaches over the limit, or there are too few blocks for one."
    )
    return words + table(headings, rows, note)


def unit_of(finding: FindingResult) -> Callable[[float], str]:
    """Return how the numbers of a finding are written."""
    return _UNITS.get(finding.kind, number_text)


def _row(finding: FindingResult) -> list[str]:
    text = unit_of(finding)
    ours = shown(finding.ours, text)
    if finding.low is not None:
        ours += f' <span class="interval">[{shown(finding.low, text)}, {shown(finding.high, text)}]</span>'
    said = f" ({escape(finding.said)})" if finding.said else ""
    return [
        escape(finding.text),
        escape(_where(finding)),
        shown(finding.theirs, text) if finding.theirs is not None else NONE,
        ours,
        _MARKS[finding.reproduced],
        escape(finding.rule) + said,
    ]


def _where(finding: FindingResult) -> str:
    of, to = _levels(finding.of), _levels(finding.to)
    what = finding.metric or finding.kind
    return f"{what}: {of or 'all'}" + (f", against {to or 'all'}" if finding.kind == "ratio" else "")


def _levels(levels: dict[str, list[str]]) -> str:
    return ", ".join(labels_text(factor, labels) for factor, labels in levels.items())
