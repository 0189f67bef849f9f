"""Reads and checks `[[refuted_by]]`, the rules that refute the hypothesis. The analysis evaluates them."""

import re
from dataclasses import replace

from waylab.runfolder.rule_words import condition_text
from waylab.runfolder.words import joined
from waylab.spec import checks
from waylab.spec.design import Labels, matches, read_patterns
from waylab.spec.factors import Factor
from waylab.spec.findings import Levels
from waylab.spec.naming import nearest_here
from waylab.spec.refutation import Rule
from waylab.spec.tables import section

_MODEL_METRICS = ("throughput_per_s", "response_mean_ns")
_OF_ONE_OPERATION = re.compile(
    r"(?:([a-z_]+)\.)?(response_mean_ns|response_p(?:50|90|95|99)_ns|response_by_law_ratio)"
)
# Parts of the CPU time that belong to no role of the system.
_WITHOUT_A_ROLE = ("total", "load", "interrupts")
_OF_THE_DATABASE = ("commits_per_", "wal_bytes_per_", "wal_syncs_per_")
_FURTHER = re.compile(r"link_utilisation\..+ (up|down)")
_EXAMPLE = (
    'for example metric = "throughput_per_s", of = { clients = 128 }, to = { clients = 32 }, above = 1.25'
)


def read_rules(content: object, factors: tuple[Factor, ...]) -> tuple[Rule, ...]:
    """Read `[[refuted_by]]`; ValueError names the rule and the problem."""
    if isinstance(content, str):
        raise ValueError(
            f"refuted_by: is a sentence, which no program evaluates; write [[refuted_by]] rules, {_EXAMPLE}"
        )
    if not isinstance(content, list) or not all(isinstance(table, dict) for table in content):
        raise ValueError("refuted_by: should be written [[refuted_by]]")
    if not content:
        raise ValueError(
            f"refuted_by: is missing; an experiment states it before there is data as [[refuted_by]] rules, {_EXAMPLE}"
        )
    rules = []
    for index, table in enumerate(content):
        where = f"refuted_by[{index}]"
        levels: dict[str, Levels] = {"of": {}, "to": {}}
        for name in ("of", "to"):
            if name in table:
                (pattern,) = read_patterns([table[name]], factors, f"{where}.{name}")
                levels[name] = dict(pattern)
        rest = {key: value for key, value in table.items() if key not in ("of", "to")}
        rule = replace(section(Rule, rest, where), of=levels["of"], to=levels["to"])
        _check_rule(rule, factors, where)
        rules.append(rule if rule.text else replace(rule, text=condition_text(rule)))
    _check_contradictions(rules)
    return tuple(rules)


def _check_contradictions(rules: list[Rule]) -> None:
    """Refuse two rules about one quantity if every value refutes at least one of them."""
    for index, one in enumerate(rules):
        for place, other in enumerate(rules):
            quantities = [(rule.metric, rule.model, rule.of, rule.to) for rule in (one, other)]
            if quantities[0] != quantities[1] or one.above is None or other.below is None or index == place:
                continue
            if one.above <= other.below:
                raise ValueError(
                    f"refuted_by[{place}].below = {other.below:g}: with refuted_by[{index}].above = {one.above:g}, "
                    "every value refutes the hypothesis; below must be smaller than above"
                )


def _check_rule(rule: Rule, factors: tuple[Factor, ...], where: str) -> None:
    if not rule.metric:
        raise ValueError(f"{where}.metric: is missing; {_EXAMPLE}")
    given = [name for name in ("factor", "model", "to") if getattr(rule, name)]
    if len(given) > 1:
        raise ValueError(f"{where}: has both {given[0]} and {given[1]}; one rule has one quantity")
    if rule.kind == "effect":
        known = [factor.name for factor in factors]
        if rule.factor not in known:
            raise ValueError(
                f"{where}.factor = {rule.factor!r}: is not a factor; {nearest_here(rule.factor, known, '')}"
            )
        if rule.below is not None or rule.above is not None:
            raise ValueError(
                f"{where}: with factor, a larger effect refutes, and no limit; remove below and above"
            )
        return
    if rule.below is None and rule.above is None:
        raise ValueError(f"{where}: needs below or above, the number that refutes the hypothesis")
    if rule.below is not None and rule.above is not None and rule.below >= rule.above:
        raise ValueError(f"{where}.below = {rule.below:g}: must be smaller than above = {rule.above:g}")
    for name in ("below", "above"):
        if rule.kind in ("ratio", "value") and getattr(rule, name) == 0:
            raise ValueError(f"{where}.{name} = 0: must be above 0; ratios and values of a metric always are")
    if rule.to and rule.of in ({}, rule.to):
        problem = ".of: is missing; a ratio needs of and to"
        same = ": of and to are the same, so there is nothing to compare"
        raise ValueError(f"{where}{same if rule.of else problem}")
    if rule.kind == "trials":
        _check_share(rule, where)
    if rule.kind == "model":
        _check_model(rule, where)


def _check_model(rule: Rule, where: str) -> None:
    """Check a rule about the error of a model."""
    if rule.of:
        raise ValueError(
            f"{where}.of: must be left out, because the error of a model is over all configurations"
        )
    if rule.metric not in _MODEL_METRICS:
        raise ValueError(
            f"{where}.metric = {rule.metric!r}: models are judged by {' or '.join(_MODEL_METRICS)}"
        )


def _check_share(rule: Rule, where: str) -> None:
    """Check a rule about the share of trials, which is counted over the whole run."""
    if rule.of:
        raise ValueError(f"{where}.of: must be left out, because {rule.metric} is the share of all trials")
    if rule.above is not None and rule.above >= 1:
        raise ValueError(f"{where}.above = {rule.above:g}: must be below 1, because {rule.metric} is a share")


def check_rules(
    rules: tuple[Rule, ...], factors: tuple[Factor, ...], combinations: list[Labels], operations: set[str]
) -> None:
    """Check that every rule names a metric that exists and configurations that run."""
    for index, rule in enumerate(rules):
        where = f"refuted_by[{index}]"
        if rule.kind != "trials":
            _check_metric(rule.metric, operations, where)
        if rule.kind == "effect" and any(len(factor.levels) != 2 for factor in factors):
            raise ValueError(f"{where}.factor: effects are ranked only if every factor has two levels")
        for name in ("of", "to"):
            pattern = tuple(getattr(rule, name).items())
            if pattern and not any(matches((pattern,), labels) for labels in combinations):
                raise ValueError(f"{where}.{name}: selects no configuration of the design")
        if rule.kind == "ratio" and not beside(rule.of, rule.to, combinations):
            raise ValueError(
                f"{where}: the design never runs both sides with the same levels of the other factors, "
                "so there is nothing to compare"
            )


def _check_metric(metric: str, operations: set[str], where: str) -> None:
    found = _OF_ONE_OPERATION.fullmatch(metric)
    if found:
        if found[1] and found[1] not in operations:
            known = ", ".join(sorted(operations))
            raise ValueError(
                f"{where}.metric = {metric!r}: {found[1]} is no operation of this system; known: {known}"
            )
        return
    if not _FURTHER.fullmatch(metric):
        try:
            checks.metric(metric)
        except ValueError as error:
            raise ValueError(
                f"{where}.metric = {metric!r}: {error}; or one operation's, such as get.response_mean_ns, "
                "response_by_law_ratio, link_utilisation.HOST up, failed_trials, unsteady_trials"
            ) from None


def check_measured(metric: str, roles: set[str], hosts: set[str], where: str) -> None:
    """Refuse a metric that no trial has, because none has the program, the database or the host that it describes."""
    name, _, part = metric.partition(".")
    if name == "cpu_per_request_ns":
        needed, known = part, {*roles, *_WITHOUT_A_ROLE}
    elif name == "link_utilisation":
        needed, known = part.rsplit(" ", 1)[0], hosts
    elif name.startswith(_OF_THE_DATABASE):
        needed, known = "database", roles
    else:
        return
    if needed not in known:
        kind = "emulated host" if name == "link_utilisation" else "role"
        has = joined(sorted(known)) if known else "none"
        raise ValueError(
            f"{where} = {metric!r}: no trial measures it, because it needs the {kind} {needed}; there is {has}"
        )


def beside(of: Levels, to: Levels, combinations: list[Labels]) -> list[Labels]:
    """Return the configurations of both sides that run with the same levels of the factors that neither names."""
    named = {*of, *to}
    found: dict[Labels, tuple[list[Labels], list[Labels]]] = {}
    for labels in combinations:
        others = tuple(one for one in labels if one[0] not in named)
        for place, side in enumerate((of, to)):
            if matches((tuple(side.items()),), labels):
                found.setdefault(others, ([], []))[place].append(labels)
    return [labels for pair in found.values() if pair[0] and pair[1] for labels in (*pair[0], *pair[1])]


def blocks_for_contrasts(configurations: int) -> int:
    """Return the smallest number of blocks whose model has the two degrees of freedom that an interval needs."""
    return 1 + -(-2 // max(configurations - 1, 1))
