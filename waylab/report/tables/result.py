"""Tables of what was measured: results, operations, stages, and both ends' view of the same requests."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import NONE, interval, interval_text, rate_text, shown, time_text
from waylab.report.tables.table import table
from waylab.runfolder.analysis import Operation
from waylab.runfolder.numbers import Interval
from waylab.runfolder.trial_numbers import STAGES, TOTAL

_PERCENTS = ("50", "90", "95", "99", "99.9")


@dataclass(frozen=True)
class Cell:
    """A number of a configuration with its interval, and how both are written."""

    value: float | None
    low: float | None
    high: float | None
    text: Callable[[float], str]
    # What stands beside a number without an interval.
    without: str = ""

    def html(self) -> str:
        """Return the cell for the page, with the exact numbers for machines."""
        shown_text = interval_text(self.value, self.low, self.high, self.text)
        return (
            f'{shown_text} <span class="interval">{escape(self.without)}</span>' if self._bare else shown_text
        )

    @property
    def _bare(self) -> bool:
        return bool(self.without) and self.value is not None and self.low is None

    def plain(self) -> str:
        """Return the cell as plain text."""
        if self.value is None:
            return NONE
        if self.low is None or self.high is None:
            return f"{self.text(self.value)} {self.without}".rstrip()
        return f"{self.text(self.value)} [{self.text(self.low)}, {self.text(self.high)}]"


RESULTS_NOTE = (
    "In brackets 95 % intervals across trials. A percentile with an interval is the geometric mean of the trials; one "
    "without is of all requests together, where ten or more lie above, and has no interval."
)


def result_columns(content: Content) -> tuple[list[str], list[list[Cell]]]:
    """Return the headings after `configuration` and `trials used`, and the cells of every configuration.

    A column of which no configuration has a number is left out.
    """
    columns: dict[str, list[Cell]] = {}
    for c in content.analysis.configurations:
        everything = c.operations.get("all")
        cells = {
            "throughput, 1/s": _mean(c.throughput_per_s, rate_text),
            "mean response": _mean(everything.response_mean_ns if everything else None, time_text),
            **{f"p{percent}": _percentile(everything, percent) for percent in _PERCENTS},
            "CPU time per request": _mean(c.cpu_per_request_ns.get("total"), time_text),
            "interrupts": _mean(c.cpu_per_request_ns.get("interrupts"), time_text),
        }
        for heading, cell in cells.items():
            columns.setdefault(heading, []).append(cell)
    headings = [name for name, cells in columns.items() if any(cell.value is not None for cell in cells)]
    return headings, [list(row) for row in zip(*(columns[name] for name in headings), strict=True)]


def results_table(content: Content) -> str:
    """Throughput, response time and cost of every configuration."""
    headings, rows = result_columns(content)
    names = [
        [escape(content.label(c.name)), f"{shown(c.used)} of {shown(c.trials)}"]
        for c in content.analysis.configurations
    ]
    cells = [[*name, *(cell.html() for cell in row)] for name, row in zip(names, rows, strict=False)]
    return table(["configuration", "trials used", *headings], cells, RESULTS_NOTE)


def _mean(numbers: Interval | None, text: Callable[[float], str]) -> Cell:
    return Cell(numbers.mean, numbers.low, numbers.high, text) if numbers else Cell(None, None, None, text)


def _percentile(operation: Operation | None, percent: str) -> Cell:
    """Return the mean of the trials' percentiles if it has an interval, or else the percentile of all requests."""
    if operation is None:
        return Cell(None, None, None, time_text)
    across = operation.percentile_intervals_ns.get(percent)
    if across is not None and across.low is not None:
        return _mean(across, time_text)
    return Cell(operation.percentiles_ns.get(percent), None, None, time_text, "no interval")


def operations_table(content: Content) -> str:
    """Every operation, such as GET and SET."""
    rows = []
    for c in content.configurations:
        for name in content.operations:
            operation = c.operations.get(name)
            if operation and operation.count:
                rows.append(
                    [
                        escape(content.label(c.name)),
                        escape(name.upper()),
                        shown(operation.count, rate_text),
                        interval(operation.response_mean_ns, time_text),
                        *(_percentile(operation, percent).html() for percent in ("50", "95", "99")),
                    ]
                )
    return table(
        ["configuration", "operation", "requests", "mean response", "p50", "p95", "p99"],
        rows,
        f"Response time by operation. {RESULTS_NOTE}",
    )


def stages_table(content: Content) -> str:
    """Median and 95th percentile of every stage."""
    rows = []
    for c in content.configurations:
        for operation in content.operations_with_stages:
            found = c.stages.get(operation)
            if found:
                cells = [
                    " / ".join(shown(value, time_text) for value in (times.p50_ns, times.p95_ns))
                    for times in (found.stages[stage] for stage in (*STAGES, TOTAL))
                ]
                rows.append(
                    [
                        escape(content.label(c.name)),
                        escape(operation.upper()),
                        shown(found.count, rate_text),
                        *cells,
                    ]
                )
    return table(
        ["configuration", "operation", "records", *STAGES, TOTAL],
        rows,
        f"Time per stage in the {content.middle}, median / 95th percentile.",
    )


def views_table(content: Content) -> str:
    """The client's and the proxy's view of the same requests."""
    rows = []
    for c in content.configurations:
        view = c.proxy_view
        if view:
            means = (
                view.client_mean_ns,
                view.proxy_mean_ns,
                view.difference_mean_ns,
                view.before_mean_ns,
                view.after_mean_ns,
            )
            rows.append(
                [
                    escape(content.label(c.name)),
                    shown(view.joined.mean, rate_text),
                    shown(view.unmatched.mean, rate_text),
                    *(interval(mean_ns, time_text) for mean_ns in means),
                ]
            )
    headings = [
        "configuration",
        "requests joined (mean of trials)",
        "without partner",
        "client",
        content.middle,
        "difference",
        "on the way in",
        "on the way out",
    ]
    return table(
        headings,
        rows,
        "The same requests, means. The way out may be negative: "
        f"the {content.middle} reads its clock after its write returned.",
    )
