"""Comparisons that a specification announces before there is data: effects, null arms and positive controls."""

import dataclasses

from waylab.spec.design import Labels
from waylab.spec.factors import Factor, Level
from waylab.spec.naming import label_of, nearest, short
from waylab.spec.schema import Compare, Spec
from waylab.spec.tables import section

# Suffix of the second arm of a null comparison that names only one.
AGAIN = "-again"


def read_compares(
    content: object, factors: tuple[Factor, ...]
) -> tuple[tuple[Factor, ...], tuple[Compare, ...]]:
    """Read every [[compare]]; return them with the factors, to which a null arm may add the same level again."""
    if not isinstance(content, list):
        raise ValueError("compare: should be written [[compare]]")
    compares = []
    for index, written in enumerate(content):
        where = f"compare[{index}]"
        if not isinstance(written, dict):
            raise ValueError(f"{where}: should be written [[compare]]")
        table = dict(written)
        labels = {key: label_of(table.pop(key, "")) for key in ("baseline", "candidate")}
        compare = section(Compare, table, where)
        compare = dataclasses.replace(compare, baseline=labels["baseline"], candidate=labels["candidate"])
        if compare.factor not in [factor.name for factor in factors]:
            compare = dataclasses.replace(compare, factor=short(compare.factor))
        if compare.role == "null" and not compare.candidate:
            factors = _with_level_again(factors, compare, where)
            compare = dataclasses.replace(compare, candidate=compare.baseline + AGAIN)
        if compare.candidate and compare.baseline == compare.candidate:
            raise ValueError(
                f"{where}.candidate = {compare.candidate!r}: is the baseline itself, and a trial compared with itself "
                "has the ratio 1; leave out candidate in a null arm, and the level runs again under another name"
            )
        _check_levels(compare, factors, where)
        _check_role(compare, factors, where)
        compares.append(compare)
    return factors, tuple(compares)


def check_compares(spec: Spec, combinations: list[Labels]) -> None:
    """Check that both levels of every comparison are run beside the same levels of the other factors."""
    for index, compare in enumerate(spec.compare):
        beside = {
            label: {
                tuple(one for one in labels if one[0] != compare.factor)
                for labels in combinations
                if (compare.factor, label) in labels
            }
            for label in (compare.baseline, compare.candidate)
        }
        if not beside[compare.baseline] & beside[compare.candidate]:
            raise ValueError(
                f"compare[{index}]: the design never runs {compare.factor} {compare.baseline} and {compare.candidate} "
                "with the same levels of the other factors, so there is nothing to compare"
            )


def _check_levels(compare: Compare, factors: tuple[Factor, ...], where: str) -> None:
    names = {factor.name: [level.label for level in factor.levels] for factor in factors}
    if compare.factor not in names:
        raise ValueError(f"{where}.factor = {compare.factor!r}: {nearest(compare.factor, list(names), '')}")
    for key in ("baseline", "candidate"):
        label = compare.baseline if key == "baseline" else compare.candidate
        if label not in names[compare.factor]:
            levels = ", ".join(names[compare.factor])
            raise ValueError(
                f"{where}.{key} = {label!r}: is not a level of {compare.factor}; its levels: {levels}"
            )


def _check_role(compare: Compare, factors: tuple[Factor, ...], where: str) -> None:
    if compare.role == "control":
        if bool(compare.added) == bool(compare.ratio):
            raise ValueError(
                f'{where}: role = "control" needs either added = "50us", the time that was added, or ratio = 1.5'
            )
        if compare.ratio == 1:
            raise ValueError(f"{where}.ratio = 1: nothing was changed, so there is nothing to find")
        if compare.added and not compare.metric.startswith("response_"):
            raise ValueError(
                f"{where}.added: is a time, but {compare.metric} is not; give ratio, or compare response_mean_ns"
            )
    elif compare.added or compare.ratio:
        raise ValueError(
            f'{where}: added and ratio are the expected result of a control; needs role = "control"'
        )
    if compare.role == "null":
        (factor,) = (factor for factor in factors if factor.name == compare.factor)
        settings = {level.label: sorted(level.settings) for level in factor.levels}
        if settings[compare.baseline] != settings[compare.candidate]:
            raise ValueError(
                f"{where}: a null arm compares a level with itself, but {compare.baseline} and "
                f"{compare.candidate} differ"
            )


def _with_level_again(factors: tuple[Factor, ...], compare: Compare, where: str) -> tuple[Factor, ...]:
    """Add the baseline once more under another name."""
    changed = []
    for factor in factors:
        levels = factor.levels
        if factor.name == compare.factor:
            same = next((level for level in levels if level.label == compare.baseline), None)
            if same is not None and factor.listed:
                raise ValueError(
                    f"{where}: a null arm needs a factor with named levels, such as [factors.{factor.name}] "
                    f"a = {{ ... }}; the levels of {factor.name} are values"
                )
            label = compare.baseline + AGAIN
            if same is not None and label not in [level.label for level in levels]:
                levels = (*levels, Level(label, same.settings))
        changed.append(dataclasses.replace(factor, levels=levels))
    return tuple(changed)
