"""Numbers in sentences, rounded for reading. The report has its own functions, which models do not import."""


def time_text(time_s: float) -> str:
    """Write a time with the unit that fits."""
    for unit, size_s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(time_s) >= 0.9995 * size_s:
            return f"{three_digits(time_s / size_s)} {unit}"
    return f"{time_s / 1e-9:.0f} ns"


def percent_text(share: float) -> str:
    """Write a share as a percentage, never rounded to 0 or 100 %."""
    percent = 100 * share
    if 0 < percent < 0.995:
        return f"{percent:.2g} %" if percent >= 0.01 else "below 0.01 %"
    if 99 < percent < 100:
        digits = next((digits for digits in (1, 2) if round(percent, digits) < 100), None)
        return "over 99.99 %" if digits is None else f"{percent:.{digits}f} %"
    return f"{percent:,.0f} %"


def number_text(number: float) -> str:
    """Write a rate or a count."""
    return three_digits(number)


def three_digits(number: float) -> str:
    """Round to three digits, or to a whole number from 1000 on."""
    if abs(number) >= 999.5:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def change_text(change: float, what: str, more: str, less: str) -> str:
    """Write a relative change: `12 % more throughput`, `throughput hardly changes`."""
    if abs(change) < 0.005:
        return f"{what} hardly changes"
    if change >= 1:
        return f"{1 + change:.3g} times the {what}"
    return f"{100 * abs(change):.0f} % {more if change > 0 else less} {what}"
