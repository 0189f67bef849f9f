"""The same experiment at another scale: fewer blocks, shorter trials, some of the levels.

`full` is the specification unchanged. `quick` applies its [scale.quick], or runs one short block if there is none.
"""

import dataclasses

from waylab.spec.design import read_patterns
from waylab.spec.factors import Factor
from waylab.spec.naming import checked, nearest_here
from waylab.spec.schema import Pattern, PredictionSplit, Scale, Spec
from waylab.spec.tables import Table

FULL, QUICK = "full", "quick"
SCALES = (FULL, QUICK)
QUICK_TEST_TIME_S = 1.0
QUICK_WARM_UP_S = 0.3


def read_scales(content: object, factors: tuple[Factor, ...]) -> tuple[tuple[str, Scale], ...]:
    """Read the tables of [scale]; a key that is not a setting of a scale is a factor with its remaining levels."""
    if not isinstance(content, dict):
        raise ValueError("scale: should be written [scale.quick]")
    scales = []
    for name, table in content.items():
        if name != QUICK:
            raise ValueError(
                f"scale.{name}: there is only scale.quick; the specification itself is the full scale"
            )
        if not isinstance(table, dict):
            raise ValueError(f"scale.{name}: should be a table")
        settings = {part.name: part for part in dataclasses.fields(Scale) if part.name != "levels"}
        values: Table = {}
        levels: list[tuple[str, tuple[str, ...]]] = []
        for key, value in table.items():
            where = f"scale.{name}.{key}"
            if isinstance(value, list):
                (pattern,) = read_patterns([{key: value}], factors, f"scale.{name}")
                levels += pattern
            elif key in settings:
                values[key] = checked(settings[key].metadata["check"], value, where)
            else:
                known = [*settings, *(factor.name for factor in factors)]
                raise ValueError(f"{where}: is no setting of a scale; {nearest_here(key, known, '')}")
        scales.append((name, Scale(levels=tuple(levels), **values)))
    return tuple(scales)


def at_scale(spec: Spec, name: str) -> Spec:
    """Return the specification at a scale; ValueError names a part that the scale leaves empty."""
    if name == FULL:
        return spec
    scale = dict(spec.scales).get(name)
    if scale is None:
        return _one_short_block(spec)
    kept = dict(scale.levels)
    factors = tuple(
        dataclasses.replace(
            factor,
            levels=tuple(
                level for level in factor.levels if level.label in kept.get(factor.name, (level.label,))
            ),
        )
        for factor in spec.factors
    )
    for index, compare in enumerate(spec.compare):
        for label in (compare.baseline, compare.candidate):
            if label not in kept.get(compare.factor, (label,)):
                raise ValueError(
                    f"scale.{name}.{compare.factor}: leaves out {label!r}, which compare[{index}] compares"
                )
    trials = tuple(
        trial
        for trial in spec.design.trials
        if all(labels[0] in kept.get(factor, labels) for factor, labels in trial)
    )
    if spec.design.trials and not trials:
        raise ValueError(f"scale.{name}: leaves none of the trials that design.trials lists")
    stopping = dataclasses.replace(
        spec.stopping, **_given(scale, "precision", "blocks_min", "blocks_max", "budget_s")
    )
    if scale.blocks is not None:
        stopping = dataclasses.replace(stopping, precision=0.0)
    return dataclasses.replace(
        spec,
        factors=factors,
        design=dataclasses.replace(spec.design, trials=trials, **_given(scale, "blocks")),
        load=dataclasses.replace(spec.load, **_given(scale, "test_time_s", "warm_up_s")),
        stopping=stopping,
        predict=PredictionSplit(
            _still_meant(spec.predict.calibrate, kept, f"scale.{name}: leaves none of predict.calibrate"),
            _still_meant(spec.predict.held_out, kept, f"scale.{name}: leaves none of predict.held_out"),
        ),
    )


def _still_meant(
    patterns: tuple[Pattern, ...], kept: dict[str, tuple[str, ...]], otherwise: str
) -> tuple[Pattern, ...]:
    """Keep the patterns that still select a level of every factor."""
    meant = tuple(
        pattern
        for pattern in patterns
        if all(set(labels) & set(kept.get(factor, labels)) for factor, labels in pattern)
    )
    if patterns and not meant:
        raise ValueError(otherwise)
    return meant


def _one_short_block(spec: Spec) -> Spec:
    """Return the specification with one short block, to test that everything works."""
    load = dataclasses.replace(
        spec.load,
        test_time_s=min(spec.load.test_time_s, QUICK_TEST_TIME_S),
        warm_up_s=min(spec.load.warm_up_s, QUICK_WARM_UP_S),
    )
    return dataclasses.replace(
        spec,
        load=load,
        design=dataclasses.replace(spec.design, blocks=1),
        stopping=dataclasses.replace(spec.stopping, precision=0.0),
    )


def _given(scale: Scale, *names: str) -> Table:
    return {name: getattr(scale, name) for name in names if getattr(scale, name) is not None}
