"""Which factor goes along the figures, and which ones make the lines."""

from collections.abc import Mapping

from msgspec.structs import asdict

from waylab.runfolder.analysis import Axes, Place, View
from waylab.runfolder.run import ExperimentSpec, FactorLevels
from waylab.runfolder.words import is_number, levels_text


def axes(spec: ExperimentSpec) -> Axes:
    """Choose the x factor: the one named in the specification, or the numeric one with most levels.

    `views` are the same for every other factor, so that each is once along a figure and the others are its lines.
    """
    # A factor with one level, as some have at quick scale, varies nothing.
    factors = [factor for factor in spec.factors if len(factor.levels) > 1]
    if not factors:
        return Axes(x=None, numeric=False, logarithmic=False, levels=[], series=[], views=[])
    chosen = next((factor for factor in factors if factor.name == spec.report.x), None)
    if chosen is None:
        numeric = [factor for factor in factors if _numbers(factor) is not None]
        chosen = max(numeric or factors, key=lambda factor: len(factor.levels))
    others = [factor for factor in factors if factor is not chosen]
    return Axes(**asdict(_along(chosen, factors)), views=[_along(factor, factors) for factor in others])


def _along(chosen: FactorLevels, factors: list[FactorLevels]) -> View:
    numbers = _numbers(chosen)
    return View(
        x=chosen.name,
        numeric=numbers is not None,
        logarithmic=bool(numbers and min(numbers) > 0 and max(numbers) / min(numbers) >= 10),
        levels=[*numbers] if numbers is not None else [level.label for level in chosen.levels],
        series=[factor.name for factor in factors if factor is not chosen],
    )


def place(levels: Mapping[str, str], chosen: View) -> Place:
    """Return where a configuration stands: its x value and the name of its line."""
    label = levels.get(chosen.x, "base") if chosen.x else "base"
    series = levels_text({name: levels[name] for name in chosen.series})
    return Place(x=float(label) if chosen.numeric else label, series=series or "all trials")


def _numbers(factor: FactorLevels) -> list[float] | None:
    """Return the levels of a factor as numbers; None unless all of them are numbers."""
    if not factor.key or any(len(level.settings) != 1 for level in factor.levels):
        return None
    values = []
    for level in factor.levels:
        value = next(iter(level.settings.values()))
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_number(level.label):
            return None
        values.append(float(value))
    return sorted(values)
