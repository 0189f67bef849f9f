"""How the lab writes times, rates and shares in sentences and tables: the unit that fits, three digits."""

NONE = "–"


def time_text(value_ns: float | None) -> str:
    """Write a time in nanoseconds with the unit that fits."""
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
    """Write a rate or a count."""
    return NONE if value is None else f"{value:,.0f}"


def share_text(value: float | None) -> str:
    """Write a share in whole percent; with a digit more below one."""
    if value is None:
        return NONE
    return f"{100 * value:.0f} %" if abs(value) >= 0.01 or not value else f"{100 * value:.2g} %"
