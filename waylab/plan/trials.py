"""Randomised complete blocks: every block runs every configuration once, in an order drawn from the seed."""

import dataclasses
import hashlib
import random
import re
from dataclasses import dataclass, field
from typing import Any

from waylab.spec import Factor, Load, Placement, Spec, System, apply_level, mean_of_distribution_s

# What a trial takes besides warm-up and measurement: processes up and away, prefill.
OVERHEAD_S = 0.6
QUICK_TEST_TIME_S = 1.0
QUICK_WARM_UP_S = 0.3


@dataclass(frozen=True)
class Trial:
    """One execution of one configuration after a fresh start of every process."""

    id: str
    order: int
    block: int
    configuration: str
    levels: tuple[tuple[str, str], ...]
    system: System
    load: Load
    seed: int
    placement: Placement = field(default_factory=Placement)

    @property
    def expected_s(self) -> float:
        """The time this trial takes, as far as one can say before it has run."""
        return self.load.warm_up_s + self.load.test_time_s + OVERHEAD_S


@dataclass(frozen=True)
class Plan:
    """The trials in the order in which they run."""

    trials: tuple[Trial, ...]

    @property
    def expected_s(self) -> float:
        """The time the whole plan takes."""
        return sum(trial.expected_s for trial in self.trials)


def make_plan(spec: Spec, quick: bool = False) -> Plan:
    """Order all trials of a specification; `quick` means one short block, to see that everything works."""
    system, load, blocks = spec.system, spec.load, spec.design.blocks
    if quick:
        blocks = 1
        load = dataclasses.replace(
            load,
            test_time_s=min(load.test_time_s, QUICK_TEST_TIME_S),
            warm_up_s=min(load.warm_up_s, QUICK_WARM_UP_S),
        )
    configurations = _configurations(
        spec.factors, {"system": system, "load": load, "placement": spec.placement}
    )
    trials: list[Trial] = []
    order: list[int] = []
    for block in range(1, blocks + 1):
        if spec.design.order == "mirrored" and block % 2 == 0:
            order = order[::-1]
        else:
            order = list(range(len(configurations)))
            random.Random(f"{spec.design.seed}/{block}").shuffle(order)
        for index in order:
            levels, roots = configurations[index]
            name = configuration_name(levels)
            identity = f"b{block:02}-{_slug(name)}"
            trials.append(
                Trial(
                    id=identity,
                    order=len(trials) + 1,
                    block=block,
                    configuration=name,
                    levels=levels,
                    system=roots["system"],
                    load=roots["load"],
                    seed=_seed(spec.design.seed, identity),
                    placement=roots["placement"],
                )
            )
    return Plan(tuple(trials))


def configuration_name(levels: tuple[tuple[str, str], ...]) -> str:
    """Name a configuration by its levels: `clients=16, replicas=3`."""
    return ", ".join(f"{factor}={label}" for factor, label in levels) or "base"


def trial_as_dict(trial: Trial) -> dict[str, Any]:
    """Return the trial as it goes into `run.json`."""
    content = dataclasses.asdict(trial)
    content["levels"] = dict(trial.levels)
    content["expected_s"] = trial.expected_s
    # Means in seconds, so that nobody who reads the run folder has to parse what people write.
    content["load"]["think_mean_s"] = mean_of_distribution_s(trial.load.think_time)
    content["system"]["backends"]["service_mean_s"] = mean_of_distribution_s(
        trial.system.backends.service_time
    )
    return content


def _configurations(
    factors: tuple[Factor, ...], settings: dict[str, Any]
) -> list[tuple[tuple[tuple[str, str], ...], dict[str, Any]]]:
    """Cross all factors fully, the last one varying fastest."""
    crossed: list[tuple[tuple[tuple[str, str], ...], dict[str, Any]]] = [((), settings)]
    for factor in factors:
        crossed = [
            ((*levels, (factor.name, level.label)), apply_level(roots, level))
            for levels, roots in crossed
            for level in factor.levels
        ]
    return crossed


def _slug(name: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    if len(slug) > 80 or not slug:
        slug = f"{slug[:60]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return slug


def _seed(seed: int, identity: str) -> int:
    """Derive the seed of a trial, the same wherever in the plan it stands."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{identity}".encode()).digest()[:4], "big") >> 1
