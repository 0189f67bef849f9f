"""Splits of runs: which configurations calibrate and which are held out. No split looks at a measured value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from waylab.errors import LabError
from waylab.fit.observations import TrialObservation

SPECIFICATION = "specification"
CALIBRATION, HELD_OUT = "calibration", "held-out"
_CLIENTS = "clients"
# The factors of each split; one level of a factor is held out in turn.
_FACTORS = {
    "pools": ("slots", "readers", "lanes"),
    "servers": ("servers", "proxies", "services"),
    "levels": ("writes_share", "replicas", "value_bytes", "keys", "pipeline", "think_s"),
}


@dataclass(frozen=True)
class RunHoldOut:
    """Trials to learn from and trials to predict; `factor` and `level` say what is held out."""

    known: Sequence[TrialObservation]
    held: Sequence[TrialObservation]
    factor: str = ""
    level: str = ""


def run_hold_outs(observations: Sequence[TrialObservation], split: str | None) -> list[RunHoldOut]:
    """The hold-outs of a split; without one, what the specification holds out.

    Raises:
        LabError: when nothing can be held out.
    """
    if split is None:
        return [_specified(observations)]
    found = list(_clients(observations) if split == _CLIENTS else _levels(observations, _FACTORS[split]))
    if not found:
        names = (_CLIENTS,) if split == _CLIENTS else _FACTORS[split]
        raise LabError(
            f"--split {split}: nothing can be held out, because {', '.join(names)} had one level each; "
            f"measure a second number of {names[0]}"
        )
    return found


def _specified(observations: Sequence[TrialObservation]) -> RunHoldOut:
    known = [one for one in observations if one.role == CALIBRATION]
    held = [one for one in observations if one.role == HELD_OUT]
    if not known or not held:
        raise LabError(
            f"the specification {'holds out no configuration' if known or not held else 'has none for calibration'}: "
            "name them in [predict] before there is data, for example held_out = [{ clients = 64 }], "
            "or give --split clients, servers, levels or pools"
        )
    return RunHoldOut(known, held)


def _clients(observations: Sequence[TrialObservation]) -> Iterator[RunHoldOut]:
    """The lower half of the numbers of clients calibrates."""
    counts = sorted({one.settings.in_flight for one in observations})
    if len(counts) < 2:
        return
    cut = counts[(len(counts) + 1) // 2 - 1]
    known = [one for one in observations if one.settings.in_flight <= cut]
    held = [one for one in observations if one.settings.in_flight > cut]
    yield RunHoldOut(known, held, _CLIENTS, f"> {cut}")


def _levels(observations: Sequence[TrialObservation], factors: Sequence[str]) -> Iterator[RunHoldOut]:
    for factor in factors:
        levels = sorted({getattr(one.settings, factor) for one in observations})
        if len(levels) < 2:
            continue
        for level in levels:
            known = [one for one in observations if getattr(one.settings, factor) != level]
            held = [one for one in observations if getattr(one.settings, factor) == level]
            yield RunHoldOut(known, held, factor, f"{level:g}")
