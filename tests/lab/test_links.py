"""Emulated links in the analysis and on the page: their utilisation, and whether they matched their settings."""

import csv
import json

import pytest
from conftest import true_throughput
from synthetic import START_NS, WINDOW_S, Truth, write_trial

from waylab.analysis import analyse
from waylab.cli import main
from waylab.predict import predict
from waylab.report.page.content import read_content
from waylab.report.page.html import page
from waylab.runfolder.analysis import TestbedSummary
from waylab.runfolder.files import read_run

ASKED_MBIT = 100.0
PAYLOAD_MBIT = 95.64
HOSTS = ("client", "proxy", "server")


def link(error=0.0, **described):
    settings = {
        "profile": "",
        "cores": None,
        "up_mbit": None,
        "down_mbit": None,
        "delay_ms": None,
    } | described
    measured = {
        "up_payload_mbit": 1.0,
        "down_payload_mbit": 1.0,
        "round_trip_median_ms": 0.1,
        "segment_bytes": 1448,
    }
    check = {"name": "up_mbit", "asked": ASKED_MBIT, "expected": PAYLOAD_MBIT, "slack": 0.0, "error": error}
    check["measured"] = PAYLOAD_MBIT * (1 + error)
    return settings | measured | {"checks": [check] if settings["up_mbit"] else []}


def emulate(directory, share=0.99, error=0.0, cores_usable=2, late_percent=None):
    """Turn a synthetic run into one on emulated hosts whose server sends at a share of its link's rate."""
    path = directory / "run.json"
    run = json.loads(path.read_text())
    for planned in run["plan"]:
        planned["assignment"] = {"load": ["client"], "proxy": ["proxy"], "backends": ["server"]}
    path.write_text(json.dumps(run))
    run = read_run(directory)
    links = {
        "client": link(cores=2.0),
        "proxy": link(),
        "server": link(error, up_mbit=ASKED_MBIT, cores=1.0) | {"process": late_percent is not None},
        "idle": link(0.5, up_mbit=ASKED_MBIT),
    }
    facts = {"kind": "netns", "pinning": "shared", "cores_usable": cores_usable, "links": links}
    for planned in run.plan:
        trial = write_trial(directory, planned, Truth(throughput_per_s=true_throughput(planned)))
        content = json.loads((trial / "trial.json").read_text())
        (trial / "trial.json").write_text(json.dumps(content | {"testbed": facts}))
        with (trial / "hosts.csv").open("w") as file:
            names = "sent_bytes sent_packets sent_dropped received_bytes received_packets received_dropped throttled_s"
            names += " late_packets" if late_percent is not None else ""
            rows = csv.DictWriter(file, ["clock_ns", "host", *names.split()])
            rows.writeheader()
            for step in range(-1, 5):
                time_s = step + 0.3
                for host in (*HOSTS, "idle"):
                    counters = dict.fromkeys(names.split(), 0)
                    counters["sent_bytes"] = round((time_s + 9) * share * ASKED_MBIT * 1e6 / 8)
                    counters["throttled_s"] = 0.25 * (time_s + 9)
                    counters["received_dropped"] = max(0, step)
                    if late_percent is not None:
                        counters["sent_packets"] = counters["received_packets"] = 1000 * (step + 9)
                        counters["late_packets"] = 20 * late_percent * (step + 9)
                    rows.writerow({"clock_ns": START_NS + round(1e9 * time_s), "host": host, **counters})
    return run


def text_of(directory):
    predict(directory)
    return " ".join(page(read_content(directory), []).split())


def test_link_utilisation_is_bytes_over_rate(empty_run):
    emulate(empty_run)
    content = analyse(empty_run)
    assert content.trials_used == content.trials_total == 12
    for trial in content.trials:
        assert trial.numbers.links.utilisation == {"server up": pytest.approx(0.99, rel=1e-6)}
        assert trial.numbers.links.throttled_share == {
            "client": pytest.approx(0.25),
            "server": pytest.approx(0.25),
        }
        assert trial.numbers.links.dropped_packets == 3 * 4, "of all three hosts, over the whole trial"
        gate = next(gate for gate in trial.gates if gate.name == "links")
        assert gate.passed and gate.text.startswith("server.up_mbit = 100: 95.64 Mbit/s of payload measured")
    for configuration in content.configurations:
        assert configuration.link_utilisation["server up"].mean == pytest.approx(0.99, rel=1e-6)
    full = [fact for fact in content.facts if "link" in fact]
    assert full == [
        f"{series}: at its highest throughput these links are full: server up 99.0 %."
        for series in ("1 replica", "2 replicas")
    ]
    assert content.testbed.oversubscribed and content.testbed.cores_described == 3
    assert WINDOW_S == 2.0


@pytest.mark.parametrize(("late", "passed"), [(4, True), (6, False)])
def test_a_trial_whose_link_process_was_late_is_not_used(empty_run, late, passed):
    emulate(empty_run, late_percent=late)
    content = analyse(empty_run)
    for trial in content.trials:
        assert trial.numbers.links.late_share == {"server": pytest.approx(late / 100)}
    assert content.trials_used == (12 if passed else 0)
    assert (content.trials[0].reasons == []) is passed
    if not passed:
        (reason,) = content.trials[0].reasons
        assert reason == "link_timing: 6.00 % of the packets of server left its emulated link late, limit 5 %"


def test_the_report_says_that_no_link_is_saturated(empty_run):
    emulate(empty_run, share=0.4)
    facts = analyse(empty_run).facts
    assert "1 replica: at its highest throughput no link is full; the fullest is used to 40.0 %." in facts


def test_a_trial_whose_links_differ_from_their_settings_is_not_used(empty_run):
    emulate(empty_run, error=-0.08)
    content = analyse(empty_run)
    assert content.trials_used == 0
    (reason,) = content.trials[0].reasons
    assert reason == (
        "links: server.up_mbit = 100: 87.99 Mbit/s of payload measured, 95.64 expected, -8.00 %, limit 5 %"
    )


def test_the_page_shows_the_hosts_and_their_threats_to_validity(empty_run):
    emulate(empty_run)
    analyse(empty_run)
    shown = text_of(empty_run)
    assert "Emulated hosts. Rates are of Ethernet frames" in shown and "95.64" in shown
    assert "The hosts are emulated on one machine" in shown and "over the loopback: load" not in shown
    assert "are a share of the CPU time of all cores" in shown
    assert "a limit that is not one of a link may be one of this machine" in shown


def test_enough_cores_are_not_listed_as_a_threat(empty_run):
    emulate(empty_run, cores_usable=4)
    assert not analyse(empty_run).testbed.oversubscribed
    assert "a limit that is not one of a link" not in text_of(empty_run)


def test_a_run_on_this_machine_has_no_links(run_folder, capsys):
    content = analyse(run_folder)
    gate = next(gate for gate in content.trials[0].gates if gate.name == "links")
    assert gate.passed is None and content.testbed == TestbedSummary()
    assert not any("link" in fact for fact in content.facts)
    shown = text_of(run_folder)
    assert "over the loopback: load" in shown and "Emulated hosts" not in shown
    assert main(["show", str(run_folder)]) == 0 and capsys.readouterr().out
