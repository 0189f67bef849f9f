"""What each request cost the database, in the words of the page; nothing where there is none."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import interval, time_text
from waylab.report.tables.table import table

_COSTS = (
    "commits_per_request",
    "wal_syncs_per_request",
    "wal_bytes_per_request",
    "commits_per_message",
    "wal_bytes_per_message",
)


def database_section(content: Content) -> str:
    """Transactions, syncs and bytes written ahead, and the CPU time of service and database."""
    rows = [
        [
            escape(content.label(c.name)),
            *(interval(c.database.get(name), lambda number: f"{number:.3g}") for name in _COSTS),
            *(interval(c.cpu_per_request_ns.get(role), time_text) for role in ("messages", "database")),
        ]
        for c in content.configurations
        if c.database
    ]
    if not rows:
        return ""
    headings = [
        "configuration",
        "commits for a request",
        "syncs of the log",
        "bytes written ahead",
        "commits for a message sent",
        "bytes for a message sent",
        "CPU, service",
        "CPU, database",
    ]
    caption = (
        "What the database did over the whole load, warm-up included, by requests and by messages that were sent; "
        "CPU time of all its processes within the window."
    )
    return f"<h3>Database</h3>{table(headings, rows, caption)}"
