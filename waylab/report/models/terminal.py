"""Models in the terminal: tables of at most eighty columns, and sentences below them."""

from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.models.summary.bounds import BoundsRow
from waylab.models.summary.findings_rows import SweepRow
from waylab.models.summary.queue import ValueRow
from waylab.models.summary.result import ClassRow, ResultRow, StationClassRow, StationRow
from waylab.models.summary.usl import UslRow
from waylab.report.page.numbers import NONE, time_text

_CLASSES_WRITTEN = 3
_NAME_WIDTH = 32
_SHARES_WRITTEN = ("0.5", "0.95", "0.99")


def show_queue(name: str, rows: Sequence[ValueRow], words: Iterable[str], console: Console) -> None:
    """Print one queue: every known value, and its description."""
    console.print(f"\n[bold]{escape(name)}[/bold]")
    table = _table("", "")
    for row in rows:
        table.add_row(escape(row["name"]), escape(value_text(row["name"], row["value"], row["unit"])))
    console.print(table)
    _say(words, console)


def show_result(content: ResultRow, words: Iterable[str], console: Console) -> None:
    """Print a solved or simulated network: stations, classes, pools, and its description."""
    console.print(
        f"\n[bold]{escape(content['name'])}[/bold]  method {escape(content['method'])}, {content['kind']}"
    )
    simulated = any("half_width_utilisation" in part for s in content["stations"] for part in s["classes"])
    console.print(_simulated_stations(content) if simulated else _stations(content))
    console.print(_classes(content))
    if content["pools"]:
        console.print(_pools(content))
    _say(words, console)


def show_sweep(parameter: str, rows: Sequence[SweepRow], console: Console) -> None:
    """Print a sweep: a line for each value."""
    classes = [part["name"] for part in rows[0]["classes"]]
    written = classes if 1 < len(classes) <= _CLASSES_WRITTEN else []
    table = _table(
        parameter, "per second", "response", *(escape(name) for name in written), "busy", "bottleneck"
    )
    for row in rows:
        times = {part["name"]: part["response_s"] for part in row["classes"]}
        table.add_row(
            f"{row['value']:,.6g}",
            number(row["throughput_per_s"]),
            time(row["response_s"]),
            *(time(times[name]) for name in written),
            percent(row["load"]),
            escape(row["limit"] or NONE),
        )
    console.print(table)


def show_bounds(name: str, rows: Sequence[BoundsRow], words: Iterable[str], console: Console) -> None:
    """Print bounds: a line for each kind, with lower and upper throughput and response."""
    console.print(f"\n[bold]{escape(name)}[/bold]")
    if rows:
        table = _table("bounds", "per second, from", "to", "response, from", "to")
        for row in rows:
            table.add_row(
                escape(row["name"]),
                number(row["throughput_low_per_s"]),
                number(row["throughput_high_per_s"]),
                time(row["response_low_s"]),
                time(row["response_high_s"]),
            )
        console.print(table)
    _say(words, console)


def show_usl(content: UslRow, words: Iterable[str], console: Console) -> None:
    """Print a fitted Universal Scalability Law."""
    console.print(f"\n[bold]{escape(content['name'])}[/bold]")
    table = _table("", "value", "95 % interval")
    for name, row in content["parameters"].items():
        interval = f"{number(row['low'])} .. {number(row['high'])}" if row["low"] is not None else NONE
        table.add_row(name + (", requests/s" if name == "gamma" else ""), number(row["value"]), interval)
    if content["peak_clients"] is not None:
        table.add_row("peak, clients", number(content["peak_clients"]), "")
        table.add_row("peak, requests/s", number(content["peak_throughput_per_s"]), "")
    table.add_row("R squared", number(content["r_squared"]), "")
    console.print(table)
    _say(words, console)


def value_text(name: str, value: float | None, unit: str) -> str:
    """Write a value: seconds with the unit that fits, rates as such, probabilities as percent."""
    if value is None:
        return NONE
    if unit == "s":
        return time(value)
    if unit == "1/s":
        return f"{number(value)} /s"
    if name.startswith(("probability", "utilisation")):
        return percent(value)
    return number(value) if not unit else f"{number(value)} {unit}"


def time(time_s: float | None) -> str:
    """Write a time in seconds with the unit that fits."""
    if time_s is None:
        return NONE
    return "0" if time_s == 0 else time_text(1e9 * time_s)


def number(value: float | None) -> str:
    """Write a number with four digits, or whole when it is large."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """Write a share with one digit after the point."""
    return NONE if value is None else f"{100 * value:.1f} %"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=any(headings))
    for index, heading in enumerate(headings):
        words = index == 0 or heading == "bottleneck"
        side: Literal["left", "right"] = "left" if words else "right"
        table.add_column(heading, justify=side, no_wrap=True, max_width=_NAME_WIDTH if words else None)
    return table


def _stations(content: ResultRow) -> Table:
    table = _table("station", "visits", "service", "busy", "present", "waiting", "response", "per second")
    several = len(content["classes"]) > 1
    for station in content["stations"]:
        table.add_row(escape(station["name"]), *_cells(station, station["servers"]))
        if several and len(station["classes"]) > 1:
            for part in station["classes"]:
                table.add_row(f"  [dim]{escape(part['name'])}[/dim]", *_cells(part, station["servers"]))
    return table


def _cells(row: StationRow | StationClassRow, servers: int | None) -> list[str]:
    return [
        number(row["visits"]),
        time(row["service_s"]),
        NONE if servers is None else percent(row["utilisation"]),
        number(row["queue_length"]),
        time(row["waiting_s"]),
        time(row["response_s"]),
        number(row["throughput_per_s"]),
    ]


def _simulated_stations(content: ResultRow) -> Table:
    table = _table("station", "busy", "present", "waiting", "response", "per second")
    several = len(content["classes"]) > 1
    for station in content["stations"]:
        for part in station["classes"]:
            name = f"{station['name']}, {part['name']}" if several else station["name"]
            cells = [
                percent(part["utilisation"]),
                number(part["queue_length"]),
                time(part["waiting_s"]),
                time(part["response_s"]),
                number(part["throughput_per_s"]),
            ]
            widths = [
                _half_width(part["utilisation"], part.get("half_width_utilisation")),
                _half_width(part["queue_length"], part.get("half_width_queue_length")),
                _half_width(part["waiting_s"], part.get("half_width_waiting_s")),
                _half_width(part["response_s"], part.get("half_width_response_s")),
                _half_width(part["throughput_per_s"], part.get("half_width_throughput_per_s")),
            ]
            if station["servers"] is None:
                cells[0], widths[0] = NONE, ""
            table.add_row(escape(name), *cells)
            table.add_row(*(f"[dim]{cell}[/dim]" for cell in ["  ±", *widths]))
    return table


def _half_width(value: float | None, width: float | None) -> str:
    """Write the half-width of an interval as a share of the mean."""
    return "" if not value or width is None else f"{100 * width / value:.2g} %"


def _classes(content: ResultRow) -> Table:
    known = next((list(part["quantiles_s"]) for part in content["classes"] if part["quantiles_s"]), [])
    shares = [share for share in known if share in _SHARES_WRITTEN]
    lost = any(part["lost_per_s"] for part in content["classes"])
    headings = [
        "class",
        _loads(content),
        "per second",
        "response",
        *(f"p{100 * float(share):g}" for share in shares),
    ]
    table = _table(*headings, *(["lost /s"] if lost else []))
    for part in content["classes"]:
        quantiles = [time(part["quantiles_s"].get(share)) for share in shares]
        means = [number(part["throughput_per_s"]), time(part["response_s"])]
        losses = [number(part["lost_per_s"])] if lost else []
        table.add_row(escape(part["name"]), _load(part), *means, *quantiles, *losses)
        widths = [
            _half_width(part["throughput_per_s"], part.get("half_width_throughput_per_s")),
            _half_width(part["response_s"], part.get("half_width_response_s")),
        ]
        if any(widths):
            table.add_row(*(f"[dim]{cell}[/dim]" for cell in ("  ±", "", *widths)))
    if len(content["classes"]) > 1:
        total = number(content["throughput_per_s"])
        table.add_row("[dim]all[/dim]", "", total, time(content["response_s"]))
    return table


def _loads(content: ResultRow) -> str:
    """Return the heading that fits the classes: clients, arrivals, or both."""
    closed = any(part["population"] for part in content["classes"])
    opened = any(part["arrivals_per_s"] for part in content["classes"])
    return "load" if closed and opened else "clients" if closed else "arrivals"


def _load(part: ClassRow) -> str:
    if part["population"]:
        think = f", think {time(part['think_s'])}" if part["think_s"] else ""
        return f"{part['population']:,}{think}"
    return f"{number(part['arrivals_per_s'])} /s" if part["arrivals_per_s"] else "by switching"


def _pools(content: ResultRow) -> Table:
    table = _table("pool", "slots", "busy", "waiting for a slot")
    for pool in content["pools"]:
        waiting = [value for value in pool["waiting_s"].values() if value is not None]
        table.add_row(
            escape(pool["name"]),
            f"{pool['slots']:,}",
            percent(pool["busy_share"]),
            " / ".join(time(value) for value in waiting) or NONE,
        )
    return table


def _say(words: Iterable[str], console: Console) -> None:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for sentence in words:
        grid.add_row("•", escape(sentence))
    console.print(grid)
