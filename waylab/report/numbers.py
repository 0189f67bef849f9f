"""How numbers are written for people: the unit that fits, and the exact value kept beside it in the page."""

from html import escape
from typing import Any

NONE = "–"


def time_text(value_ns: float | None) -> str:
    """Write a time with the unit that fits."""
    if value_ns is None:
        return NONE
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(value_ns) >= size_ns:
            return (
                f"{value_ns / size_ns:.3g} {unit}"
                if abs(value_ns) < 1000 * size_ns
                else f"{value_ns / size_ns:,.0f} {unit}"
            )
    return f"{value_ns:.0f} ns"


def rate_text(value: float | None) -> str:
    """Write a rate or count."""
    return NONE if value is None else f"{value:,.0f}"


def percent_text(value: float | None) -> str:
    """Write a share with its sign left to the reader."""
    return NONE if value is None else f"{100 * value:.2f} %"


def signed_percent_text(value: float | None) -> str:
    """Write a relative error."""
    if value is None:
        return NONE
    return f"{100 * value:+.2f} %" if abs(value) < 10 else f"{100 * value:+,.0f} %"


def ratio_text(value: float | None) -> str:
    """Write a ratio."""
    return NONE if value is None else f"{value:.4f}"


def plain_text(value: Any) -> str:
    """Write anything else."""
    return NONE if value is None else str(value)


def shown(value: Any, text: Any = plain_text) -> str:
    """Return HTML for one number: the text for people, the exact value for machines."""
    if value is None:
        return NONE
    return f'<data value="{escape(str(value))}">{escape(text(value))}</data>'


def interval(numbers: dict[str, Any] | None, text: Any) -> str:
    """Return HTML for a mean with its interval."""
    if not numbers or numbers["mean"] is None:
        return NONE
    mean = shown(numbers["mean"], text)
    if numbers["low"] is None:
        return mean
    return f'{mean} <span class="interval">[{shown(numbers["low"], text)}, {shown(numbers["high"], text)}]</span>'
