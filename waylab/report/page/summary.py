"""The numbers of the first screen: throughput, mean, p50 and p99 with intervals at the ends of each line."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.tables.result import result_columns
from waylab.report.tables.table import table
from waylab.runfolder.analysis import Configuration

ROWS_MAX = 4
"""The largest number of rows; the table under \"How fast?\" has a row for every configuration."""
_COLUMNS = {
    "throughput, 1/s": "throughput (requests/s)",
    "mean response": "mean response time",
    "p50": "p50 (median)",
    "p99": "p99",
}


def summary_table(content: Content) -> str:
    """Return the table as HTML; nothing without a trial that was used."""
    chosen = ends(content)
    headings, rows = result_columns(content)
    places = [headings.index(name) for name in _COLUMNS if name in headings]
    cells = [
        [escape(content.label(c.name)), *(row[place].html() for place in places)]
        for c, row in zip(content.analysis.configurations, rows, strict=False)
        if c.name in chosen
    ]
    if not cells:
        return ""
    rest = len(content.configurations) - len(cells)
    more = f" {rest} more configurations are under \u201cHow fast?\u201d." if rest else ""
    words = "p99 is the response time that 99\u00a0% of the requests do not exceed. In brackets: 95\u00a0% intervals."
    headings = ["configuration", *(_COLUMNS[headings[place]] for place in places)]
    return table(headings, cells, "", "summary") + f'<p class="soft small">{words}{more}</p>'


def ends(content: Content) -> list[str]:
    """Name the first and the last configuration of the fastest and the slowest line, or else the fastest of all."""
    known = content.configurations
    ranked = sorted(known, key=lambda c: -c.throughput_per_s.known_mean())
    if len(known) <= ROWS_MAX or not content.axes.numeric:
        return [c.name for c in ranked[:ROWS_MAX]]
    lines: dict[str, list[Configuration]] = {}
    for c in ranked:
        lines.setdefault(c.series, []).append(c)
    names = list(lines)
    found: list[str] = []
    for series in dict.fromkeys([names[0], names[-1]]):
        line = sorted(lines[series], key=lambda c: float(c.x))
        found += [line[0].name, line[-1].name]
    return list(dict.fromkeys(found))
