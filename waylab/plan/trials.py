"""Function 2 of docs/life-of-an-experiment.md: the plan of a run.

Randomised complete blocks: every block runs every configuration once, in an order drawn from the seed.
"""

import dataclasses
import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import to_builtins

from waylab.spec import (
    Assignment,
    Labels,
    Load,
    PredictionSplit,
    Spec,
    System,
    at_time_scale,
    configurations,
    matches,
    mean_of_variate_s,
    mean_time_s,
)

# Time of a trial besides warm-up and measurement: start and stop of processes, prefill.
OVERHEAD_S = 0.6
CALIBRATION, HELD_OUT = "calibration", "held-out"


@dataclass(frozen=True)
class Trial:
    """One execution of one configuration after a fresh start of every process."""

    id: str
    order: int
    block: int
    configuration: str
    levels: Labels
    system: System
    load: Load
    seed: int
    assignment: Assignment = field(default_factory=Assignment)
    # The use of the trial for models: calibration, held-out, or neither ("").
    role: str = ""
    # Times of system and load are already multiplied by it, and rates divided.
    time_scale: float = 1.0
    # What contrasts are adjusted for, and is therefore measured: `machine_speed` or nothing ("").
    covariate: str = ""

    @property
    def expected_s(self) -> float:
        """The expected duration of this trial."""
        return self.load.warm_up_s + self.load.test_time_s + OVERHEAD_S


@dataclass(frozen=True)
class Plan:
    """The trials in the order in which they run."""

    trials: tuple[Trial, ...]

    @property
    def expected_s(self) -> float:
        """The expected duration of the whole plan."""
        return sum(trial.expected_s for trial in self.trials)


def make_plan(spec: Spec) -> Plan:
    """Order all trials of a specification; with a stopping rule, those of its largest number of blocks."""
    blocks = spec.stopping.blocks_max if spec.stopping.precision else spec.design.blocks
    planned = configurations(spec.factors, spec.design, spec.settings)
    # A factor with one level would only make every name longer.
    varied = {factor.name for factor in spec.factors if len(factor.levels) > 1}
    trials: list[Trial] = []
    order: list[int] = []
    for block in range(1, blocks + 1):
        if spec.design.order == "mirrored" and block % 2 == 0:
            order = order[::-1]
        else:
            order = list(range(len(planned)))
            random.Random(f"{spec.design.seed}/{block}").shuffle(order)
        for index in order:
            levels, described = planned[index]
            settings = at_time_scale(described, spec.testbed.time_scale)
            name = configuration_name([one for one in levels if one[0] in varied])
            identity = f"b{block:02}-{_slug(name)}"
            trials.append(
                Trial(
                    id=identity,
                    order=len(trials) + 1,
                    block=block,
                    configuration=name,
                    levels=levels,
                    system=settings.system.resolved(),
                    load=settings.load,
                    seed=_seed(spec.design.seed, identity),
                    assignment=settings.assignment,
                    role=_role(spec.predict, levels),
                    time_scale=spec.testbed.time_scale,
                    covariate=spec.design.covariate,
                )
            )
    return Plan(tuple(trials))


def configuration_name(levels: Sequence[tuple[str, str]]) -> str:
    """Name a configuration by its levels: `clients=16, replicas=3`."""
    return ", ".join(f"{factor}={label}" for factor, label in levels) or "base"


def trial_as_dict(trial: Trial) -> dict[str, Any]:
    """Return the trial for `run.json`."""
    content = dataclasses.asdict(trial)
    content["levels"] = dict(trial.levels)
    content["assignment"] = trial.assignment.by_role()
    content["expected_s"] = trial.expected_s
    description = trial.system.under_test.describe(trial.system, trial.assignment.generators)
    content["system"]["description"] = to_builtins(description)
    # Means in seconds, so that readers of the run folder need not parse durations and random variates.
    content["load"]["think_mean_s"] = mean_time_s(trial.load.think_time)
    content["system"]["backends"]["service_mean_s"] = mean_of_variate_s(trial.system.backends.service_time)
    return content


def _role(predict: PredictionSplit, levels: Labels) -> str:
    """Return the use of a configuration for models; if a specification names one part only, the rest is the other."""
    if matches(predict.calibrate, levels):
        return CALIBRATION
    if matches(predict.held_out, levels):
        return HELD_OUT
    if predict.calibrate and predict.held_out:
        return ""
    return HELD_OUT if predict.calibrate else CALIBRATION if predict.held_out else ""


def _slug(name: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    if len(slug) > 80 or not slug:
        slug = f"{slug[:60]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return slug


def _seed(seed: int, identity: str) -> int:
    """Derive the seed of a trial; it does not depend on the position in the plan."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{identity}".encode()).digest()[:4], "big") >> 1
