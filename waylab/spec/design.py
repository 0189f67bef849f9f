"""Which combinations of levels a design runs: all, all but some, those listed, or a fraction of two levels each.

Knows nothing of blocks and orders. The analysis derives from the generators what a fraction confounds.
"""

import dataclasses
import math
import string
from collections.abc import Iterable
from itertools import product

from waylab.spec.factors import Factor, Level, apply_level
from waylab.spec.naming import label_of, nearest_here, short
from waylab.spec.schema import Design, Pattern, TrialSettings

TRIALS_MAX = 100_000
_TWO_LEVELS = ("2k", "2k-p")
_FACTORS_MAX = 16

Labels = tuple[tuple[str, str], ...]


def listed_levels(trials: object, named: Iterable[str]) -> dict[str, list[object]]:
    """Return the factors that only listed trials name, each with its values in order."""
    found: dict[str, list[object]] = {}
    for trial in trials if isinstance(trials, list) else []:
        for name, value in trial.items() if isinstance(trial, dict) else []:
            if short(name) not in named and not isinstance(value, list | dict):
                values = found.setdefault(name, [])
                values += [value] if value not in values else []
    return found


def read_patterns(content: object, factors: tuple[Factor, ...], where: str) -> tuple[Pattern, ...]:
    """Read `[{clients = 1, workers = [8, 64]}, ...]`: each table selects levels of factors."""
    if not isinstance(content, list) or not all(isinstance(part, dict) and part for part in content):
        raise ValueError(f"{where}: should be a list of tables such as {{clients = 1, workers = [8, 64]}}")
    levels = {factor.name: [level.label for level in factor.levels] for factor in factors}
    patterns = []
    for index, part in enumerate(content):
        pattern = []
        for written, value in part.items():
            name = written if written in levels else short(written)
            if name not in levels:
                raise ValueError(
                    f"{where}[{index}].{written}: is not a factor; {nearest_here(name, list(levels), '')}"
                )
            labels = tuple(label_of(one) for one in (value if isinstance(value, list) else [value]))
            for label in labels:
                if label not in levels[name]:
                    raise ValueError(
                        f"{where}[{index}].{written} = {label!r}: is not a level of {name}; "
                        f"its levels: {', '.join(levels[name])}"
                    )
            pattern.append((name, labels))
        patterns.append(tuple(pattern))
    return tuple(patterns)


def matches(patterns: tuple[Pattern, ...], labels: Labels) -> bool:
    """Return whether any of the patterns selects this combination."""
    at = dict(labels)
    return any(all(at.get(name) in wanted for name, wanted in pattern) for pattern in patterns)


def configurations(
    factors: tuple[Factor, ...], design: Design, settings: TrialSettings
) -> list[tuple[Labels, TrialSettings]]:
    """Return the labels and settings of every combination that is run, the last factor varying fastest."""
    found = []
    for levels in _combinations(factors, design):
        changed = settings
        for level in levels:
            changed = apply_level(changed, level)
        found.append((_labels(factors, levels), changed.assigned()))
    return found


def check_design(factors: tuple[Factor, ...], design: Design) -> Design:
    """Check a design against its factors and return it with its generators in letters."""
    _check_kind(design)
    _check_listed(factors, design)
    if design.kind in _TWO_LEVELS:
        _check_two_levels(factors, design)
    letters = _generators(factors, design)
    count = len(design.trials) or math.prod(len(factor.levels) for factor in factors)
    if count * design.blocks > TRIALS_MAX:
        raise ValueError(f"factors: more than {TRIALS_MAX} trials")
    design = dataclasses.replace(design, generators=letters)
    if not _combinations(factors, design):
        raise ValueError("design.exclude: leaves nothing to run")
    return design


def _check_kind(design: Design) -> None:
    if design.trials and design.kind != "listed":
        raise ValueError(f'design.trials: needs design.kind = "listed", not {design.kind!r}')
    if design.kind == "listed" and not design.trials:
        raise ValueError(
            'design.trials: is missing; design.kind = "listed" runs the trials that [[design.trials]] lists'
        )
    if design.exclude and design.kind != "crossed":
        raise ValueError(
            f'design.exclude: only for design.kind = "crossed"; {design.kind!r} defines the combinations itself'
        )
    if design.generators and design.kind != "2k-p":
        raise ValueError(f'design.generators: needs design.kind = "2k-p", not {design.kind!r}')


def _check_listed(factors: tuple[Factor, ...], design: Design) -> None:
    for index, trial in enumerate(design.trials):
        missing = [factor.name for factor in factors if factor.name not in dict(trial)]
        if missing:
            raise ValueError(f"design.trials[{index}]: does not name a level of {missing[0]}")
        if any(len(labels) != 1 for _, labels in trial):
            raise ValueError(f"design.trials[{index}]: names several levels of a factor; one trial has one")
    if len({frozenset(trial) for trial in design.trials}) < len(design.trials):
        raise ValueError("design.trials: names a combination twice; design.blocks sets how often each is run")


def _check_two_levels(factors: tuple[Factor, ...], design: Design) -> None:
    if not 1 <= len(factors) <= _FACTORS_MAX:
        raise ValueError(
            f'design.kind = "{design.kind}": needs 1 to {_FACTORS_MAX} factors, not {len(factors)}'
        )
    for factor in factors:
        if len(factor.levels) != 2:
            raise ValueError(
                f'design.kind = "{design.kind}": factor {factor.name} has {len(factor.levels)} levels, not two'
            )


def _combinations(factors: tuple[Factor, ...], design: Design) -> list[tuple[Level, ...]]:
    if design.trials:
        by_label = [{level.label: level for level in factor.levels} for factor in factors]
        return [
            tuple(
                levels[dict(trial)[factor.name][0]] for factor, levels in zip(factors, by_label, strict=True)
            )
            for trial in design.trials
        ]
    crossed = product(*(factor.levels for factor in factors))
    return [
        levels
        for levels in crossed
        if not matches(design.exclude, _labels(factors, levels)) and _in_fraction(factors, design, levels)
    ]


def _labels(factors: tuple[Factor, ...], levels: tuple[Level, ...]) -> Labels:
    return tuple((factor.name, level.label) for factor, level in zip(factors, levels, strict=True))


def _in_fraction(factors: tuple[Factor, ...], design: Design, levels: tuple[Level, ...]) -> bool:
    """Keep the combinations in which each generated factor has the sign of its product; -1 is the first level."""
    signs = {
        string.ascii_uppercase[index]: -1 if level is factor.levels[0] else 1
        for index, (factor, level) in enumerate(zip(factors, levels, strict=True))
        if design.generators
    }
    for generator in design.generators:
        made, _, word = generator.partition("=")
        sign = -1 if word.startswith("-") else 1
        if signs[made] != sign * math.prod(signs[letter] for letter in word.removeprefix("-")):
            return False
    return True


def _generators(factors: tuple[Factor, ...], design: Design) -> tuple[str, ...]:
    """Return the generators in letters, A for the first factor; a specification may also write names and `*`."""
    if design.kind != "2k-p":
        return ()
    letters = {factor.name: string.ascii_uppercase[index] for index, factor in enumerate(factors)}
    known = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    if not design.generators:
        raise ValueError(
            f'design.generators: is missing; design.kind = "2k-p" needs generators such as ["D=ABC"], of {known}'
        )
    parsed = [_generator(text, letters, known) for text in design.generators]
    made = [one for one, _, _ in parsed]
    for text, (one, _, word) in zip(design.generators, parsed, strict=True):
        if made.count(one) > 1:
            raise ValueError(
                f"design.generators: {text!r} generates a factor that another generator generates, too"
            )
        if set(word) & set(made):
            both = "".join(sorted(set(word) & set(made)))
            raise ValueError(f"design.generators: {text!r} uses {both}, which is itself generated")
    return tuple(f"{one}={'-' if sign < 0 else ''}{word}" for one, sign, word in parsed)


def _generator(text: str, letters: dict[str, str], known: str) -> tuple[str, int, str]:
    left, _, right = (part.strip() for part in text.partition("="))
    sign, right = (-1, right[1:].strip()) if right.startswith("-") else (1, right.removeprefix("+").strip())
    parts = [_factor_named(part.strip(), letters) for part in right.split("*")]
    if len(parts) == 1 and parts[0] not in letters:
        parts = list(parts[0].upper().replace(" ", ""))
    of_letters = {letter: letter for letter in letters.values()}
    word = [(letters | of_letters).get(part, "") for part in parts]
    made = (of_letters | letters).get(_factor_named(left, letters)) or of_letters.get(left.upper(), "")
    if not made or len(word) < 2 or not all(word):
        raise ValueError(f"design.generators: {text!r} should read like D=ABC or D=-A*B, of {known}")
    if len(set(word)) < len(word) or made in word:
        raise ValueError(f"design.generators: {text!r} names a factor twice")
    return made, sign, "".join(sorted(word))


def _factor_named(text: str, names: dict[str, str]) -> str:
    return text if text in names else short(text)
