"""Reads `[published]`: the findings of the study that an experiment repeats, for comparison with the measurement."""

from dataclasses import replace

from waylab.spec import checks
from waylab.spec.design import read_patterns
from waylab.spec.factors import Factor
from waylab.spec.findings import Finding, Levels, Published
from waylab.spec.naming import nearest_here
from waylab.spec.tables import Table, section

_NEEDED = {
    "ratio": ("metric", "of", "to"),
    "value": ("metric", "of", "theirs"),
    "plateau": ("metric", "of", "factor", "theirs"),
    "stage": ("of", "stage"),
    "link": ("of", "link"),
    "effect": ("metric", "factor"),
}


def read_published(content: object, factors: tuple[Factor, ...]) -> Published:
    """Read `[published]`; a series of points becomes a finding for each."""
    if content is None:
        return Published()
    if not isinstance(content, dict):
        raise ValueError("published: should be a table")
    known = ("source", "finding", "series")
    for name in content:
        if name not in known:
            raise ValueError(f"published.{name} is not a key; {nearest_here(name, list(known), 'published')}")
    source = checks.text(content.get("source", ""))
    if not source:
        raise ValueError("published.source: is missing; name the study that the numbers are from")
    tables = [
        (table, f"published.finding[{index}]") for index, table in enumerate(_tables(content, "finding"))
    ]
    for index, series in enumerate(_tables(content, "series")):
        tables += _points(series, f"published.series[{index}]")
    return Published(source, tuple(_finding(table, factors, where) for table, where in tables))


def _tables(content: Table, name: str) -> list[Table]:
    tables = content.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"published.{name}: should be written [[published.{name}]]")
    return tables


def _points(series: Table, where: str) -> list[tuple[Table, str]]:
    """Turn a series, `points` relative to a `base` of all or of each, into tables of findings."""
    shared = {key: value for key, value in series.items() if key not in ("points", "base")}
    points = series.get("points")
    if not isinstance(points, list) or not points or not all(isinstance(point, dict) for point in points):
        raise ValueError(
            f"{where}.points: should be a list of tables such as {{ at = {{ ... }}, theirs = 0.9 }}"
        )
    found = []
    for index, point in enumerate(points):
        place = f"{where}.points[{index}]"
        for key in point:
            if key not in ("at", "base", "theirs"):
                raise ValueError(
                    f"{place}.{key} is not a key; {nearest_here(key, ['at', 'base', 'theirs'], '')}"
                )
        levels = {"of": point.get("at"), "to": point.get("base", series.get("base"))}
        found.append((shared | levels | {"theirs": point.get("theirs")}, place))
    return found


def _finding(table: Table, factors: tuple[Factor, ...], where: str) -> Finding:
    levels: dict[str, Levels] = {"of": {}, "to": {}}
    for name in ("of", "to"):
        if table.get(name) is not None:
            (pattern,) = read_patterns([table[name]], factors, f"{where}.{name}")
            levels[name] = dict(pattern)
    rest = {key: value for key, value in table.items() if key not in ("of", "to")}
    finding = replace(section(Finding, rest, where), of=levels["of"], to=levels["to"])
    if not finding.text:
        raise ValueError(f"{where}.text: is missing; describe the finding")
    for name in _NEEDED[finding.kind]:
        if not getattr(finding, name):
            raise ValueError(f'{where}.{name}: is missing; kind = "{finding.kind}" needs it')
    if finding.kind == "ratio" and not (finding.expect or finding.theirs):
        raise ValueError(f'{where}: needs theirs, a ratio, or expect = "above" or "below"')
    if finding.factor and finding.factor not in [factor.name for factor in factors]:
        known = [factor.name for factor in factors]
        raise ValueError(f"{where}.factor = {finding.factor!r}: {nearest_here(finding.factor, known, '')}")
    return finding
