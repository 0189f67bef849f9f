"""Model files that Python and the simulator must refuse alike: one line with the field and the rule."""

import copy
import json
import subprocess

import pytest

from waylab.cli.main import main
from waylab.models import ClosedMMc, ModelError, read_network
from waylab.program import find_waystage

GOOD = {
    "format": "waystage-model/1",
    "classes": [{"name": "a", "population": 2, "think": 1.0}],
    "stations": [{"name": "s", "service": {"a": 0.1}}, {"name": "t", "service": {"a": 0.1}}],
    "visits": {"a": {"f": 1}},
    "forks": [{"name": "f", "branches": ["s", "t"]}],
    "pools": [{"name": "p", "slots": 2, "inside": ["f"]}],
}
BAD = [
    (("forks", 0, "branches"), 3, "branches: must be a list"),
    (("forks", 0, "branches"), "st", "branches: must be a list"),
    (("forks", 0, "branches"), [1, 2], "branches[0]: must be a text"),
    (("forks", 0, "join"), 5, "join: must be a text"),
    (("forks", 0, "send_s"), "1", "send_s: must be a number"),
    (("pools", 0, "inside"), 1, "inside: must be a list"),
    (("pools", 0, "inside"), [["f"]], "inside[0]: must be a text"),
    (("pools", 0, "slots"), 1.5, "slots: must be a whole number"),
    (("classes", 0, "think"), 1e308, "think: must be 0 or from 1e-100 to 1e100"),
    (("classes", 0, "population"), 1e308, "population: must be a whole number"),
    (("classes", 0, "population"), 10**30, "population: must be a whole number"),
    (("classes", 0, "name"), ["a"], "name: must be a text"),
    (("stations", 0, "service", "a"), 1e308, "service.a: must be 0 or from 1e-100 to 1e100"),
    (("stations", 0, "service", "a"), 1e-300, "service.a: must be 0 or from 1e-100 to 1e100"),
    (("stations", 0, "service", "a"), 10**400, ""),
    (("stations", 0, "service", "a"), {"mean_s": "1"}, "mean_s: must be a number"),
    (("stations", 0, "service", "a"), {"distribution": ["x"]}, "distribution: must be a text"),
    (("stations", 0, "service", "a"), {"mean_s": 1, "file": "x"}, "file: belongs to the distribution"),
    (
        ("stations", 0, "service", "a"),
        {"distribution": "empirical", "values_s": 3},
        "values_s: must be a list",
    ),
    (("stations", 0, "service", "a"), {"distribution": "empirical", "file": 3}, "file: must be a text"),
    (
        ("stations", 0, "service", "a"),
        {"distribution": "empirical", "values_s": [1e308, 1e308]},
        "values_s[0]: must",
    ),
    (("stations", 0, "rates"), [1, "2"], "rates[1]: must be a number"),
    (("stations", 0, "rates"), {"1": 2}, "rates: must be a list"),
    (("stations", 0, "servers"), 2.5, "servers: must be a whole number"),
    (("stations", 0, "capacity"), "3", "capacity: must be a whole number"),
    (("stations", 0, "discipline"), {}, "discipline: must be a text"),
    (("stations", 0, "when_full"), 1, "when_full: must be a text"),
    (("stations", 0, "batch"), True, "batch: must be a whole number"),
    (("visits", "a"), [1], "visits: must be an object of objects"),
    (("visits", "a", "f"), 1e300, "visits.a.f: must be 0 or from 1e-100 to 1e100"),
    (("stamps",), 3, "stamps: must be an object"),
    (("routes",), [{"class": 1, "from": [], "to": {}}], "class: must be a text"),
    (("name",), 3, "name: must be a text"),
]


def changed(place, value):
    content = copy.deepcopy(GOOD)
    part = content
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return content


@pytest.mark.parametrize(("place", "value", "line"), BAD, ids=[f"{one[0][-1]} {one[1]!r:.20}" for one in BAD])
def test_both_readers_refuse_it(tmp_path, place, value, line):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(changed(place, value)))
    with pytest.raises(ModelError) as refused:
        read_network(path)
    assert line in str(refused.value)
    done = subprocess.run(
        [str(find_waystage()), "simulate", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1 and line in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_model_itself_is_good(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(GOOD | {"stamps": {"received": "enter s"}}))
    assert read_network(path).pools[0].inside == ("f",)


def test_extreme_numbers_of_a_command_are_one_line(capsys):
    for seconds in ("1e-300", "1e300"):
        arguments = ["model", "closed", "--clients", "5", "--servers", "2", "--think-time", "1"]
        assert main([*arguments, "--service-time", seconds]) != 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and "1e-100 to 1e+100" in lines[0]
    with pytest.raises(ModelError, match="service_s: must be from 1e-100 to 1e\\+100, not 1e-300"):
        ClosedMMc(5, 2, 1e-300, 1.0)
