"""Checks of single values of a specification: each returns the value to keep, or raises ValueError."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from waylab.spec.quantities import mean_of_variate_s, size_bytes
from waylab.spec.variates import check_arrivals, check_key_pattern, mean_size_bytes, mean_time_s

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")

# Takes a value from TOML and returns the value that the specification stores.
Check = Callable[[object], _Value]

_METRICS = re.compile(
    r"throughput_per_s|response_mean_ns|response_p(50|90|95|99)_ns"
    r"|cpu_per_request_ns\.[a-z][a-z0-9_]{0,31}"
    r"|(commits|wal_bytes|wal_syncs)_per_(request|message)"
)


def setting(check: Check[_Value], default: _Default) -> _Value | _Default:
    """Make a field with a default and a check of the value that a specification gives."""
    made: _Default = field(default=default, metadata={"check": check})
    return made


def text(value: object) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise ValueError("should be text in quotes")
    return value.strip()


def ip_address(value: object) -> str:
    """An IPv4 address."""
    if not isinstance(value, str):
        raise ValueError('should be an IPv4 address in quotes, such as "10.0.0.1"')
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise ValueError("should be an IPv4 address such as 10.0.0.1") from None


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("should be true or false")
    return value


def whole(minimum: int, maximum: int | None = None) -> Check[int]:
    """Make a check for a whole number within limits."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("should be a whole number")
        if value < minimum or (maximum is not None and value > maximum):
            limit = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
            raise ValueError(f"should be {limit}")
        return value

    return check


def whole_or(minimum: int, maximum: int, *words: str) -> Check[int | str]:
    """Make a check for a whole number within limits or one of several words."""
    is_whole = whole(minimum, maximum)

    def check(value: object) -> int | str:
        if isinstance(value, str) and value not in words:
            raise ValueError(f"should be a whole number or one of {', '.join(words)}")
        return value if isinstance(value, str) else int(is_whole(value))

    return check


def number(minimum: float, maximum: float, above: bool = False) -> Check[float]:
    """Make a check for a number within limits; `above` excludes the minimum itself."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("should be a number")
        if not minimum <= value <= maximum or (above and value == minimum):
            raise ValueError(f"should be {'above' if above else 'from'} {minimum:g} up to {maximum:g}")
        return float(value)

    return check


def one_of(*words: str) -> Check[str]:
    """Make a check for one of several words."""

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"should be one of {', '.join(words)}")
        return str(value)

    return check


def size(value: object) -> str:
    """A size such as 128, 4k or 64m, kept as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("should be a size such as 128, 4k or 64m")
    if size_bytes(str(value)) < 1:
        raise ValueError("should be at least 1")
    return str(value)


def variate(value: object) -> str:
    """A time: none, fixed:T, exp:T or uniform:T:T, kept as text."""
    if not isinstance(value, str):
        raise ValueError("should be one of none, fixed:200us, exp:200us, uniform:100us:300us")
    mean_of_variate_s(value)
    return value


def times(value: object) -> str:
    """Any distribution of times, kept as text."""
    if not isinstance(value, str):
        raise ValueError("should be a distribution of times such as none, fixed:1ms, exp:1ms")
    mean_time_s(value)
    return value


def sizes(value: object) -> int | str:
    """Bytes, or any distribution of sizes as text."""
    if isinstance(value, str):
        mean_size_bytes(value)
        return value
    return int(whole(1, 1 << 20)(value))


def sizes_or_none(value: object) -> int | str:
    """As sizes, or empty for the shortest keys."""
    return "" if value == "" else sizes(value)


def key_pattern(value: object) -> str:
    """The distribution of the keys that are requested."""
    check_key_pattern(text(value))
    return str(value)


def arrivals(value: object) -> str:
    """The arrival process of an open loop."""
    check_arrivals(text(value))
    return str(value)


def duration_text(value: object) -> str:
    """A duration with its unit, kept as text."""
    if not isinstance(value, str) or ":" in value or value == "none":
        raise ValueError("should be a duration such as 200us or 1s")
    mean_of_variate_s(f"fixed:{value}")
    return value


def duration_or_none(value: object) -> str:
    """A duration with its unit, or nothing."""
    return "" if value == "" else duration_text(value)


def ratio(value: object) -> str:
    """SET:GET, two whole numbers, not both zero."""
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or not any(int(part) for part in parts):
        raise ValueError('should be SET:GET, for example "1:19"')
    return str(value)


def texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("should be a list of texts")
    return tuple(part.strip() for part in value)


def metric(value: object) -> str:
    """One number of a trial that comparisons and stopping rules may name."""
    if not isinstance(value, str) or not _METRICS.fullmatch(value):
        raise ValueError(
            "should be throughput_per_s, response_mean_ns, response_p50_ns, _p90_, _p95_, _p99_, "
            "cpu_per_request_ns.total, .load, .interrupts or .ROLE, "
            "or commits_per_request, wal_bytes_per_request, wal_syncs_per_request (or _per_message)"
        )
    return value


def metrics(value: object) -> tuple[str, ...]:
    """A list of such numbers."""
    if not isinstance(value, list) or not value:
        raise ValueError("should be a list of metrics")
    return tuple(metric(one) for one in value)
