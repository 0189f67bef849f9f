"""Random variates (sizes and times) and patterns of keys: checks their text and computes their means.

docs/random-variates.md describes the languages. The programs draw the values.
"""

import math
import re
from collections.abc import Callable
from statistics import NormalDist

from waylab.spec.quantities import duration_s

_BYTES = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}
_EULER = 0.5772156649015329

# The parameters after the name: v is a value with a unit, n a plain number.
_KINDS = {
    "fixed": "v",
    "uniform": "vv",
    "normal": "vv",
    "lognormal": "vn",
    "exp": "v",
    "exponential": "v",
    "pareto": "vvn",
    "gev": "vvn",
}
_SIZES: dict[str, str | float] = {"fb_key": "gev:30.7984:8.20449:0.078688", "fb_value": 194.445}
_TIMES = {"fb_ia": "pareto:0us:16.0292us:0.154971", "none": "fixed:0s"}


def mean_size_bytes(text: str) -> float:
    """Mean in bytes of a random size; ValueError describes the mistake in its text."""
    if text in _SIZES:
        known = _SIZES[text]
        return _mean(known, _bytes, "4k") if isinstance(known, str) else known
    return _mean(text, _bytes, "4k")


def mean_time_s(text: str) -> float:
    """Mean in seconds of a random time; ValueError describes the mistake, or that the mean is infinite."""
    mean_s = _mean(_TIMES.get(text, text), duration_s, "1ms")
    if not math.isfinite(mean_s):
        raise ValueError(f"{text!r} has an infinite mean; its shape must be below 1")
    return mean_s


def check_key_pattern(text: str) -> None:
    """Check uniform, sequential, zipf:E, gaussian, gaussian:CENTRE:DEVIATION or hot:KEYS:REQUESTS."""
    kind, *parts = text.split(":")
    wanted = {"uniform": (0,), "sequential": (0,), "zipf": (1,), "gaussian": (0, 2), "hot": (2,)}
    if kind not in wanted or len(parts) not in wanted[kind]:
        raise ValueError(
            "should be one of uniform, sequential, zipf:0.99, gaussian, gaussian:500:20, hot:0.1:0.9"
        )
    numbers = [_number(part) for part in parts]
    if min(numbers, default=0) < 0 or (kind == "hot" and max(numbers) > 1):
        raise ValueError("shares lie between 0 and 1, an exponent or a deviation is not below 0")


def check_arrivals(text: str) -> None:
    """Check constant, poisson, bursty:ON:OFF or gaps:TIMES."""
    kind, _, rest = text.partition(":")
    if kind == "gaps" and rest:
        mean_time_s(rest)
        return
    parts = rest.split(":") if rest else []
    if len(parts) != {"constant": 0, "poisson": 0, "bursty": 2}.get(kind, -1):
        raise ValueError("should be one of constant, poisson, bursty:200ms:800ms, gaps:exp:1ms")
    for part in parts:
        duration_s(part)


def _mean(text: str, value: Callable[[str], float], example: str) -> float:
    kind, *parts = text.split(":")
    if kind == "list":
        return _mean_of_list(text, value, example)
    if kind not in _KINDS:
        if parts:
            known = ", ".join([*_KINDS, "list"])
            raise ValueError(f"{text!r}: {kind} is none of {known}; for example exp:{example}")
        return value(text)
    wanted = _KINDS[kind]
    if len(parts) != len(wanted):
        raise ValueError(f"{text!r}: {kind} takes {len(wanted)} parameters, not {len(parts)}")
    numbers = [
        value(part) if what == "v" else _number(part) for part, what in zip(parts, wanted, strict=True)
    ]
    if kind == "uniform" and numbers[0] > numbers[1]:
        raise ValueError(f"{text!r} ends before it begins")
    if kind == "lognormal" and numbers[1] < 0:
        raise ValueError(f"{text!r}: SIGMA is below 0")
    return _formula(kind, numbers)


def _formula(kind: str, numbers: list[float]) -> float:
    """Return the mean; the programs replace negative normal variates by 0."""
    if kind in ("pareto", "gev"):
        return _heavy_mean(kind, *numbers)
    if kind == "lognormal":
        return numbers[0] * math.exp(numbers[1] ** 2 / 2)
    if kind == "normal" and numbers[1] > 0:
        mean, deviation = numbers
        normal = NormalDist()
        return mean * normal.cdf(mean / deviation) + deviation * normal.pdf(mean / deviation)
    if kind == "uniform":
        return sum(numbers) / 2
    if kind in ("fixed", "normal", "exp", "exponential"):
        return numbers[0]
    raise AssertionError(f"the mean of {kind} has no formula here")


def _heavy_mean(kind: str, location: float, scale: float, shape: float) -> float:
    if shape >= 1:
        return math.inf
    if kind == "pareto":
        return location + scale / (1 - shape)
    return location + scale * (_EULER if shape == 0 else (math.gamma(1 - shape) - 1) / shape)


def _mean_of_list(text: str, value: Callable[[str], float], example: str) -> float:
    total = weights = 0.0
    for entry in text.removeprefix("list:").split(","):
        what, *weight = entry.split(":")
        if len(weight) > 1 or (weight and _number(weight[0]) < 0):
            raise ValueError(f"{text!r}: entries read like {example}:0.5")
        share = _number(weight[0]) if weight else 1.0
        total, weights = total + share * value(what), weights + share
    if weights <= 0:
        raise ValueError(f"{text!r}: all weights are 0")
    return total / weights


def _bytes(text: str) -> float:
    found = _BYTES.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a size such as 128, 30.8 or 4k")
    return float(found[1]) * float(1024 ** _POWERS[found[2].lower()])


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    return number
