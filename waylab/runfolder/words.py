"""How the lab writes times, rates, shares and levels of factors in sentences and tables."""

from collections.abc import Iterable, Mapping, Sequence

NONE = "–"
# If there are more levels than this, the text gives their number instead of a list.
_LISTED_MAX = 6
# From this share of a unit on, three digits are those of the whole unit.
_ROUNDED_UP = 0.9995


def time_text(value_ns: float | None) -> str:
    """Write a time in nanoseconds with the unit that fits."""
    if value_ns is None:
        return NONE
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        # 999.6 µs is written with three digits, as 1 ms.
        if abs(value_ns) >= _ROUNDED_UP * size_ns:
            return f"{number_text(value_ns / size_ns)} {unit}"
    return f"{value_ns:.0f} ns"


def number_text(value: float) -> str:
    """Write a number with three digits, and a large one without decimals instead of an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 * _ROUNDED_UP else f"{value:.3g}"


def rate_text(value: float | None) -> str:
    """Write a rate or a count."""
    return NONE if value is None else f"{value:,.0f}"


def share_text(value: float | None) -> str:
    """Write a share in whole percent; with a digit more below one."""
    if value is None:
        return NONE
    return f"{100 * value:.0f} %" if abs(value) >= 0.01 or not value else f"{100 * value:.2g} %"


# The units that names of settings can end with.
_UNITS = ("ns", "us", "ms", "s", "bytes")


def level_text(factor: str, label: str) -> str:
    """Write a level in words: `1 replica`, `128 clients`, `dispatch shared`, `think time 2 s`."""
    return labels_text(factor, [label])


def labels_text(factor: str, labels: Sequence[str], last: str = "or") -> str:
    """Write several levels of a factor: `1 or 3 replicas`, `dispatch pool or fused`."""
    words = factor.replace(".", " ").replace("_", " ").removesuffix(" count").split()
    listed = joined(labels, last)
    if not all(is_number(label) for label in labels):
        return f"{' '.join(words)} {listed}"
    noun = words[-1]
    if len(words) > 1 and noun in _UNITS:
        return f"{' '.join(words[:-1])} {listed} {noun}"
    # Only a plural counts things: `64 clients`, but `data size 64`.
    if not noun.endswith("s") or noun.endswith("ss"):
        return f"{' '.join(words)} {listed}"
    if [float(label) for label in labels] == [1.0]:
        words[-1] = f"{noun[:-3]}y" if noun.endswith("ies") else noun[:-1]
    return f"{listed} {' '.join(words)}"


def levels_text(levels: Mapping[str, str]) -> str:
    """Write the levels of several factors: `128 clients, 3 replicas`."""
    return ", ".join(level_text(factor, label) for factor, label in levels.items())


def several_levels(combinations: Iterable[Mapping[str, str]]) -> set[str]:
    """Name the factors that have more than one level in these combinations. The others vary nothing."""
    labels: dict[str, set[str]] = {}
    for levels in combinations:
        for factor, label in levels.items():
            labels.setdefault(factor, set()).add(label)
    return {factor for factor, found in labels.items() if len(found) > 1}


def pooled_text(combinations: Sequence[Mapping[str, str]]) -> str:
    """Name the levels over which a contrast is averaged, without the factors that have the same level in all of them.

    For example `1, 8 and 32 clients`, or `the combinations of clients (1, 8) and dispatch (pool, fused)`.
    """
    averaged = several_levels(combinations)
    labels: dict[str, list[str]] = {}
    for levels in combinations:
        for factor in (factor for factor in levels if factor in averaged):
            known = labels.setdefault(factor, [])
            known += [] if levels[factor] in known else [levels[factor]]
    if len(labels) < 2:
        return "".join(_levels_of(factor, found) for factor, found in labels.items())
    listed = joined(f"{_noun(factor)} ({_listed(found)})" for factor, found in labels.items())
    return f"the combinations of {listed}"


def _levels_of(factor: str, labels: Sequence[str]) -> str:
    if len(labels) > _LISTED_MAX:
        return f"all {len(labels)} levels of {_noun(factor)}"
    return labels_text(factor, _sorted(labels), "and")


def _listed(labels: Sequence[str]) -> str:
    return f"{len(labels)} levels" if len(labels) > _LISTED_MAX else ", ".join(_sorted(labels))


def _sorted(labels: Sequence[str]) -> Sequence[str]:
    return sorted(labels, key=float) if all(is_number(label) for label in labels) else labels


def _noun(factor: str) -> str:
    return factor.replace(".", " ").replace("_", " ")


def joined(parts: Iterable[str], last: str = "and") -> str:
    """Join words to a list: `1, 8 and 32`."""
    *first, end = parts
    return f"{', '.join(first)} {last} {end}" if first else end


def is_number(label: str) -> bool:
    """Return whether the label of a level is a number."""
    try:
        float(label)
    except ValueError:
        return False
    return True
