"""The plan of imported trials: `run.json` as if the lab had measured them, with factors, blocks and configurations."""

import functools
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import convert, to_builtins

from waylab.adapters.factors import factors_of
from waylab.adapters.foreign import ForeignTrial
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.load import LoadSource
from waylab.runfolder.run import (
    DesignSettings,
    ExperimentSpec,
    GateLimits,
    LoadSettings,
    PlannedTrial,
    Run,
    Settings,
    SystemDescription,
)
from waylab.runfolder.words import joined
from waylab.spec import FULL, Gates, Spec, spec_as_dict
from waylab.version import __version__

_SLUG_MAX = 80
_COMMON = tuple(name for name in LoadSettings.__struct_fields__ if name != "test_time_s")


@dataclass(frozen=True)
class SourcedTrial:
    """A trial with the file that it comes from."""

    trial: ForeignTrial
    source: LoadSource


def planned_run(found: Sequence[SourcedTrial], name: str, errors_max: int, arguments: str) -> Run:
    """Return the run of imported trials, in the order of their files."""
    factors = factors_of([one.trial for one in found])
    varied = [factor.name for factor in factors if len(factor.levels) > 1]
    plan: list[PlannedTrial] = []
    for one, block in zip(found, _blocks(found, varied), strict=True):
        plan.append(_planned(one, block, len(plan) + 1, varied))
    tools = list(dict.fromkeys(one.trial.tool for one in found))
    description = spec_as_dict(Spec(name=name))
    now = datetime.now(UTC)
    spec = description | {
        "question": f"Imported from {joined(tools)}, so some gates cannot be judged: "
        + (
            f"how do throughput and response time depend on {joined(varied)}?"
            if varied
            else "what was measured?"
        ),
        "hypothesis": "none was stated, because the results were imported",
        "system": _system({"backends": 1}, {}, common_system(found)),
        "load": {name: _common(found, name) for name in _COMMON} | {"test_time_s": 0.0},
        "factors": to_builtins(factors),
        "design": to_builtins(
            DesignSettings(
                kind="listed",
                generators=[],
                exclude=[],
                trials=[
                    {factor: [label] for factor, label in levels.items()} for levels in _combinations(plan)
                ],
                blocks=max(one.block for one in plan),
                seed=0,
                order="as the files are given",
            )
        ),
        "gates": to_builtins(_gates(errors_max)),
    }
    return Run(
        format=paths.RUN_FORMAT,
        waylab=__version__,
        name=name,
        created_utc=now.strftime("%Y-%m-%d %H:%M:%S"),
        created_unix_s=round(time.time(), 3),
        scale=FULL,
        quick=False,
        spec_path="",
        spec=convert(spec, ExperimentSpec),
        expected_s=sum(one.expected_s for one in plan),
        plan=plan,
        reproduce=[arguments],
    )


def _gates(errors_max: int) -> GateLimits:
    gates = replace(Gates(), errors_max=errors_max)
    loosened = gates.loosened()
    reason = "--errors-max was given at the import" if loosened else ""
    return GateLimits(
        **to_builtins(replace(gates, reason=reason)), loosened=loosened, usual=gates.usual(), imported=True
    )


def _combinations(plan: Sequence[PlannedTrial]) -> list[dict[str, str]]:
    """Return the levels of each configuration once."""
    return list({one.configuration: one.levels for one in plan}.values())


def common_system(found: Sequence[SourcedTrial]) -> Settings:
    """Return the settings of the system that all trials have."""
    first = found[0].trial.system
    return first if all(one.trial.system == first for one in found) else {}


def _common(found: Sequence[SourcedTrial], name: str) -> Any:
    """Return the setting of the load that all trials have; the default of the lab if they differ."""
    values = [getattr(one.trial.load, name) for one in found]
    return (
        values[0] if all(value == values[0] for value in values) else getattr(LoadSettings(clients=0), name)
    )


def _blocks(found: Sequence[SourcedTrial], varied: Sequence[str]) -> list[int]:
    """Return the block of each trial: its own, or else the next of its configuration."""
    taken: dict[tuple[str, ...], set[int]] = {}
    blocks = []
    for one in found:
        mine = taken.setdefault(tuple(one.trial.levels[name] for name in varied), set())
        block = one.trial.block
        if block is not None and block in mine and not one.trial.row:
            where = f"{one.source.file}" + (f", line {one.source.line}" if one.source.line else "")
            raise LabError(
                f"{where}: its configuration has block {block} twice; number the blocks, or leave them out"
            )
        if block is None or block in mine:
            block = next(number for number in range(1, len(found) + 2) if number not in mine)
        mine.add(block)
        blocks.append(block)
    return blocks


def _planned(one: SourcedTrial, block: int, order: int, varied: Sequence[str]) -> PlannedTrial:
    trial, source = one.trial, one.source
    name = ", ".join(f"{factor}={trial.levels[factor]}" for factor in varied) or "base"
    system = _system(trial.programs, trial.row, trial.system, source)
    load = convert(to_builtins(trial.load) | {"test_time_s": trial.measured_s}, LoadSettings)
    return PlannedTrial(
        id=f"b{block:02}-{_slug(name)}",
        order=order,
        block=block,
        configuration=name,
        levels=dict(trial.levels),
        system=system,
        load=load,
        seed=0,
        assignment={},
        role="",
        expected_s=trial.measured_s,
    )


def _slug(name: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    # Labels that differ in other characters only would share a folder.
    if len(slug) > _SLUG_MAX or re.search(r"[^A-Za-z0-9.,= -]", name):
        slug = f"{slug[:60]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return slug


@functools.lru_cache(maxsize=1)
def _default_system() -> Settings:
    found: Settings = spec_as_dict(Spec(name="imported"))["system"]
    return found


def _system(
    programs: Mapping[str, int], row: Mapping[str, str], settings: Settings, source: LoadSource | None = None
) -> Settings:
    """Return the settings of a system that the lab knows by its load only."""
    defaults = _default_system()
    system = {
        part: {**value, **settings.get(part, {})} if isinstance(value, dict) else value
        for part, value in defaults.items()
    }
    system |= {"kind": "imported"}
    system["backends"] = {**system["backends"], "count": programs["backends"], "service_mean_s": 0.0}
    system["description"] = to_builtins(
        SystemDescription(
            name="imported",
            protocol="memcached",
            programs=dict(programs),
            load_reaches="all",
            middle="middleware",
            stage_program=None,
            stages=[],
            operations=[],
            record_files={},
            hit_ratio=True,
            keeps_order=True,
            titles={"proxy": "middleware", "backends": "system"},
            shown={"load": [["clients", "load.clients"]]},
        )
    )
    if row and source is not None:
        system["row"] = {"file": source.file, "line": source.line, "cells": dict(row)}
    return system
