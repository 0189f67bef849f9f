"""How numbers are written for people: the unit that fits, and the exact value kept beside it in the page."""

from collections.abc import Callable
from html import escape
from typing import TypeVar

from waylab.runfolder.numbers import Interval
from waylab.runfolder.trial_numbers import WithinInterval
from waylab.runfolder.words import NONE, rate_text, share_text, time_text

__all__ = [
    "NONE",
    "interval",
    "interval_text",
    "percent_text",
    "plain_text",
    "rate_text",
    "ratio_text",
    "share_text",
    "shown",
    "signed_percent_text",
    "time_text",
]

T = TypeVar("T")


def percent_text(value: float | None) -> str:
    """Write a share with its sign left to the reader."""
    return NONE if value is None else f"{100 * value:.2f} %"


def signed_percent_text(value: float | None) -> str:
    """Write a relative error."""
    if value is None:
        return NONE
    digits = 2 if abs(value) < 0.1 else 1 if abs(value) < 1 else 0
    text = f"{100 * value:+,.{digits}f} %"
    return "0 %" if value == 0 or float(text[1:-2].replace(",", "")) == 0 else text


def ratio_text(value: float | None) -> str:
    """Write a ratio."""
    return NONE if value is None else f"{value:.4f}"


def plain_text(value: object) -> str:
    """Write anything else."""
    return NONE if value is None else str(value)


def shown(value: T | None, text: Callable[[T], str] = plain_text) -> str:
    """Return HTML for one number: the text for people, the exact value for machines."""
    if value is None:
        return NONE
    return f'<data value="{escape(str(value))}">{escape(text(value))}</data>'


def interval(numbers: Interval | WithinInterval | None, text: Callable[[float], str]) -> str:
    """Return HTML for a mean with its interval."""
    return NONE if numbers is None else interval_text(numbers.mean, numbers.low, numbers.high, text)


def interval_text(
    value: float | None, low: float | None, high: float | None, text: Callable[[float], str]
) -> str:
    """Return HTML for a number with its interval."""
    if value is None or low is None:
        return shown(value, text)
    return f'{shown(value, text)} <span class="interval">[{shown(low, text)}, {shown(high, text)}]</span>'
