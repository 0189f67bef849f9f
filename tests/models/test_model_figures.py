"""Drawings of models: complete, without overlap, in light and dark."""

import json
import random
import re
from itertools import combinations
from pathlib import Path

import pytest
import vl_convert
from networks import EVERY, a16, a16_switching, replicated, slots, three_tiers

from waylab.errors import LabError
from waylab.models import MM1, JobClass, Network, Route, Station, closed_network, solve
from waylab.models.description import CLIENT, Pool
from waylab.models.network_file import read_network
from waylab.models.summary.findings_rows import sweep_as_dicts
from waylab.models.summary.queue import distribution_points
from waylab.models.summary.result import result_as_dict
from waylab.models.summary.usl import usl_as_dict
from waylab.models.sweep import sweep
from waylab.models.usl import fit_usl
from waylab.report.models.charts import distribution_chart, sweep_chart, usl_chart, utilisation_bars
from waylab.report.models.figure import DARK, LIGHT
from waylab.report.models.graph import END, graph_of
from waylab.report.models.layout import layout_of
from waylab.report.models.network_drawing import network_drawing
from waylab.report.models.write import picture, write_figures

EXAMPLES = sorted((Path(__file__).parents[2] / "experiments/models").glob("*.json"))


def rows(chart):
    """Every row of data in a chart, once."""
    found = {}

    def look(part):
        if isinstance(part, dict):
            if isinstance(part.get("data"), dict):
                found.update((json.dumps(row), row) for row in part["data"].get("values", []))
            part = list(part.values())
        for item in part if isinstance(part, list) else []:
            look(item)

    look(chart.to_dict(validate=False))
    return list(found.values())


def texts(chart):
    return [row["text"] for row in rows(chart) if "text" in row]


def random_routes(seed):
    """Up to fifteen stations, two classes, ways forward, ways back and short cuts."""
    draw = random.Random(seed)
    names = [
        f"{draw.choice(['cache', 'store', 'queue of messages'])} {i}" for i in range(draw.randint(3, 15))
    ]
    routes = []
    for job_class in "ab":
        ways = [(CLIENT, names[:3])]
        for index, name in enumerate(names):
            later = names[index + 1 : index + 4] or [CLIENT]
            if index > 1 and draw.random() < 0.15:
                later = [*later, names[draw.randrange(index)]]
            ways.append((name, later))
        for origin, later in ways:
            targets = draw.sample(later, min(len(later), draw.choice([1, 1, 2, 3])))
            if CLIENT not in targets and origin != CLIENT and draw.random() < 0.3:
                targets.append(CLIENT)
            weights = [draw.uniform(0.1, 1) for _ in targets]
            for target, weight in zip(targets, weights, strict=True):
                routes.append(Route(job_class, origin, target, weight / sum(weights)))
    reached = {(name, CLIENT) for name in "ab"}
    for _ in names:
        reached |= {(r.job_class, r.target) for r in routes if (r.job_class, r.origin) in reached}
    routes = [route for route in routes if (route.job_class, route.origin) in reached]
    used = [name for name in names if name in {route.target for route in routes}]
    stations = tuple(
        Station(name, {"a": 0.01, "b": 0.02}, servers=draw.choice([1, 4, None])) for name in used
    )
    return Network((JobClass("a", 5), JobClass("b", 3)), stations, routes=tuple(routes))


def laid_out(network):
    graph = graph_of(network)
    return graph, layout_of(
        graph, {name: (120.0, 60.0) if name != END else (7.0, 7.0) for name in graph.places}, True
    )


@pytest.mark.parametrize("seed", range(30))
def test_nothing_covers_anything_else(seed):
    graph, layout = laid_out(random_routes(seed))
    boxes = list(layout.boxes.values())
    words = [words.box for words in layout.words]
    for one, other in combinations(boxes + words, 2):
        assert not one.meets(other), (one, other)
    assert layout.unplaced == 0
    assert len(words) == sum(bool(arrow.words) for arrow in graph.arrows)
    for box in boxes + words:
        assert box.left >= 0 and box.top >= 0 and box.right <= layout.width and box.bottom <= layout.height
    for path in layout.paths:
        for x, y in path.points[1:-1]:
            assert not any(abs(x - b.x) < b.width / 2 - 1 and abs(y - b.y) < b.height / 2 - 1 for b in boxes)


def test_columns_are_the_longest_ways_from_the_client():
    network = read_network(next(path for path in EXAMPLES if path.stem == "three-tiers"))
    _, layout = laid_out(network)
    order = sorted(layout.boxes, key=lambda name: layout.boxes[name].x)
    assert order == [CLIENT, "proxy", "application", "database", END]


def test_every_station_and_every_probability_is_written():
    network = read_network(next(path for path in EXAMPLES if path.stem == "three-tiers"))
    result = result_as_dict(solve(network))
    chart = network_drawing(network, result).chart
    written = texts(chart)
    for text in ("proxy", "application", "database", "×4", "80 %", "20 %", "30 %", "70 %", "6 ms"):
        assert text in written, text
    busy = {part["name"]: part["utilisation"] for part in result["stations"]}
    assert f"{100 * busy['application']:.0f} % busy" in written
    filled = {row["name"]: row["busy"] for row in rows(chart) if "busy" in row and row["name"] in busy}
    assert filled == pytest.approx(busy)
    assert "24, think 20 ms" in written


def test_classes_are_named_where_they_part():
    network = read_network(next(path for path in EXAMPLES if path.stem == "memcached-one-population"))
    written = texts(network_drawing(network).chart)
    assert written.count("get 20 %") == 5 and written.count("set 20 %") == 5
    assert "next: get 95 %, set 5 %" in written and "×32" in written and "delay" in written


def test_visits_alone_are_drawn_in_order():
    arrows = {(arrow.origin, arrow.target): arrow.words for arrow in graph_of(a16()).arrows}
    assert arrows[(CLIENT, "balancer")] == "" and arrows[("balancer", "writer0")] == "set 0.2×"
    assert arrows[("reader0", "reader1")] == "0.2×" and arrows[("reader4", END)] == ""


def test_a_fork_has_a_beginning_and_a_join():
    graph = graph_of(replicated(replicas=3))
    join = graph.joins["write"]
    found = {(arrow.origin, arrow.target) for arrow in graph.arrows}
    assert (CLIENT, "write") in found and (join, END) in found
    assert {("write", f"replica{i}") for i in range(3)} | {(f"replica{i}", join) for i in range(3)} <= found
    assert "forks into its legs" in network_drawing(replicated()).caption


def test_a_pool_is_a_frame_around_its_places_and_no_others():
    _, layout = laid_out(slots())
    (frame,) = layout.frames
    for name, box in layout.boxes.items():
        inside = frame.left < box.x < frame.right and frame.top < box.y < frame.bottom
        assert inside == (name in ("cpu", "backend")), name
    assert "workers: 4 slots" in texts(network_drawing(slots()).chart)


def test_a_frame_that_would_hold_others_becomes_several():
    network = three_tiers()
    split = Network(
        network.classes, network.stations, network.visits, pools=(Pool("apart", 3, ("front", "disk")),)
    )
    _, layout = laid_out(split)
    assert [frame.title for frame in layout.frames] == ["apart", "apart"]
    store = layout.boxes["store"]
    assert not any(f.left < store.x < f.right and f.top < store.y < f.bottom for f in layout.frames)


@pytest.mark.parametrize("name", ["delay station", "rates", "two classes", "mixed", "tandem"])
def test_shared_networks_can_be_drawn(name):
    figure = network_drawing(EVERY[name]())
    assert set(EVERY[name]().station_names) <= set(texts(figure.chart))


def test_utilisation_bars():
    content = result_as_dict(solve(a16_switching()))
    figure = utilisation_bars(content)
    found = [row for row in rows(figure.chart) if "part" in row]
    assert {row["place"] for row in found} == {part["name"] for part in content["stations"]}
    for station in content["stations"]:
        total = sum(row["busy"] for row in found if row["place"] == station["name"])
        assert total == pytest.approx(station["utilisation"])
    svg = picture([figure])
    assert svg.index(">writer0<") < svg.index(">reader0<") < svg.index(">balancer<")
    assert "62.7 %" in svg


def test_a_sweep_with_bounds_and_knee():
    network = closed_network({"a": 0.02, "b": 0.08}, 6, think_s=0.5)
    values = list(range(1, 30, 2))
    content = sweep_as_dicts(values, sweep(network, "clients", values))
    limits = [
        {
            "value": value,
            "name": "asymptotic",
            "throughput_low_per_s": None,
            "throughput_high_per_s": min(value / 0.6, 12.5),
            "response_low_s": max(0.1, value * 0.08 - 0.5),
            "response_high_s": None,
        }
        for value in values
    ]
    figure = sweep_chart("clients", content, limits, 7.5)
    found = rows(figure.chart)
    solved = [row for row in found if row.get("part") == "request"]
    assert len(solved) == 2 * len(values)
    assert [row["y"] for row in solved[: len(values)]] == [row["throughput_per_s"] for row in content]
    assert sum("bound" in row for row in found) > len(values)
    assert any(row.get("words") == "knee 7.5" for row in found)
    svg = picture([figure])
    assert "asymptotic" in svg and "knee 7.5" in svg and "throughput, requests/s" in svg
    assert not any(
        "bound" in row or "words" in row for row in rows(sweep_chart("clients", content, []).chart)
    )


def test_a_sweep_of_several_classes_has_a_line_for_each():
    values = [20, 100, 180]
    figure = sweep_chart("clients", sweep_as_dicts(values, sweep(a16(), "clients", values)), [])
    assert {row["part"] for row in rows(figure.chart) if "part" in row} == {"all classes", "get", "set"}


def test_a_distribution_names_its_quantiles():
    queue = MM1(0.8, 1.0)
    figure = distribution_chart(queue.name, distribution_points(queue))
    named = [row["words"] for row in rows(figure.chart) if "words" in row]
    assert named == ["50 %: 3.47 s", "95 %: 15 s", "99 %: 23 s"]
    assert {"response", "waiting"} == {row["part"] for row in rows(figure.chart) if "part" in row}


def test_a_scalability_law_with_its_runs():
    clients = [1, 2, 4, 8, 16, 32]
    measured = [100 * n / (1 + 0.05 * (n - 1) + 0.002 * n * (n - 1)) for n in clients]
    runs = [{"clients": n, "throughput_per_s": x} for n, x in zip(clients, measured, strict=True)]
    figure = usl_chart(usl_as_dict(fit_usl(clients, measured, samples=20)), runs)
    assert any(row.get("words") == "peak 21.8" for row in rows(figure.chart))
    assert sum(row in runs for row in rows(figure.chart)) == len(runs)


def test_light_and_dark_have_text_that_can_be_read():
    network = three_tiers()
    figures = [network_drawing(network), utilisation_bars(result_as_dict(solve(network)))]
    for dark, (text, background) in ((False, LIGHT), (True, DARK)):
        svg = picture(figures, dark)
        assert f'fill="{background}"' in svg and f'fill="{text}"' in svg
        other = (LIGHT, DARK)[not dark][0]
        assert f'"{other}"' not in svg
        # Nothing keeps a colour of Vega's own, which would vanish on one of the two.
        assert not re.search(r'(fill|stroke)="(black|#000|#4c78a8)"', svg)


def test_files_of_each_kind(tmp_path):
    figure = network_drawing(slots())
    for end in ("svg", "png", "html"):
        write_figures([figure], tmp_path / f"a.{end}", "a <b>", ["It is so & so."])
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text()
    assert "a &lt;b&gt;" in page and "It is so &amp; so." in page
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    content = json.loads(found[1].replace("\\u003c", "<"))
    assert list(content) == ["network"] and content["network"]["config"]["text"]["color"] == "currentColor"
    # Offline: nothing is fetched from anywhere.
    assert not re.search(r'(src|href)="https?:', page)
    assert vl_convert.vegalite_to_svg(content["network"])


def test_a_file_that_cannot_be_written(tmp_path):
    figure = network_drawing(slots())
    with pytest.raises(LabError, match="cannot be written"):
        write_figures([figure], tmp_path / "none" / "a.svg", "a")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_drawn_without_overlap(path):
    network = read_network(path)
    _, layout = laid_out(network)
    covered = list(layout.boxes.values()) + [words.box for words in layout.words]
    assert not any(one.meets(other) for one, other in combinations(covered, 2))
    assert layout.unplaced == 0
