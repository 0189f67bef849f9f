"""Reads a load profile: phases of constant arrival rate, and outages of servers."""

import math
import re
from dataclasses import dataclass

from waylab.errors import LabError
from waylab.fit.observations.settings import number_with_suffix

_PHASES_MAX = 50
_HOUR_S = 3600.0
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_PHASE = re.compile(
    r"(?P<time>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ms|s|min|m)"
    r"(?:\s+at\s+(?P<rate>\S+))?(?:\s+outage\s+of\s+(?P<servers>\w+)\s+servers?)?"
)
_EXAMPLE = "for example '60s at 20k, 30s outage of one server, 60s at 20k'"


@dataclass(frozen=True)
class Phase:
    """Constant arrivals for a time, with some servers frozen: they answer nothing and lose nothing."""

    length_s: float
    rate_per_s: float
    frozen: int = 0

    @property
    def text(self) -> str:
        """The phase as a user writes it."""
        servers = f" outage of {self.frozen} server{'s' if self.frozen > 1 else ''}" if self.frozen else ""
        return f"{self.length_s:g}s at {self.rate_per_s:g}{servers}"


def read_profile(text: str) -> tuple[Phase, ...]:
    """Phases from text; an outage without a rate keeps the rate of the phase before.

    Raises:
        LabError: for a phase that cannot be read, or one that begins without a rate.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _PHASES_MAX:
        raise LabError(f"--profile: {len(parts)} phases are too many; give at most {_PHASES_MAX}")
    phases: list[Phase] = []
    for part in parts:
        match = _PHASE.fullmatch(part)
        if match is None:
            raise LabError(f"--profile: {part[:60]!r} is no phase; give {_EXAMPLE}")
        length_s = float(match["time"]) * _SECONDS[match["unit"]]
        if not 0 < length_s <= _HOUR_S:
            raise LabError(f"--profile: {part[:60]!r} must last more than 0 and at most {_HOUR_S:g} s")
        if match["rate"]:
            rate = _rate(match["rate"], part)
        elif phases:
            rate = phases[-1].rate_per_s
        else:
            raise LabError(f"--profile: the first phase, {part[:60]!r}, has no rate; give {_EXAMPLE}")
        phases.append(Phase(length_s, rate, _count(match["servers"], part)))
    return tuple(phases)


def _rate(text: str, part: str) -> float:
    try:
        rate = number_with_suffix(text.removesuffix("/s"))
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise LabError(f"--profile: {part[:60]!r}: the rate is {text[:20]!r}; give a number such as 20k")
    return rate


def _count(text: str | None, part: str) -> int:
    if text is None:
        return 0
    if text in _WORDS:
        return _WORDS[text]
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0):
        raise LabError(f"--profile: {part[:60]!r}: {text[:20]!r} is no number of servers; give one, two or 3")
    return int(text)
