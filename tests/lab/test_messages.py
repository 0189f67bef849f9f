"""Message services as the system of a trial: their processes, settings and results. Tests named "real" run programs."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from postgres_peer import postgres_or_skip

from waylab.analysis import analyse
from waylab.errors import LabError
from waylab.plan import make_plan
from waylab.predict import predict
from waylab.program import find_waystage
from waylab.records.reader import OPERATIONS, read_records
from waylab.report.page.content import read_content
from waylab.report.page.database import database_section
from waylab.report.page.diagram import diagram
from waylab.report.page.sections import setup, threats
from waylab.report.tables.prediction import models_table
from waylab.run import create_run
from waylab.runfolder.files import read, read_run, read_trial
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.paths import trial_directory
from waylab.spec import Assignment, Load, Messages, Spec, System, read_spec
from waylab.testbed import Programs, Testbed, canned, pgbench, pgbench_log, running_system

HEAD = 'question = "q"\nhypothesis = "h"\nrefuted_by = [{ metric = "failed_trials", above = 0 }]\n'
LOOSE = "[gates]\n" + "\n".join(
    f"{name} = 1.0" for name in ("generator_cpu_max", "foreign_cpu_max", "steal_max", "interactive_law_max")
)
# Commits of two services beside their requests, at most: about 400 to prepare the statements of all connections, and in
# each second 20 rounds of three statements for the marks and a few of the other loops, for each service.
STARTING_COMMITS, LOOP_COMMITS_PER_S = 1000, 150


class Prepared:
    """A test double of the database that has only its address."""

    def prepare(self, trial):
        return "host=/somewhere dbname=waystage_trial"


def a_trial(services=1, generators=1, **messages):
    spec = Spec(
        name="x",
        system=System(kind="messages", messages=Messages(services=services, **messages)),
        load=Load(clients=8, operations="d15", prefill=7, data_size=200, test_time_s=0.2, warm_up_s=0.1),
        assignment=Assignment(load=("a",) * generators),
    )
    return make_plan(spec).trials[0]


def commands(trial, directory):
    """Start a system of the fake program with its load; return the commands by process name."""
    programs = Programs(find_waystage(), None)
    with running_system(trial, programs, directory, Testbed(), Prepared()) as system:
        addresses = system.start_servers()
        system.prefill(addresses)
        loads = system.start_load(addresses)
        assert all(load.wait(30) and load.exit_code == 0 for load in loads)
        return addresses, {process.name: process.command for process in system.processes}


def values_of(command, name):
    return [command[index + 1] for index, part in enumerate(command) if part == name]


def test_services_share_the_connections_and_clients_use_them_round_robin(fake, tmp_path):
    addresses, found = commands(a_trial(services=3, dispatch="pool", connections=40), tmp_path)
    assert list(found) == ["messages-0", "messages-1", "messages-2", "load"]
    for name in ("messages-0", "messages-2"):
        assert values_of(found[name], "--connections") == ["14"] and "--lanes" not in found[name]
        assert values_of(found[name], "--database") == ["host=/somewhere dbname=waystage_trial"]
    assert values_of(found["load"], "--messages") == [f"http://{address}" for address in addresses]
    for name, value in (
        ("--operations", "d15"),
        ("--prefill", "7"),
        ("--data-size", "200"),
        ("--clients", "8"),
    ):
        assert values_of(found["load"], name) == [value]
    assert not {"--ratio", "--pipeline", "--server", "--key-minimum", "--no-verify"} & set(found["load"])


def test_generators_begin_with_different_services_and_fill_nothing(fake, tmp_path):
    addresses, found = commands(a_trial(services=2, generators=2), tmp_path)
    first = [values_of(found[f"load-{index}"], "--messages")[0] for index in range(2)]
    assert first == [f"http://{address}" for address in addresses]
    assert "fill-0" not in found and "--no-prefill" not in found["load-0"]


def test_a_system_without_a_database_prepares_none(fake, tmp_path):
    _, found = commands(a_trial(dispatch="none"), tmp_path)
    assert "--database" not in found["messages"] and "--no-verify" in found["load"]
    _, found = commands(a_trial(dispatch="canned"), tmp_path / "canned")
    assert found["messages"][1].endswith("canned.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[system.messages]\nservices = 9\n[load]\nclients = 8", "services = 9: more than the 8 clients"),
        (
            '[system.messages]\nservices = 3\ndispatch = "pool"\nconnections = 2',
            "connections = 2: fewer than the 3 services",
        ),
        ("[load]\npipeline = 2", 'load.pipeline: system.kind = "messages" sends one request at a time'),
        ('[load]\noperations = "send pop"', "should name operations"),
        ('[system.messages]\ndispatch = "poool"', "should be one of fused, pool, none, canned"),
        ('[system.database]\nsettings = ["fsync"]', "should read like synchronous_commit=on"),
        (
            '[testbed]\nkind = "netns"\n[testbed.hosts]\na = {}\n[assignment]\nload = ["a"]',
            "assignment.messages",
        ),
    ],
)
def test_an_invalid_message_system_raises_one_line(tmp_path, text, message):
    path = tmp_path / "x.toml"
    kind = 'kind = "messages"\n'
    path.write_text(HEAD + (f"[system]\n{kind}{text}" if not text.startswith("[system]") else text))
    with pytest.raises(LabError) as caught:
        read_spec(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_message_settings_are_refused_in_other_systems(tmp_path):
    path = tmp_path / "x.toml"
    for text, message in (
        ("[load]\nprefill = 3", 'load.prefill: needs system.kind = "messages" or "database"'),
        ('[system]\nkind = "database"\n[load]\nrate = 5', "is a closed loop without think time"),
        ('[system]\nkind = "database"\n[load]\noperations = "send:1"', 'knows "d15" only'),
    ):
        path.write_text(HEAD + text)
        with pytest.raises(LabError, match=message):
            read_spec(path)


def test_the_short_name_dispatch_is_that_of_the_proxy(tmp_path):
    path = tmp_path / "x.toml"
    factors = '[factors]\ndispatch = ["pipelined", "shared"]\n"messages.services" = [1, 2]'
    path.write_text(HEAD + "[load]\nclients = 8\n" + factors)
    assert [factor.key for factor in read_spec(path).factors] == [
        "system.proxy.dispatch",
        "system.messages.services",
    ]


def test_the_minimal_service_splits_requests_and_replies():
    send = b"POST /v1/queues/q/messages HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    pop = b"POST /v1/queues/q/messages:pop?for=c1 HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    found, rest = canned.requests_in(send + pop + send[:-1])
    assert found == [send, pop] and rest == send[:-1]
    assert canned.answer(send).endswith(b'{"id":1}') and b" 204 " in canned.answer(pop)
    assert b'"queues":[]' in canned.answer(b"GET /v1/receivers/c1/queues HTTP/1.1\r\n\r\n")
    assert b" 201 " in canned.answer(b"PUT /v1/queues/q HTTP/1.1\r\n\r\n")


def test_the_log_of_pgbench_becomes_a_summary(tmp_path):
    """Two clients, requests of 1 ms every 2 ms: the response is the whole cycle, the service what pgbench measured."""
    trial = make_plan(
        Spec(
            name="x",
            system=System(kind="database"),
            load=Load(clients=2, warm_up_s=1.0, test_time_s=2.0, operations="d15"),
        )
    ).trials[0]
    # Times from now on, because CLOCK_MONOTONIC would be negative for times before the machine started.
    lines, start_us = [], time.time_ns() // 10**9 * 10**6
    for step in range(1, 2001):
        for client in range(2):
            end_us = start_us + 2000 * step
            script = step % len(pgbench.SCRIPTS)
            lines.append(f"{client} {step} 1000 {script} {end_us // 10**6} {end_us % 10**6}")
    lines.append(f"0 2001 failed 0 {end_us // 10**6} {end_us % 10**6}")
    (tmp_path / "pgbench").mkdir()
    (tmp_path / "pgbench" / "pgbench.77").write_text("\n".join(lines) + "\n")
    offset_ns = time.time_ns() - time.monotonic_ns()
    rows = "\n".join(
        f"{start_us * 1000 - offset_ns + second * 10**9},load,1,{0.1 * second},{0.1 * second},1,1"
        for second in range(5)
    )
    (tmp_path / "processes.csv").write_text(
        f"clock_ns,process,pid,user_s,system_s,resident_bytes,threads\n{rows}\n"
    )
    pgbench_log.summarise(trial, tmp_path, tmp_path / "pgbench", "load")
    found = read(tmp_path / "load.json", LoadSummary)
    assert found.totals.requests == pytest.approx(2000, abs=4) and found.totals.errors == 1
    everything = found.operations.all
    assert everything.response.mean_ns == pytest.approx(2e6)
    service = json.loads((tmp_path / "load.json").read_text())["operations"]["all"]["service"]
    assert service["mean_ns"] == pytest.approx(1e6)
    assert sum(one.count for one in found.operations.messages.values()) == everything.count
    assert found.cpu.share == pytest.approx(0.2, rel=0.05)
    measured = [second for second in found.seconds if second.measured]
    assert [second.requests for second in measured] == [1000, 1000]


@pytest.mark.parametrize("time_scale, seconds", [(1.0, 4), (10.0, 10)])
def test_pgbench_has_time_to_connect_before_the_window(tmp_path, time_scale, seconds):
    """60 clients connect in 0.6 s, ten times longer at a time scale of 10; warm-up, window and 0.2 s follow."""
    trial = make_plan(
        Spec(
            name="x",
            system=System(kind="database"),
            load=Load(clients=60, warm_up_s=1.0, test_time_s=2.0, operations="d15"),
        )
    ).trials[0]
    slower = replace(trial, time_scale=time_scale)
    command = pgbench.pgbench_command(Path("pgbench"), slower, "host=x", tmp_path / "scripts")
    assert f"--time={seconds}" in command


def run_of(tmp_path, text):
    """Run a specification and return its analysis."""
    path = tmp_path / "real.toml"
    path.write_text(HEAD + text + LOOSE + '\nreason = "A test is not a measurement."\n')
    campaign = create_run(path, tmp_path / "results")
    campaign.run(lambda step: None)
    return campaign.directory, analyse(campaign.directory)


def test_the_real_database_alone_with_and_without_the_further_index(tmp_path):
    postgres_or_skip(pgbench=True)
    text = '[system]\nkind = "database"\n[load]\nclients = 4\nprefill = 100\nwarm_up_s = 1.0\ntest_time_s = 1.0\n'
    text += '[factors]\n"database.further_index" = [true, false]\n[design]\nblocks = 1\n'
    directory, content = run_of(tmp_path, text)
    assert [trial.reasons for trial in content.trials] == [[], []]
    for trial in content.trials:
        # Every request is one transaction.
        assert trial.numbers.database["commits_per_request"] == pytest.approx(1, abs=0.1)
        assert trial.numbers.database["wal_bytes_per_message"] > 200, "the body alone"
        assert trial.numbers.cpu.cpu_s["database"] > 0
        assert {"send", "pop", "waiting"} <= set(trial.numbers.operations)
    kept = read_run(directory).plan[0].id
    facts = read_trial(directory, kept).database
    assert facts.version.startswith("postgres") and facts.after["commits"] > facts.before["commits"]


def check_the_database(directory, trial_id):
    """Compare the counters of the database with the records of both services; no bound depends on the machine's speed.

    Requests and commits differ. The lists of several clients share a statement, so one commit serves several requests.
    A pop that finds only locked rows runs again, at most twice. Connections and background loops commit as well.
    """
    place = trial_directory(directory, trial_id)
    outcome = read_trial(directory, trial_id)
    before, after = outcome.database.before, outcome.database.after
    rows = [read_records(path).parents for path in sorted((place / "records").glob("messages-*.way"))]
    assert len(rows) == 2
    counted = {
        name: sum((one["operation"] == OPERATIONS.index(name)).sum() for one in rows) for name in OPERATIONS
    }
    # Every stored message and every created queue is one row: a service that is missing or counted twice shows here.
    assert after["rows_inserted"] - before["rows_inserted"] == counted["send"] + counted["create_queue"]
    # A batch is a connection's number and its own, and needs at least one commit.
    batches = sum(len(np.unique(one[["backend", "backend_sequence"]])) for one in rows)
    commits = after["commits"] - before["commits"]
    elapsed_s = (outcome.after.clock_ns - outcome.before.clock_ns) * 1e-9
    beside = STARTING_COMMITS + LOOP_COMMITS_PER_S * elapsed_s
    assert batches <= commits <= sum(len(one) for one in rows) + 2 * counted["pop"] + beside


def test_two_real_services_share_one_database(tmp_path):
    postgres_or_skip()
    text = (
        '[system]\nkind = "messages"\n[system.messages]\nservices = 2\ndispatch = "pool"\nconnections = 4\n'
    )
    text += '[load]\noperations = "d15"\ndata_size = 200\nsample = 1\nwarm_up_s = 0.5\ntest_time_s = 1.0\n'
    text += "[factors]\nclients = [2, 8]\n[design]\nblocks = 1\n"
    directory, content = run_of(tmp_path, text)
    assert [trial.reasons for trial in content.trials] == [[], []]
    for trial in content.trials:
        stages = trial.numbers.stages["all"].stages
        assert stages["backend"].mean_ns > 0 and trial.numbers.proxy_view.joined > 0
        parts = sum(numbers.mean_ns for name, numbers in stages.items() if name != "total")
        assert parts == pytest.approx(stages["total"].mean_ns)
        assert {"messages", "database", "load"} <= set(trial.numbers.cpu.cpu_per_request_ns)
        check_the_database(directory, trial.id)
    predicted = predict(directory)
    applied = {entry.model for entry in predicted.entries if entry.applies}
    assert {"M/M/m fitted", "closed, load-dependent stations", "capped chain with w(n)"} <= applied
    chains = [entry for entry in predicted.entries if entry.model == "capped chain with w(n)"]
    assert np.isfinite([entry.predicted.throughput_per_s for entry in chains]).all()
    content = read_content(directory)
    assert ">messages 2</text>" in diagram(content) and ">postgres</text>" in diagram(content)
    assert "commits for a request" in database_section(content) and "connections <data" in setup(content)
    assert content.operations[0] != "get" and "waiting" in content.operations
    assert "capped chain with w(n)" in models_table(content)
    assert "load, services and database" in threats(content)
