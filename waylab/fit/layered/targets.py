"""What a fit compares with the solutions of the network."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waylab.fit.interface import RefusedFitError
from waylab.fit.layered.demands import roles_of
from waylab.fit.layered.network import CycleSolutions
from waylab.fit.observations import TrialObservation

Array = NDArray[np.float64]

RATE, RESPONSE = "throughput", "response"
_CPU_NOISE = 1.5
_WORST = 50.0


@dataclass(frozen=True)
class Targets:
    """What is compared with the solutions: logarithms, and how many standard errors of X each is worth."""

    trials: Sequence[TrialObservation]
    centres: Sequence[str]

    @property
    def owners(self) -> list[tuple[int, str]]:
        """Place of the trial and kind of each error, in the order of `errors`."""
        found = []
        for place, one in enumerate(self.trials):
            found += [(place, RATE)] if not one.settings.rate_per_s else []
            found += [(place, RESPONSE)] if one.settings.rate_per_s or one.settings.think_s else []
            found += [
                (place, name)
                for name in self.centres
                if one.cpu_s.get(name, 0) > 0 or one.link_s.get(name, 0) > 0
            ]
        return found

    def slower(self) -> Array:
        """How the errors change if everything that takes time takes longer by a factor of e; bytes stay the same."""
        found = []
        for place, kind in self.owners:
            one = self.trials[place]
            if kind == RATE:
                found.append(one.response_s / (one.response_s + one.settings.think_s))
            elif kind == RESPONSE:
                found.append(-1 / 2)
            else:
                found.append(-1 / _CPU_NOISE if one.cpu_s.get(kind, 0) > 0 else 0.0)
        return np.array(found)

    def errors(self, found: CycleSolutions, overhead: Array, rows: NDArray[np.int_]) -> Array:
        """Differences of logarithms in units of the noise of X, shape (parameter rows, errors)."""
        columns = []
        for place, one in enumerate(self.trials):
            at = rows[:, place]
            if not one.settings.rate_per_s:
                columns.append(np.log(found.throughput_per_s[at] / one.throughput_per_s))
            if one.settings.rate_per_s or one.settings.think_s:
                columns.append(np.log(found.response_s[at] / one.response_s) / 2)
            for index, name in enumerate(self.centres):
                if one.cpu_s.get(name, 0) > 0:
                    columns.append(np.log(found.cpu_s[at, index] / overhead / one.cpu_s[name]) / _CPU_NOISE)
                elif one.link_s.get(name, 0) > 0:
                    columns.append(np.log(found.cpu_s[at, index] / one.link_s[name]))
        return np.asarray(np.clip(np.nan_to_num(np.stack(columns, axis=1), posinf=_WORST), -_WORST, _WORST))


def check_trials(observations: Sequence[TrialObservation]) -> None:
    """Refuse what cannot identify the model."""
    settings = {one.settings for one in observations}
    if len({roles_of(one) for one in settings}) > 1 or len({one.others for one in settings}) > 1:
        names = sorted(
            {name for one in settings for name, _ in set(one.others) ^ set(next(iter(settings)).others)}
        )
        raise RefusedFitError(
            f"the trials are of different systems ({', '.join(names[:3]) or 'other programs'}); fit each apart"
        )
    if (
        len({(one.hosts, tuple(tuple(part[:-1]) for part in (*one.cores, *one.links))) for one in settings})
        > 1
    ):
        raise RefusedFitError(
            "the programs of some trials run on other hosts, or share them otherwise; fit each apart"
        )
    if len({bool(one.rate_per_s) for one in settings}) > 1:
        raise RefusedFitError("open and closed loops cannot be fitted together; fit each apart")
    loads = {(one.in_flight, one.rate_per_s, one.think_s, one.pool) for one in settings}
    if len(settings) < 2 or len(loads) < 2:
        raise RefusedFitError(
            "the layered model needs two different loads or pools; measure another number of clients"
        )
