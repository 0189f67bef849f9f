"""Reads a specification from TOML, strictly: every mistake is one line with the file, the key and a suggestion."""

import dataclasses
import re
from pathlib import Path

from msgspec import to_builtins

from waylab import bounded
from waylab.errors import LabError
from waylab.spec.compare import check_compares, read_compares
from waylab.spec.design import Labels, check_design, configurations, listed_levels, matches, read_patterns
from waylab.spec.factors import Factor, Level, check_of
from waylab.spec.findings import Levels
from waylab.spec.hosts import HostSettings, check_assignment, with_profile
from waylab.spec.naming import checked, label_of, resolved, short
from waylab.spec.published import read_published
from waylab.spec.quantities import mean_of_variate_s
from waylab.spec.roles.read import read_generator, read_roles
from waylab.spec.rules import beside, blocks_for_contrasts, check_measured, check_rules, read_rules
from waylab.spec.scales import FULL, at_scale, read_scales
from waylab.spec.schema import Pattern, PredictionSplit, Spec, StoppingSettings, TrialSettings
from waylab.spec.settings import Load
from waylab.spec.ssh import check_ssh, check_ssh_settings
from waylab.spec.systems import System
from waylab.spec.tables import Table, section
from waylab.spec.time_scale import at_time_scale


def read_spec(path: Path, scale: str = FULL) -> Spec:
    """Read and check a specification, and return it at a scale."""
    return parse_spec(read_spec_text(path), path, scale)


def read_spec_text(path: Path) -> str:
    """Read the text of a specification."""
    try:
        return bounded.read_text(path, bounded.TOML_BYTES_MAX)
    except FileNotFoundError:
        raise LabError(f"{path}: no such specification") from None
    except bounded.UnreadableError as error:
        raise LabError(f"{path}: {error}") from None


def parse_spec(text: str, path: Path, scale: str = FULL) -> Spec:
    """Check the text of a specification, and return it at a scale; `path` is its name in errors."""
    try:
        content = bounded.parse_toml(text)
    except bounded.UnreadableError as error:
        raise LabError(f"{path}: {error}") from None
    return spec_of(content, path, scale)


def spec_of(content: Table, path: Path, scale: str = FULL) -> Spec:
    """Check the content of a specification, and return it at a scale; `path` is its name in errors."""
    try:
        return at_scale(_spec(content, path), scale)
    except ValueError as error:
        raise LabError(f"{path}: {error}") from None


def spec_as_dict(spec: Spec) -> Table:
    """Return the resolved specification for `run.json`."""
    content = dataclasses.asdict(spec)
    content["assignment"] = spec.settings.assigned().assignment.by_role()
    content["factors"] = [
        {
            "name": factor.name,
            "key": factor.key,
            "levels": [{"label": level.label, "settings": dict(level.settings)} for level in factor.levels],
        }
        for factor in spec.factors
    ]
    description = spec.system.under_test.describe(spec.system, spec.assignment.generators)
    content["system"]["description"] = to_builtins(description)
    content["gates"]["loosened"] = spec.gates.loosened()
    content["gates"]["usual"] = spec.gates.usual()
    for name in ("exclude", "trials"):
        content["design"][name] = _patterns_as_tables(getattr(spec.design, name))
    for name in ("calibrate", "held_out"):
        content["predict"][name] = _patterns_as_tables(getattr(spec.predict, name))
    content["refuted_by"] = [dataclasses.asdict(rule) | {"kind": rule.kind} for rule in spec.refuted_by]
    for compare in content["compare"]:
        compare["added_ns"] = (
            round(1e9 * mean_of_variate_s(f"fixed:{compare['added']}")) if compare["added"] else None
        )
    del content["scales"]
    return content


def _patterns_as_tables(patterns: tuple[Pattern, ...]) -> list[dict[str, list[str]]]:
    return [{name: list(labels) for name, labels in pattern} for pattern in patterns]


def _spec(content: Table, path: Path) -> Spec:
    content = dict(content)
    design = _taken(content, "design", "exclude", "trials")
    predict = _taken(content, "predict", "calibrate", "held_out")
    named = content.pop("factors", {})
    if isinstance(named, dict):
        named = named | listed_levels(design["trials"], [*named, *map(short, named)])
    factors = _factors(named)
    factors, compare = read_compares(content.pop("compare", []), factors)
    scales = read_scales(content.pop("scale", {}), factors)
    published = read_published(content.pop("published", None), factors)
    refuted_by = content.pop("refuted_by", [])
    hosts = _hosts(content)
    own = _own_system(content)
    spec = section(Spec, content, "")
    patterns = {name: read_patterns(part, factors, f"design.{name}") for name, part in design.items()}
    learning = {name: read_patterns(part, factors, f"predict.{name}") for name, part in predict.items()}
    spec = dataclasses.replace(
        spec,
        system=dataclasses.replace(spec.system, **own),
        factors=factors,
        compare=compare,
        published=published,
        refuted_by=read_rules(refuted_by, factors),
        scales=scales,
        design=dataclasses.replace(spec.design, exclude=patterns["exclude"], trials=patterns["trials"]),
        predict=PredictionSplit(**learning),
        testbed=dataclasses.replace(spec.testbed, hosts=hosts),
    )
    if not spec.name:
        spec = dataclasses.replace(spec, name=path.stem)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", spec.name):
        raise ValueError(f"name: {spec.name!r} should be letters, digits, dots and dashes: it names a folder")
    for name in ("question", "hypothesis"):
        if not getattr(spec, name):
            raise ValueError(f"{name}: is missing; an experiment states it before there is data")
    spec = dataclasses.replace(spec, design=check_design(spec.factors, spec.design))
    _check_whole(spec)
    for name, _ in scales:
        try:
            smaller = at_scale(spec, name)
            check_design(smaller.factors, smaller.design)
            _check_whole(smaller)
        except ValueError as error:
            raise ValueError(f"at scale {name}: {error}") from None
    return spec


def _taken(content: Table, name_of_section: str, *names: str) -> dict[str, object]:
    """Remove keys whose content names factors from a section, and return them; a missing key is an empty list."""
    table = content.get(name_of_section, {})
    if not isinstance(table, dict):
        return {name: [] for name in names}
    content[name_of_section] = {key: value for key, value in table.items() if key not in names}
    return {name: table.get(name, []) for name in names}


def _hosts(content: Table) -> dict[str, HostSettings]:
    """Remove the table of hosts from the content of the specification, and read it."""
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
        hosts[name] = with_profile(section(HostSettings, described, f"testbed.hosts.{name}"))
    return hosts


def _own_system(content: Table) -> Table:
    """Remove the tables of roles and of the generator from the content of the specification, and read them."""
    system = content.get("system")
    if not isinstance(system, dict):
        return {}
    read = {"roles": read_roles, "generator": read_generator}
    content["system"] = {name: value for name, value in system.items() if name not in read}
    return {name: read[name](system[name]) for name in read if name in system}


def _factors(content: object) -> tuple[Factor, ...]:
    if not isinstance(content, dict):
        raise ValueError("factors: should be a table")
    factors = []
    for name, levels in content.items():
        if isinstance(levels, list) and levels:
            key = resolved(name, f"factors.{name}")
            factors.append(
                Factor(
                    short(name),
                    tuple(_level(label_of(value), {key: value}, f"factors.{name}") for value in levels),
                    listed=True,
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


def _level(label: str, settings: Table, where: str) -> Level:
    settings_checked = []
    for name, value in settings.items():
        key = resolved(name, where if len(settings) == 1 and where.endswith(name) else f"{where}.{name}")
        settings_checked.append((key, checked(check_of(TrialSettings, key.split(".")), value, where)))
    return Level(label, tuple(settings_checked))


def _check_whole(spec: Spec) -> None:
    """Check values against each other, in every combination that will be run."""
    if spec.gates.loosened() and not spec.gates.reason:
        raise ValueError(
            f"gates.reason: is missing; {', '.join(spec.gates.loosened())} is looser than the default; give the reason"
        )
    if spec.report.x and spec.report.x not in [factor.name for factor in spec.factors]:
        raise ValueError(f"report.x = {spec.report.x!r}: is not a factor")
    if spec.testbed.kind == "local" and spec.testbed.time_scale != 1:
        raise ValueError('testbed.time_scale: only emulated hosts can be slower; set testbed.kind = "netns"')
    _check_stopping(spec)
    combinations = configurations(spec.factors, spec.design, spec.settings)
    check_compares(spec, [labels for labels, _ in combinations])
    check_ssh(spec)
    _check_rules(spec, [labels for labels, _ in combinations])
    _check_prediction(spec.predict, [labels for labels, _ in combinations])
    _check_metrics(spec, [settings for _, settings in combinations])
    for _, settings in combinations:
        system, load, generators = settings.system, settings.load, settings.assignment.generators
        _check_values(system, load)
        system.under_test.check(system, load, generators)
        check_ssh_settings(spec.testbed, settings)
        check_assignment(spec.testbed, settings.assignment, system.programs(generators))
        at_time_scale(settings, spec.testbed.time_scale)
        _check_loop(load)
        _check_generators(load, generators)


def _check_rules(spec: Spec, combinations: list[Labels]) -> None:
    description = spec.system.under_test.describe(spec.system, spec.assignment.generators)
    check_rules(spec.refuted_by, spec.factors, combinations, {"all", *description.operations})
    blocks = spec.stopping.blocks_min if spec.stopping.precision else spec.design.blocks
    sides: list[tuple[str, Levels, Levels]] = [
        (f"compare[{index}]", {one.factor: (one.candidate,)}, {one.factor: (one.baseline,)})
        for index, one in enumerate(spec.compare)
    ]
    sides += [
        (f"refuted_by[{index}]", rule.of, rule.to) for index, rule in enumerate(spec.refuted_by) if rule.to
    ]
    for where, of, to in sides:
        count = len(beside(of, to, combinations))
        need = blocks_for_contrasts(count)
        if blocks < need:
            raise ValueError(
                f"{where}: design.blocks = {blocks}: too few to decide this comparison of {count} configurations; "
                f"it takes at least {need}"
            )


def _check_metrics(spec: Spec, combinations: list[TrialSettings]) -> None:
    """Check that at least one configuration measures each metric of a rule, a comparison and a stopping rule."""
    roles = {role for one in combinations for role in one.system.programs(one.assignment.generators)}
    hosts = set(spec.testbed.hosts) if spec.testbed.kind == "netns" else set()
    for name, metrics in (
        ("refuted_by[{}].metric", [rule.metric for rule in spec.refuted_by]),
        ("compare[{}].metric", [compare.metric for compare in spec.compare]),
        ("stopping.metrics[{}]", spec.stopping.metrics),
    ):
        for index, metric in enumerate(metrics):
            check_measured(metric, roles, hosts, name.format(index))


def _check_stopping(spec: Spec) -> None:
    rule = spec.stopping
    if rule.precision and rule.blocks_max < rule.blocks_min:
        raise ValueError(
            f"stopping.blocks_max = {rule.blocks_max}: below stopping.blocks_min = {rule.blocks_min}"
        )
    if not rule.precision and rule != StoppingSettings():
        raise ValueError(
            "stopping.precision: is missing; it is the largest relative half-width of the intervals, for example 0.05"
        )


def _check_prediction(predict: PredictionSplit, combinations: list[Labels]) -> None:
    """Every pattern must select a configuration, and no configuration may be in both parts."""
    for name in ("calibrate", "held_out"):
        for index, pattern in enumerate(getattr(predict, name)):
            if not any(matches((pattern,), labels) for labels in combinations):
                raise ValueError(f"predict.{name}[{index}]: selects no configuration of the design")
    for labels in combinations:
        if matches(predict.calibrate, labels) and matches(predict.held_out, labels):
            said = ", ".join(f"{factor}={label}" for factor, label in labels)
            raise ValueError(f"predict: {said} is both calibrate and held_out")


def _check_values(system: System, load: Load) -> None:
    """Check the rules that are the same for every system."""
    if load.key_maximum < load.key_minimum:
        raise ValueError(
            f"load.key_maximum = {load.key_maximum}: below load.key_minimum = {load.key_minimum}"
        )
    if load.threads > load.clients:
        raise ValueError(f"load.threads = {load.threads}: more than the {load.clients} clients")
    if system.backends.service_time != "none" and system.backends.server == "memcached":
        raise ValueError('system.backends.service_time: only server = "embedded" has a service time')


def _check_loop(load: Load) -> None:
    if load.rate and load.think_time != "none":
        raise ValueError(
            f"load.think_time = {load.think_time!r}: an open loop does not wait for replies and has no "
            "think time; leave out one of the two"
        )
    if not load.rate and load.arrivals != Load().arrivals:
        raise ValueError(f"load.arrivals = {load.arrivals!r}: needs load.rate; a closed loop has no arrivals")


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
