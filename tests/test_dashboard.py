"""The Grafana dashboard: it is valid, every metric and label in it exists, and its colours are distinct."""

import json
import re
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parent.parent
DASHBOARD = json.loads((ROOT / "docs/grafana/waystage-proxy.json").read_text())
# Okabe and Ito's colours, which colour-blind readers can distinguish; without black, and with white for totals.
COLOURS = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#FFFFFF"}
DARK_BACKGROUND = "#181B1F"
# Labels that Prometheus adds to every series.
TARGET_LABELS = {"job", "instance"}


def metrics():
    """Every metric of docs/metrics.md, which is compared with the code, with its labels; parts of histograms too."""
    known = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        if row := re.match(r"\| `(\w+)` \| (\w+) \| ([^|]*)\|", line):
            name, kind, labels = row[1], row[2], set(re.findall(r"`(\w+)`", row[3]))
            known[name] = labels
            if kind == "histogram":
                del known[name]
                known |= {
                    f"{name}_bucket": labels | {"le"},
                    f"{name}_sum": labels,
                    f"{name}_count": labels,
                }
    return known


def panels():
    """Return all panels, also those inside collapsed rows."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions():
    """Yield every expression with its panel."""
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["name"], annotation["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def values(node, key):
    """Yield every value under this key, at any depth."""
    if isinstance(node, dict):
        for name, inner in node.items():
            if name == key:
                yield inner
            yield from values(inner, key)
    elif isinstance(node, list):
        for inner in node:
            yield from values(inner, key)


def test_every_metric_and_label_in_an_expression_exists():
    known, used = metrics(), set()
    assert len(known) > 40
    for where, expression in expressions():
        names = set(re.findall(r"\b(?:waystage|process)_\w+", expression))
        assert names and names <= known.keys(), f"{where}: {names - known.keys()}"
        used |= names
        for name, selector in re.findall(r"\b((?:waystage|process)_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=|!)", selector))
            assert labels <= known[name] | TARGET_LABELS, f"{where}: {name} lacks {labels}"
        of_any = set().union(*(known[name] for name in names)) | TARGET_LABELS
        for grouping in re.findall(r"\b(?:by|without|ignoring) \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", grouping)) <= of_any, f"{where}: {grouping}"
        for legend in [
            target["legendFormat"]
            for panel in panels()
            for target in panel.get("targets", [])
            if target["expr"] == expression
        ]:
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= of_any, f"{where}: {legend}"
    missing = {
        "waystage_requests_total",
        "waystage_stage_seconds_bucket",
        "waystage_stage_seconds_sum",
    } - used
    assert not missing, missing


def test_expressions_are_balanced_and_rates_use_counters():
    for where, expression in expressions():
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), where
        assert expression.count('"') % 2 == 0, where
        for name in re.findall(r"\b(?:rate|increase)\((\w+)", expression):
            assert name.endswith(("_total", "_bucket", "_sum", "_count")), f"{where}: the rate of {name}"
        for name in re.findall(r"\b((?:waystage|process)_\w+_total)\b", expression):
            assert re.search(rf"\b(?:rate|increase)\({name}", expression), f"{where}: {name} without a rate"


def test_panels_are_complete_and_do_not_overlap():
    everything = list(panels())
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in everything]
    assert len(titles) == len(set(titles))
    for panel in everything:
        place = panel["gridPos"]
        assert 0 <= place["x"] and place["x"] + place["w"] <= 24 and place["h"] > 0, panel["title"]
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            references = [target["refId"] for target in panel["targets"]]
            assert references and len(references) == len(set(references)), panel["title"]
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


def test_it_uses_the_chosen_data_source_and_declared_variables():
    declared = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert declared[0] == "datasource" and DASHBOARD["templating"]["list"][0]["query"] == "prometheus"
    sources = {source["uid"] for source in values(DASHBOARD, "datasource") if isinstance(source, dict)}
    assert sources == {"${datasource}", "-- Grafana --"}
    for where, expression in expressions():
        for name in re.findall(r"\$(\w+)", expression):
            assert name in declared or name.startswith("__"), f"{where}: ${name}"


def luminance(colour):
    """Relative luminance, as the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_contrast_with_the_background_and_are_distinct():
    used = set(values(DASHBOARD, "fixedColor"))
    used |= {step["color"] for steps in values(DASHBOARD, "steps") for step in steps}
    assert used <= COLOURS
    for colour in used:
        contrast = (luminance(colour) + 0.05) / (luminance(DARK_BACKGROUND) + 0.05)
        assert contrast >= 3, f"{colour}: {contrast:.1f}"
    for panel in panels():
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        colours = [
            prop["value"]["fixedColor"]
            for override in overrides
            for prop in override["properties"]
            if prop["id"] == "color"
        ]
        assert len(colours) == len(set(colours)), f"{panel['title']}: two series in one colour"


def test_every_stage_has_a_colour_in_every_panel_of_stages():
    stages = re.search(
        r"intervals between the stamps are called ([^.]*)\.", (ROOT / "docs/life-of-a-request.md").read_text()
    )
    names = set(re.findall(r"`(\w+)`", stages[1])) | {"total"}
    drawn = [
        panel for panel in panels() if any("{{stage}}" in t["legendFormat"] for t in panel.get("targets", []))
    ]
    assert len(drawn) == 2
    for panel in drawn:
        assert {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]} == names
