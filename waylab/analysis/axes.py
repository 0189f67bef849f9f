"""Which factor goes along the figures, and which ones make the lines."""

from typing import Any


def axes(spec: dict[str, Any]) -> dict[str, Any]:
    """Choose the x factor: the one named in the specification, or the numeric one with most levels.

    `views` are the same for every other factor, so that each is once along a figure and the others are its lines.
    """
    factors = spec["factors"]
    wanted = spec["report"]["x"]
    if not factors:
        return {"x": None, "numeric": False, "logarithmic": False, "levels": [], "series": [], "views": []}
    chosen = next((factor for factor in factors if factor["name"] == wanted), None)
    if chosen is None:
        numeric = [factor for factor in factors if _numbers(factor) is not None]
        chosen = max(numeric or factors, key=lambda factor: len(factor["levels"]))
    others = [factor for factor in factors if factor is not chosen and len(factor["levels"]) > 1]
    return {**_along(chosen, factors), "views": [_along(factor, factors) for factor in others]}


def _along(chosen: dict[str, Any], factors: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = _numbers(chosen)
    return {
        "x": chosen["name"],
        "numeric": numbers is not None,
        "logarithmic": bool(numbers and min(numbers) > 0 and max(numbers) / min(numbers) >= 10),
        "levels": numbers if numbers is not None else [level["label"] for level in chosen["levels"]],
        "series": [factor["name"] for factor in factors if factor is not chosen],
    }


def place(levels: dict[str, str], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return where a configuration stands: its x value and the name of its line."""
    x: Any = levels.get(chosen["x"], "base") if chosen["x"] else "base"
    if chosen["numeric"]:
        x = float(x)
    series = ", ".join(f"{name} {levels[name]}" for name in chosen["series"])
    return {"x": x, "series": series or "all trials"}


def _numbers(factor: dict[str, Any]) -> list[float] | None:
    values = [
        next(iter(level["settings"].values())) for level in factor["levels"] if len(level["settings"]) == 1
    ]
    if len(values) != len(factor["levels"]) or not factor["key"]:
        return None
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return None
    return sorted(float(value) for value in values)
