"""The specification of `waylab ab`: another specification, run with two arms of its system in mirrored blocks."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from waylab.errors import LabError
from waylab.spec.design import configurations
from waylab.spec.factors import check_of
from waylab.spec.naming import checked, resolved
from waylab.spec.read import read_spec
from waylab.spec.schema import TrialSettings
from waylab.spec.tables import Table

FACTOR, A, B = "version", "a", "b"
PROGRAM = "system.program"
BLOCKS_MIN = 6
# These belong to the question of the original specification.
_DROPPED = ("published", "predict", "scale", "stopping", "compare", "refuted_by", "report")


@dataclass(frozen=True)
class Arm:
    """One of the two sides: what differs, as given and as settings by dotted key."""

    given: str
    settings: tuple[tuple[str, object], ...]


def program_key(path: Path) -> str:
    """Return the setting that a binary given as a side has: that of the system's only role, or of `waystage`.

    Raises:
        LabError: in one line for an invalid specification, or a system with several roles.
    """
    roles = list(read_spec(path).system.roles)
    if len(roles) > 1:
        raise LabError(
            f"ab: {path} has the roles {', '.join(roles)}; say which one the binary is for, "
            f"for example --a roles.{roles[0]}.program=PATH"
        )
    return f"system.roles.{roles[0]}.program" if roles else PROGRAM


def read_arm(given: str, name: str, program: str = PROGRAM) -> Arm:
    """Read a side: the path of a binary, or settings such as `proxy.loops=2,clients=64`; `program` is its setting.

    Raises:
        LabError: in one line for a file that is not there, an unknown setting, or a value that it cannot have.
    """
    where = f"ab: --{name} {given}"
    if "=" not in given:
        path = Path(given)
        if not path.is_file():
            raise LabError(f"{where}: is no file; give a binary, or a setting such as proxy.loops=2")
        return Arm(given, ((program, str(path.resolve())),))
    settings: list[tuple[str, object]] = []
    # A comma separates settings only if another one follows it.
    for part in re.split(r",(?=[\w.]+=)", given):
        key, _, text = part.partition("=")
        try:
            dotted = resolved(key.strip(), key.strip() or "the empty name")
            value = _value(text.strip())
            checked(check_of(TrialSettings, dotted.split(".")), value, key.strip())
        except ValueError as error:
            raise LabError(f"{where}: {error}") from None
        if dotted in dict(settings):
            raise LabError(f"{where}: {dotted} is given twice")
        settings.append((dotted, value))
    return Arm(given, tuple(settings))


def given_by(settings: Mapping[str, object]) -> str:
    """Return the side that has these settings as `read_arm` reads it."""
    if len(settings) == 1 and PROGRAM in settings:
        return str(settings[PROGRAM])
    return ",".join(f"{key}={value}" for key, value in settings.items())


def arms_spec(
    path: Path, arms: tuple[Arm, Arm], metrics: tuple[str, ...], margin: float, options: Table
) -> tuple[str, str]:
    """Return the name and the text of the specification with both arms; `options` may have blocks and test_time_s.

    Raises:
        LabError: in one line for an invalid specification, arms that are the same, or a setting that it varies already.
    """
    spec = read_spec(path)
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    if arms[0].settings == arms[1].settings:
        raise LabError(f"ab: --a and --b are the same ({arms[0].given}), so there is nothing to compare")
    varied = {
        key: factor.name for factor in spec.factors for level in factor.levels for key, _ in level.settings
    }
    for key in dict((*arms[0].settings, *arms[1].settings)):
        if key in varied or FACTOR in varied.values():
            name = varied.get(key, FACTOR)
            raise LabError(f"ab: {path} varies {name} already; take a specification without that factor")
    blocks = options.get("blocks") or max(BLOCKS_MIN, spec.design.blocks)
    content = {key: value for key, value in content.items() if key not in _DROPPED}
    design = content.get("design", {})
    kept = {key: design[key] for key in ("seed", "exclude") if key in design}
    if spec.design.kind in ("listed", "2k-p"):
        combinations = configurations(spec.factors, spec.design, spec.settings)
        listed = [dict(labels) | {FACTOR: arm} for labels, _ in combinations for arm in (A, B)]
        kept = {"seed": spec.design.seed, "kind": "listed", "trials": listed}
    content |= {
        "name": f"{spec.name[:60]}-ab",
        "question": f"Is {arms[1].given} worse than {arms[0].given}?",
        "hypothesis": f"{arms[1].given} is no worse than {arms[0].given} by more than {100 * margin:g} %.",
        "factors": content.get("factors", {})
        | {FACTOR: {A: dict(arms[0].settings), B: dict(arms[1].settings)}},
        "design": kept
        | {"order": "mirrored", "blocks": blocks + blocks % 2, "covariate": spec.design.covariate},
        "compare": [
            {"factor": FACTOR, "baseline": A, "candidate": B, "metric": metric, "margin": margin}
            for metric in metrics
        ],
        "refuted_by": [
            {"metric": metric, "of": {FACTOR: B}, "to": {FACTOR: A}} | _limit(metric, margin)
            for metric in metrics
        ],
    }
    if options.get("test_time_s"):
        content["load"] = content.get("load", {}) | {"test_time_s": options["test_time_s"]}
    name = str(content["name"])
    head = f"# Made by waylab ab from {path.name}: {A} is {arms[0].given}, {B} is {arms[1].given}.\n"
    return name, head + "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in content.items())


def default_metric(path: Path) -> str:
    """Return the metric that the load leaves free: throughput of a closed loop, response time of an open one."""
    return "response_mean_ns" if read_spec(path).load.rate else "throughput_per_s"


def _limit(metric: str, margin: float) -> Table:
    """Return the limit of a loss beyond the margin."""
    more = metric == "throughput_per_s"
    return {"below": round(1 / (1 + margin), 6)} if more else {"above": round(1 + margin, 6)}


def _value(text: str) -> object:
    """Read a value as TOML has it; anything else is text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _toml(value: object) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    # Text, numbers and truth values are the same in JSON.
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
