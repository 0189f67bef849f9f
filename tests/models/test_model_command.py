"""`waylab model`: known answers in the terminal and as JSON; every error is one line and exit code 2."""

import json
from pathlib import Path

import pytest

from waylab.cli import main
from waylab.models import closed_network, open_network, write_network
from waylab.models.network_file import network_as_dict, read_network
from waylab.models.solve import solve

EXAMPLES = Path(__file__).parents[2] / "experiments/models"
TIERS = EXAMPLES / "three-tiers.json"
KNOWN = {"a": 0.02, "b": 0.08, "c": 0.08, "d": 0.06}


def outcome(capsys, *arguments):
    try:
        code = main(["model", *(str(argument) for argument in arguments)])
    except SystemExit as error:
        code = error.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys, *arguments):
    code, out, err = outcome(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def values(content):
    return {row["name"]: row["value"] for row in content["values"]}


@pytest.fixture
def known(tmp_path):
    path = tmp_path / "known.json"
    write_network(closed_network(KNOWN, 6, name="known"), path)
    return path


def test_mm1_of_a16(capsys):
    found = values(as_json(capsys, "mm1", "--arrivals", 10294, "--service", 12900))
    assert found["utilisation"] == pytest.approx(10294 / 12900)
    assert found["response time, mean"] == pytest.approx(1 / 2606)
    assert found["response time, 95th percentile"] == pytest.approx(2.995732 / 2606, rel=1e-6)
    rho = 10294 / 12900
    assert found["busy period, deviation"] ** 2 == pytest.approx((1 + rho) / (12900**2 * (1 - rho) ** 3))


def test_mm1_by_service_time_says_the_same(capsys):
    by_rate = as_json(capsys, "mm1", "--arrivals", 100, "--service", 5000)
    by_time = as_json(capsys, "mm1", "--arrivals", 100, "--service-time", "200us")
    assert values(by_rate) == pytest.approx(values(by_time))


def test_queues_of_the_specification(capsys):
    found = values(as_json(capsys, "mmm", "--arrivals", 9, "--service", 5, "--servers", 2))
    assert found["probability of queueing"] == pytest.approx(0.8526316, abs=1e-7)
    assert found["response time, mean"] == pytest.approx(1.052632, abs=1e-6)
    found = values(as_json(capsys, "mmm", "--arrivals", 3, "--service", 2, "--servers", 2, "--capacity", 5))
    assert found["probability of loss"] == pytest.approx(0.0851138, abs=1e-7)
    assert found["waiting time, mean"] == pytest.approx(0.2308576, abs=1e-7)
    assert "M/M/1/3" in as_json(capsys, "mm1", "--arrivals", 3, "--service", 2, "--capacity", 3)["name"]
    for variation, waiting_s in ((0, 0.5), (1, 1), (4, 2.5)):
        content = as_json(capsys, "mg1", "--arrivals", 0.5, "--service-time", 1, "--variation", variation)
        assert values(content)["waiting time, mean"] == pytest.approx(waiting_s)
    content = as_json(capsys, "ggm", "--arrivals", 3, "--service", 1, "--servers", 4, "--variation", 0.5)
    assert values(content)["waiting time, mean"] == pytest.approx(0.38207547, abs=1e-8)
    assert content["kind"] == "approximation"
    content = as_json(capsys, "closed", "--clients", 100, "--service-time", 0.63, "--think-time", 300)
    assert values(content)["throughput"] == pytest.approx(0.33245315, abs=1e-8)
    assert values(content)["response time, mean"] == pytest.approx(0.79425969, abs=1e-8)
    assert any("25 % more clients (125)" in sentence for sentence in content["explanation"])


def test_a_network_in_the_terminal(capsys, known):
    code, out, err = outcome(capsys, "network", known)
    assert code == 0 and err == ""
    assert "9.92" in out and "605 ms" in out and "known" in out
    assert "The bottlenecks are 'b' and 'c': 79 % busy each." in " ".join(out.split())


def test_a_network_as_json(capsys, known):
    content = as_json(capsys, "network", known)
    assert content["throughput_per_s"] == pytest.approx(9.91983634, abs=1e-8)
    assert content["findings"]["limit"]["names"] == ["b", "c"]
    assert [station["name"] for station in content["stations"]] == list(KNOWN)
    assert content["stations"][1]["utilisation"] == pytest.approx(0.08 * 9.91983634, abs=1e-8)


def test_the_a16_network(capsys):
    content = as_json(capsys, "network", EXAMPLES / "memcached-two-classes.json")
    gets, sets = content["classes"]
    assert gets["throughput_per_s"] == pytest.approx(19718, abs=1)
    assert sets["throughput_per_s"] == pytest.approx(806, abs=1)
    assert gets["response_s"] == pytest.approx(8.67e-3, abs=5e-6)
    assert sets["response_s"] == pytest.approx(11.17e-3, abs=5e-6)
    mixed = as_json(capsys, "network", EXAMPLES / "memcached-one-population.json")
    gets, sets = mixed["classes"]
    assert sets["throughput_per_s"] / mixed["throughput_per_s"] == pytest.approx(0.05)


@pytest.mark.parametrize("method", ["convolution", "mva"])
def test_a_method_by_name(capsys, known, method):
    content = as_json(capsys, "network", known, "--method", method)
    assert content["method"] == method
    assert content["throughput_per_s"] == pytest.approx(9.91983634, abs=1e-8)


def test_clients_other_than_in_the_file(capsys, known):
    content = as_json(capsys, "network", known, "--clients", 60)
    same = solve(closed_network(KNOWN, 60)).throughput_total_per_s
    assert content["population"] == 60 and content["throughput_per_s"] == pytest.approx(same)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--clients", "1..5"], [1, 2, 3, 4, 5]),
        (["--clients", "1..100"], [*range(1, 101, 3)]),
        (["--sweep", "clients=1:20:6"], [1, 7, 13, 19, 20]),
        (["--sweep", "clients=1,2,40"], [1, 2, 40]),
        (["--sweep", "b.servers=1:4"], [1, 2, 3, 4]),
        (["--sweep", "request.think_s=0.1:0.5:0.1"], [0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_sweeps(capsys, known, arguments, expected):
    content = as_json(capsys, "network", known, *arguments)
    assert [row["value"] for row in content["rows"]] == expected
    if "clients" in str(arguments):
        throughput = [row["throughput_per_s"] for row in content["rows"]]
        assert throughput == sorted(throughput)
        for row in content["rows"]:
            same = solve(closed_network(KNOWN, int(row["value"])))
            assert row["throughput_per_s"] == pytest.approx(same.throughput_total_per_s)
        assert content["knee_clients"] == pytest.approx(3.0)


def test_a_sweep_in_the_terminal(capsys, known):
    code, out, _ = outcome(capsys, "network", known, "--sweep", "clients=1:9:4")
    assert code == 0 and "The knee lies at 3 clients." in out and "bottleneck" in out
    assert len([line for line in out.splitlines() if line.strip().startswith(("1 ", "5 ", "9 "))]) == 3


@pytest.mark.parametrize("end", ["svg", "png", "html"])
def test_a_picture_beside_the_numbers(capsys, tmp_path, known, end):
    path = tmp_path / f"picture.{end}"
    code, out, err = outcome(capsys, "network", known, "--json", "--plot", path)
    assert code == 0 and json.loads(out)["name"] == "known"
    assert str(path) in err.replace("\n", "") and path.stat().st_size > 1000


def test_pictures_of_queues_and_sweeps(capsys, tmp_path, known):
    path = tmp_path / "a.svg"
    assert outcome(capsys, "mm1", "--arrivals", 8, "--service", 10, "--plot", path)[0] == 0
    assert "share of the requests that take at most this long" in path.read_text()
    assert outcome(capsys, "network", known, "--sweep", "clients=1:12", "--plot", path, "--dark")[0] == 0
    text = path.read_text()
    assert (
        "throughput, requests/s" in text and "knee 3" in text and "balanced job" in text and "#14171a" in text
    )


def test_bounds_of_demands(capsys):
    content = as_json(capsys, "bounds", "--demands", "0.02,80ms,0.08,0.06", "--clients", 6)
    asymptotic, balanced, geometric = content["bounds"]
    assert asymptotic["throughput_high_per_s"] == pytest.approx(12.5)
    assert asymptotic["throughput_low_per_s"] == pytest.approx(1 / 0.24)
    assert balanced["throughput_high_per_s"] == pytest.approx(6 / (0.24 + 5 * 0.06))
    assert balanced["throughput_low_per_s"] == pytest.approx(6 / (0.24 + 5 * 0.08))
    assert content["knee_clients"] == pytest.approx(3)
    for row in (asymptotic, balanced, geometric):
        assert row["throughput_low_per_s"] <= 9.91983634 <= row["throughput_high_per_s"]
        assert row["response_low_s"] <= 6 / 9.91983634 <= row["response_high_s"]
    assert content["limits"][0]["throughput_per_s"] == pytest.approx(12.5)
    demands = ("--demands", ".1,.1,.09,.08", "--clients", 10, "--think-time", "1s")
    thinking = as_json(capsys, "bounds", *demands)["bounds"]
    assert thinking[0]["throughput_high_per_s"] == pytest.approx(10 / 1.37)


def test_bounds_of_files(capsys, tmp_path, known):
    code, out, _ = outcome(capsys, "bounds", known)
    assert code == 0 and "'b' (and 1 more like it) limits most" in " ".join(out.split())
    forked = as_json(capsys, "bounds", EXAMPLES / "replicated-writes.json")
    assert forked["bounds"] == [] and "'replicas' forks" in forked["explanation"][-1]
    path = tmp_path / "bounds.svg"
    assert outcome(capsys, "bounds", known, "--clients", 5, "--plot", path)[0] == 0
    assert all(word in path.read_text() for word in ("asymptotic", "balanced job", "geometric", "knee 3"))


def test_a_sweep_lies_between_its_bounds(capsys, known):
    content = as_json(capsys, "network", known, "--sweep", "clients=1:30:3")
    solved = {row["value"]: row for row in content["rows"]}
    assert len(content["bounds"]) == 3 * len(solved)
    for row in content["bounds"]:
        throughput = solved[row["value"]]["throughput_per_s"]
        slack = 1e-9 * throughput
        assert row["throughput_low_per_s"] - slack <= throughput <= row["throughput_high_per_s"] + slack


def test_usl(capsys, tmp_path):
    path = tmp_path / "runs.csv"
    rows = ["clients,run,throughput_per_s"]
    for clients in (1, 2, 4, 8, 16, 32, 48, 64):
        mean = 1000 * clients / (1 + 0.03 * (clients - 1) + 0.0002 * clients * (clients - 1))
        rows += [f"{clients},{run},{mean * (1 + shift)}" for run, shift in ((1, -0.01), (2, 0.01))]
        # Two windows of one run are that run's mean, not two runs.
        rows += [f"{clients},3,{mean * 0.9}", f"{clients},3,{mean * 1.1}"]
    path.write_text("\n".join(rows) + "\n")
    content = as_json(capsys, "usl", path)
    assert len(content["runs"]) == 8 * 3
    found = {name: row["value"] for name, row in content["parameters"].items()}
    assert found == pytest.approx({"gamma": 1000, "alpha": 0.03, "beta": 0.0002}, rel=1e-3)
    assert content["peak_clients"] == pytest.approx((0.97 / 0.0002) ** 0.5, rel=1e-3)
    low_high = content["parameters"]["gamma"]
    assert low_high["low"] < 1000 < low_high["high"] and content["r_squared"] > 0.999
    code, out, _ = outcome(capsys, "usl", path, "--plot", tmp_path / "usl.svg")
    assert (
        code == 0 and "gamma" in out and "R squared" in out and "peak" in (tmp_path / "usl.svg").read_text()
    )


def test_a_simulation_beside_the_formula(capsys, known):
    short = ("--seed", 3, "--requests", 2000, "--replications", 10)
    content = as_json(capsys, "simulate", known, *short)
    (request,) = content["classes"]
    width = request["half_width_throughput_per_s"]
    assert 0 < width < 0.05 * 9.92
    assert request["throughput_per_s"] == pytest.approx(9.91983634, abs=3.5 * width)
    assert content["kind"] == "simulation" and content["findings"]["changes"] == []
    assert request["quantiles_s"]["0.5"] < request["quantiles_s"]["0.99"]
    assert as_json(capsys, "simulate", known, *short) == content
    code, out, err = outcome(capsys, "simulate", known, *short, "--explain")
    text = " ".join(out.split())
    assert (code, err) == (0, "") and "±" in out and "p99" in out
    assert "The bottlenecks are 'b' and 'c'" in text and "Twice the servers at each of them (2): 4" in text
    assert "10 replications of 2000 requests" in text and max(map(len, out.splitlines())) <= 80


def test_a_simulation_of_an_unstable_queue(capsys, tmp_path):
    path = tmp_path / "full.json"
    write_network(open_network({"a": 0.1}, 20.0), path)
    code, out, err = outcome(capsys, "simulate", path, "--requests", 100)
    assert (code, out) == (2, "") and "unstable" in err and err.count("\n") == 1


def test_help_shows_every_model_with_an_example(capsys):
    code, out, _ = outcome(capsys, "--help")
    assert code == 0
    for name in ("mm1", "mmm", "mg1", "ggm", "closed", "network", "simulate", "bounds", "usl"):
        assert f"\n    {name} " in out and f"waylab model {name} " in out, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: MODEL"),
        (["mm2"], "invalid choice"),
        (["mm1", "--arrivals", "8"], "one of the arguments --service --service-time is required"),
        (["mm1", "--service", "8"], "the following arguments are required: --arrivals"),
        (["mm1", "--arrivals", "8", "--service", "8"], "unstable: utilisation 1 is not below 1"),
        (["mm1", "--arrivals", "-8", "--service", "8"], "'-8' is not a rate per second above zero"),
        (["mm1", "--arrivals", "nan", "--service", "8"], "'nan' is not a rate"),
        (["mm1", "--arrivals", "8", "--service", "9", "--service-time", "1ms"], "not allowed with"),
        (["mm1", "--arrivals", "8", "--service-time", "5 parsecs"], "is not a time; give one such as 200us"),
        (["mm1", "--arrivals", "8", "--service-time", "0"], "must be above zero"),
        (["mm1", "--arrivals", "8", "--service", "9", "--capacity", "0"], "whole number of at least 1"),
        (["mm1", "--arrivals", "8", "--service", "9", "--plot", "a.pdf"], "does not end in one of .svg"),
        (["mmm", "--arrivals", "8", "--service", "9"], "required: --servers"),
        (["mmm", "--arrivals", "8", "--service", "9", "--servers", "3", "--capacity", "2"], "capacity"),
        (["mg1", "--arrivals", "8", "--service", "9", "--variation", "-1"], "at least zero"),
        (["closed", "--clients", "2.5", "--service", "9"], "whole number"),
        (["network", "none.json"], "none.json: cannot be read"),
        (["network", "bad.json"], "bad.json: is not JSON"),
        (["network", "text.json"], "text.json: the model: must be a JSON object"),
        (["network", "known.json", "--method", "guess"], "'guess' is none of auto"),
        (["network", "known.json", "--method", "open"], "assumes"),
        (["network", "known.json", "--clients", "0"], "whole number of at least 1"),
        (["network", "known.json", "--clients", "9..2"], "does not increase"),
        (
            ["network", "known.json", "--sweep", "clients"],
            "is not a sweep; give one such as clients=1:200:10",
        ),
        (["network", "known.json", "--sweep", "clients=1:2:3:4"], "is not FIRST:LAST"),
        (["network", "known.json", "--sweep", "clients=1:9:0"], "does not increase"),
        (["network", "known.json", "--sweep", "clients=1:99999"], "more than 2000 values"),
        (["network", "known.json", "--sweep", "clients=a"], "'a' is not a number"),
        (["network", "known.json", "--sweep", "nobody.servers=1:2"], "'nobody.servers' is none of"),
        (["network", "known.json", "--sweep", "clients=1,2.5"], "whole number"),
        (["network", "known.json", "--sweep", "clients=1:2", "--clients", "1..3"], "give either"),
        (["network", "known.json", "--plot", "none/a.svg"], "none/a.svg: cannot be written"),
        (["simulate", "none.json"], "none.json: cannot be read"),
        (["bounds"], "give either a FILE or --demands"),
        (["bounds", "known.json", "--demands", "1"], "give either a FILE or --demands"),
        (["bounds", "--demands", "1,2"], "--demands needs --clients"),
        (["bounds", "--demands", "1,x", "--clients", "2"], "'x' is not a time"),
        (["bounds", "known.json", "--think-time", "1"], "a FILE has its own"),
        (["bounds", "open.json", "--plot", "a.svg"], "only closed networks"),
        (["usl", "none.csv"], "none.csv: cannot be read"),
        (["usl", "known.json"], "has no column 'clients'"),
        (["usl", "words.csv"], "line 2: clients and throughput_per_s must be numbers"),
        (["usl", "two.csv"], "3 different values at least"),
        (["usl", "empty.csv"], "has no runs"),
    ],
)
def test_bad_input(capsys, tmp_path, monkeypatch, known, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    write_network(open_network({"a": 0.1}, 2.0), tmp_path / "open.json")
    (tmp_path / "text.json").write_text('"text"')
    (tmp_path / "words.csv").write_text("clients,throughput_per_s\none,2\n")
    (tmp_path / "two.csv").write_text("clients,throughput_per_s\n1,2\n2,3\n")
    (tmp_path / "empty.csv").write_text("clients,throughput_per_s\n")
    code, out, err = outcome(capsys, *arguments)
    assert (code, out) == (2, "") and err.startswith("waylab: ") and message in err, err
    assert err.count("\n") == 1 and "Traceback" not in err


def test_a_wrong_field_is_named(capsys, tmp_path, known):
    content = network_as_dict(read_network(known))
    content["stations"][2]["servers"] = 0
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content))
    code, _, err = outcome(capsys, "network", path)
    assert (
        code == 2 and "stations[2] 'c'.servers: must be a whole number >= 1" in err and err.count("\n") == 1
    )


def test_examples_are_read_and_solved(capsys):
    paths = sorted(EXAMPLES.glob("*.json"))
    assert len(paths) == 5
    for path in paths:
        code, out, err = outcome(capsys, "network", path)
        assert (code, err) == (0, ""), err
        assert "bottleneck" in out and max(len(line) for line in out.splitlines()) <= 80
