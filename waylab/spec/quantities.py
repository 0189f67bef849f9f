"""Durations, sizes and distributions as people write them: `200us`, `64m`, `exp:1ms`. Pure functions."""

import re

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m)")
_SIZE = re.compile(r"(\d+)([kmg]?)")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}


def duration_s(text: str) -> float:
    """Seconds of a duration with its unit; ValueError when it is none."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a duration such as 200us, 1.5ms or 3s")
    return float(found[1]) * _UNITS_S[found[2]]


def size_bytes(text: str) -> int:
    """Bytes of a size such as `128`, `4k` or `64m`; ValueError when it is none."""
    found = _SIZE.fullmatch(text.lower())
    if not found:
        raise ValueError(f"{text!r} is not a size such as 128, 4k or 64m")
    return int(found[1]) * int(1024 ** _POWERS[found[2]])


def mean_of_variate_s(text: str) -> float:
    """Mean in seconds of `none`, `fixed:T`, `exp:T` or `uniform:T:T`; ValueError when it is none of them."""
    kind, *parts = text.split(":")
    wanted = {"none": 0, "fixed": 1, "exp": 1, "uniform": 2}
    if kind not in wanted or len(parts) != wanted[kind]:
        raise ValueError(f"{text!r} is not one of none, fixed:200us, exp:200us, uniform:100us:300us")
    times_s = [duration_s(part) for part in parts]
    if times_s != sorted(times_s):
        raise ValueError(f"{text!r} ends before it begins")
    return sum(times_s) / len(times_s) if times_s else 0.0
