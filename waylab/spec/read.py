"""TOML to specification, strictly: every mistake is one line with the file, the key and what was perhaps meant."""

import dataclasses
import difflib
import re
import tomllib
from pathlib import Path
from typing import Any

from waylab.errors import LabError
from waylab.spec.factors import Factor, Level, apply_level, check_of, resolve_key, setting_keys
from waylab.spec.hosts import HostSettings, Placement, check_placement, with_profile
from waylab.spec.schema import Compare, Load, Spec, System

_ROOTS = {"system": System, "load": Load, "placement": Placement}
_KEYS = setting_keys(("system", System), ("load", Load), ("placement", Placement))
# Read by functions of their own: the names in them are the user's.
_NAMED = ("factors", "compare", "hosts")
_METRICS = re.compile(
    r"throughput_per_s|response_mean_ns|response_p(50|90|95|99)_ns|cpu_per_request_ns\.(total|load|proxy|backends|interrupts)"
)


def read_spec(path: Path) -> Spec:
    """Read and check a specification."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LabError(f"{path}: no such specification") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path}: not TOML: {error}") from None
    try:
        return _spec(content, path)
    except ValueError as error:
        raise LabError(f"{path}: {error}") from None


def spec_as_dict(spec: Spec) -> dict[str, Any]:
    """Return the specification, resolved, as it goes into `run.json`."""
    content = dataclasses.asdict(spec)
    content["factors"] = [
        {
            "name": factor.name,
            "key": factor.key,
            "levels": [{"label": level.label, "settings": dict(level.settings)} for level in factor.levels],
        }
        for factor in spec.factors
    ]
    content["gates"]["loosened"] = spec.gates.loosened()
    return content


def _spec(content: dict[str, Any], path: Path) -> Spec:
    content = dict(content)
    factors = _factors(content.pop("factors", {}))
    compare = _compares(content.pop("compare", []), factors)
    hosts = _hosts(content)
    spec = dataclasses.replace(_section(Spec, content, ""), factors=factors, compare=compare)
    spec = dataclasses.replace(spec, testbed=dataclasses.replace(spec.testbed, hosts=hosts))
    if not spec.name:
        spec = dataclasses.replace(spec, name=path.stem)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", spec.name):
        raise ValueError(f"name: {spec.name!r} should be letters, digits, dots and dashes: it names a folder")
    for name in ("question", "hypothesis", "refuted_by"):
        if not getattr(spec, name):
            raise ValueError(f"{name}: is missing; an experiment states it before there is data")
    _check_whole(spec)
    return spec


def _section(kind: type, content: Any, prefix: str) -> Any:
    """Fill one dataclass from one table."""
    if not isinstance(content, dict):
        raise ValueError(f"{prefix}: should be a table")
    parts = {part.name: part for part in dataclasses.fields(kind) if part.name not in _NAMED}
    values = {}
    for name, value in content.items():
        key = f"{prefix}.{name}" if prefix else name
        if name not in parts:
            raise ValueError(f"{key} is not a key; {_nearest(name, [*parts, *_named_in(kind)], prefix)}")
        if "check" in parts[name].metadata:
            values[name] = _checked(parts[name].metadata["check"], value, key)
        else:
            values[name] = _section(parts[name].default_factory, value, key)
    return kind(**values)


def _named_in(kind: type) -> list[str]:
    return [part.name for part in dataclasses.fields(kind) if part.name in _NAMED]


def _hosts(content: dict[str, Any]) -> dict[str, HostSettings]:
    """Take the table of hosts out of the specification's content and read it."""
    testbed = content.get("testbed")
    if not isinstance(testbed, dict) or "hosts" not in testbed:
        return {}
    content["testbed"] = {name: value for name, value in testbed.items() if name != "hosts"}
    if not isinstance(testbed["hosts"], dict):
        raise ValueError("testbed.hosts: should be a table with a table for each host")
    hosts = {}
    for name, described in testbed["hosts"].items():
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", name):
            raise ValueError(f"testbed.hosts: {name!r} should be small letters, digits and dashes")
        hosts[name] = with_profile(_section(HostSettings, described, f"testbed.hosts.{name}"))
    return hosts


def _nearest(name: str, known: list[str], prefix: str) -> str:
    """Say what was perhaps meant: the same name in another place, or a similar one in this."""
    places = [*dict.fromkeys(key.rpartition(".")[0] for key in _KEYS), *_KEYS]
    elsewhere = [key for key in places if key.rpartition(".")[2] == name]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (
        f"did you mean {f'{prefix}.' if prefix else ''}{near[0]}?"
        if near
        else f"known here: {', '.join(known)}"
    )


def _checked(check: Any, value: Any, key: str) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{key} = {value!r}: {error}") from None


def _factors(content: Any) -> tuple[Factor, ...]:
    if not isinstance(content, dict):
        raise ValueError("factors: should be a table")
    factors = []
    for name, levels in content.items():
        if isinstance(levels, list) and levels:
            key = _resolved(name, f"factors.{name}")
            factors.append(
                Factor(
                    _short(name),
                    tuple(_level(_label(value), {key: value}, f"factors.{name}") for value in levels),
                )
            )
        elif (
            isinstance(levels, dict) and levels and all(isinstance(level, dict) for level in levels.values())
        ):
            factors.append(
                Factor(
                    name,
                    tuple(_level(label, level, f"factors.{name}.{label}") for label, level in levels.items()),
                )
            )
        else:
            raise ValueError(f"factors.{name}: should be a list of levels, or a table of named levels")
        labels = [level.label for level in factors[-1].levels]
        if len(set(labels)) != len(labels):
            raise ValueError(f"factors.{name}: names a level twice")
    names = [factor.name for factor in factors]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"factors.{name}: named twice")
    return tuple(factors)


def _level(label: str, settings: dict[str, Any], where: str) -> Level:
    checked = []
    for name, value in settings.items():
        key = _resolved(name, where if len(settings) == 1 and where.endswith(name) else f"{where}.{name}")
        root, *path = key.split(".")
        checked.append((key, _checked(check_of(_ROOTS[root], path), value, where)))
    return Level(label, tuple(checked))


def _resolved(name: str, where: str) -> str:
    try:
        return resolve_key(name, _KEYS)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


def _short(name: str) -> str:
    """Return the name used in tables: the last part, unless that could mean several things."""
    short = name.rsplit(".", 1)[-1]
    return short if sum(key.endswith(f".{short}") for key in _KEYS) == 1 else name


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _compares(content: Any, factors: tuple[Factor, ...]) -> tuple[Compare, ...]:
    if not isinstance(content, list):
        raise ValueError("compare: should be written [[compare]]")
    names = {factor.name: [level.label for level in factor.levels] for factor in factors}
    compares = []
    for index, content_of_one in enumerate(content):
        where = f"compare[{index}]"
        if not isinstance(content_of_one, dict):
            raise ValueError(f"{where}: should be written [[compare]]")
        table = dict(content_of_one)
        labels = {key: _label(table.pop(key, "")) for key in ("baseline", "candidate")}
        compare = dataclasses.replace(_section(Compare, table, where), **labels)
        compare = dataclasses.replace(compare, factor=_short(compare.factor))
        if compare.factor not in names:
            raise ValueError(
                f"{where}.factor = {compare.factor!r}: {_nearest(compare.factor, list(names), '')}"
            )
        for key, label in labels.items():
            if label not in names[compare.factor]:
                levels = ", ".join(names[compare.factor])
                raise ValueError(
                    f"{where}.{key} = {label!r}: is not a level of {compare.factor}; its levels: {levels}"
                )
        if not _METRICS.fullmatch(compare.metric):
            raise ValueError(
                f"{where}.metric = {compare.metric!r}: should be throughput_per_s, response_mean_ns, "
                "response_p50_ns, _p90_, _p95_, _p99_, "
                "or cpu_per_request_ns.total, .load, .proxy, .backends, .interrupts"
            )
        compares.append(compare)
    return tuple(compares)


def _check_whole(spec: Spec) -> None:
    """Check what no single value can show, in every combination that will be run."""
    if spec.gates.loosened() and not spec.gates.reason:
        raise ValueError(
            f"gates.reason: is missing; {', '.join(spec.gates.loosened())} is looser than the default, say why"
        )
    if spec.report.x and spec.report.x not in [factor.name for factor in spec.factors]:
        raise ValueError(f"report.x = {spec.report.x!r}: is not a factor")
    roots_of_spec = {"system": spec.system, "load": spec.load, "placement": spec.placement}
    combinations: list[dict[str, Any]] = [roots_of_spec]
    for factor in spec.factors:
        combinations = [apply_level(roots, level) for roots in combinations for level in factor.levels]
        if len(combinations) * spec.design.blocks > 100_000:
            raise ValueError("factors: more than 100000 trials")
    for roots in combinations:
        _check_combination(roots["system"], roots["load"])
        check_placement(spec.testbed, roots["placement"], roots["system"].proxies)
        _check_generators(roots["load"], roots["placement"].generators)


def _check_combination(system: System, load: Load) -> None:
    if system.kind == "proxy" and system.proxy.replicas > system.backends.count:
        raise ValueError(
            f"system.proxy.replicas = {system.proxy.replicas}: more than the {system.backends.count} backends"
        )
    if system.kind == "nutcracker" and system.proxy.replicas > 1:
        raise ValueError(
            f'system.proxy.replicas = {system.proxy.replicas}: system.kind = "nutcracker" keeps one copy'
        )
    if system.proxies > load.clients:
        raise ValueError(
            f"system.proxy.count = {system.proxies}: more than the {load.clients} clients; each goes to one proxy"
        )
    if system.kind == "proxy":
        _check_discipline(system)
    if load.key_maximum < load.key_minimum:
        raise ValueError(
            f"load.key_maximum = {load.key_maximum}: below load.key_minimum = {load.key_minimum}"
        )
    if load.threads > load.clients:
        raise ValueError(f"load.threads = {load.threads}: more than the {load.clients} clients")
    if system.backends.service_time != "none" and system.backends.server == "memcached":
        raise ValueError(
            'system.backends.service_time: only server = "embedded" can be told how long to take'
        )


def _check_generators(load: Load, generators: int) -> None:
    if load.clients < generators * load.threads:
        raise ValueError(
            f"load.clients = {load.clients}: fewer than one for each of {load.threads} threads "
            f"on {generators} load generators"
        )
    if load.key_maximum - load.key_minimum + 1 < generators:
        raise ValueError(
            f"load.key_maximum = {load.key_maximum}: fewer keys than {generators} load generators"
        )


def _check_discipline(system: System) -> None:
    proxy = system.proxy
    for name, slots in proxy.slots().items():
        if slots < proxy.loops:
            raise ValueError(
                f"system.proxy.{name} = {slots}: fewer than the {proxy.loops} loops; each loop needs one"
            )
    if proxy.dispatch == "shared" and proxy.multi_get != "by-key" and proxy.replicas < system.backends.count:
        raise ValueError(
            f"system.proxy.multi_get = {proxy.multi_get!r}: asks any server for any key; "
            f"needs replicas = {system.backends.count}, a copy on every backend"
        )
