"""Agents and a controller form one load over real sockets, and survive the loss of one of them."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest
from programs import WAYSTAGE, free_ports

# A run that ends only on a signal.
ENDLESS = ["--test-time", "120s", "--warm-up", "0s", "--quiet"]


def run(*arguments):
    """Run the program until it exits."""
    command = [str(WAYSTAGE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def program(*arguments):
    """Run a server; yields its process, with its address. The process is killed at the end if it still runs."""
    command = [str(WAYSTAGE), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            process.address = re.search(r"ready on (\S+)", process.stdout.readline()).group(1)
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server():
    """An embedded cache; yields its address."""
    with program("cache", "--listen", "127.0.0.1:0") as process:
        yield process.address


@pytest.fixture
def agents():
    """Two agents."""
    with (
        program("load", "agent", "--listen", "127.0.0.1:0") as one,
        program("load", "agent", "--listen", "127.0.0.1:0") as other,
    ):
        yield [one, other]


def arguments(server, agents, *more):
    """Return the arguments of a load by these agents."""
    named = [word for agent in agents for word in ("--agent", agent.address)]
    return ["load", "--server", server, *named, "--clients", 4, *more]


@contextmanager
def running(*words, agents):
    """A load that every agent has started; yields the controller's process."""
    command = [str(WAYSTAGE), *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for agent in agents:
                while not agent.stderr.readline().rstrip().endswith(": runs"):
                    assert agent.poll() is None and process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


def one_line(result, *words):
    """Assert that the program failed with one line that contains these words."""
    lines = result.stderr.strip().splitlines()
    assert result.returncode in (1, 2) and len(lines) == 1, result
    for word in ("waystage: ", *words):
        assert word in lines[0], lines[0]


def are_ready_again(server, agents):
    """Assert that the agents accept another run as soon as they have noticed the end of the last one."""
    deadline = time.monotonic() + 20
    while "busy" in (result := run(*arguments(server, agents, "--requests", 100))).stderr:
        assert time.monotonic() < deadline, result
        time.sleep(0.1)
    assert "answered" in result.stdout and "LOST" not in result.stdout, result


def test_two_agents_and_a_measuring_client_report_one_run(server, agents, tmp_path):
    out = tmp_path / "summary.json"
    more = ["--rate", 301, "--measure-locally", 50, "--test-time", "1s", "--warm-up", "500ms"]
    words = arguments(server, agents, *more, "--key-maximum", 899, "--json-out-file", out)
    result = run(*words)
    # A slow machine may make the run invalid; the settings and counts of each agent stay the same.
    assert out.exists(), result
    summary = json.loads(out.read_text())
    coordination, parts = summary["coordination"], summary["parts"]
    reports, measuring = coordination["agents"], coordination["measuring"]
    assert [report["agent"] for report in reports] == [agent.address for agent in agents]
    assert [report["share"]["rate_per_s"] for report in reports] == [150, 151]
    keys = [(report["share"]["key_minimum"], report["share"]["key_maximum"]) for report in reports]
    settings = measuring["settings"]
    assert [*keys, (settings["key_minimum"], settings["key_maximum"])] == [(0, 299), (300, 599), (600, 899)]
    assert len({settings["seed"], *(part["settings"]["seed"] for part in parts)}) == 3
    for report, part in zip(reports, parts, strict=True):
        received = [
            part["settings"][name] for name in ("key_minimum", "key_maximum", "offered_per_s", "clients")
        ]
        share = report["share"]
        assert received == [share["key_minimum"], share["key_maximum"], share["rate_per_s"], share["clients"]]
        assert f"--seed={share['seed']}" in part["arguments"]
    begins = [report["measure_from_clock_ns"] for report in reports] + [measuring["measure_from_clock_ns"]]
    assert max(begins) - min(begins) <= 5e6 + coordination["start_spread_ns"]
    # All agents share one machine, and so one clock.
    for report in reports:
        assert abs(report["clock_offset_ns"]) <= report["clock_error_ns"]
    errors = sorted((report["clock_error_ns"] for report in reports), reverse=True)
    assert sum(errors[:2]) <= coordination["start_spread_ns"] <= sum(errors[:2]) + 10
    assert summary["totals"]["requests"] == sum(part["requests"] for part in parts) > 0
    assert summary["verification"]["checked"] > 0 and measuring["verification"]["checked"] > 0
    assert summary["verification"]["wrong"] + summary["verification"]["stale"] == 0
    assert measuring["settings"]["offered_per_s"] == 50 and measuring["totals"]["requests"] > 0
    assert "\nmeasuring " in result.stdout and "2 agent(s)" in result.stdout
    # The same agents do another run: only gets, all of the same keys; only the first agent sets them.
    result = run(
        *arguments(server, agents, "--ratio", "0:1", "--requests", 1001, "--data-size", "uniform:30:900")
    )
    assert re.search(r"verified 1001 values: 0 wrong, 0 torn, 0 stale", result.stdout), result.stdout


def test_a_killed_agent_is_named_and_the_other_results_are_kept(server, agents, tmp_path):
    out = tmp_path / "summary.json"
    words = arguments(server, agents, *ENDLESS, "--json-out-file", out)
    with running(*words, agents=agents) as controller:
        agents[0].kill()
        _, errors = controller.communicate(timeout=30)
    assert controller.returncode == 1 and len(errors.strip().splitlines()) == 1, errors
    assert f"agent {agents[0].address} was lost" in errors
    summary = json.loads(out.read_text())
    assert summary["partial"] and not summary["valid"]
    assert summary["totals"]["requests"] > 0 and [part["name"] for part in summary["parts"]] == [
        agents[1].address
    ]
    assert [report["lost"] is None for report in summary["coordination"]["agents"]] == [False, True]


def test_agents_become_free_when_their_controller_is_killed(server, agents):
    with running(*arguments(server, agents, *ENDLESS), agents=agents) as controller:
        one_line(run(*arguments(server, agents[1:])), agents[1].address, "busy with a run for 127.0.0.1:")
        controller.kill()
        controller.wait()
        are_ready_again(server, agents)


def test_a_signal_ends_the_run_and_keeps_its_measurements(server, agents, tmp_path):
    out = tmp_path / "summary.json"
    with running(*arguments(server, agents, *ENDLESS, "--json-out-file", out), agents=agents) as controller:
        controller.send_signal(signal.SIGINT)
        output, _ = controller.communicate(timeout=30)
    summary = json.loads(out.read_text())
    assert summary["partial"] and summary["totals"]["requests"] > 0 and "2 agent(s)" in output
    assert [report["lost"] for report in summary["coordination"]["agents"]] == [None, None]
    with running(*arguments(server, agents, *ENDLESS), agents=agents) as controller:
        agents[0].send_signal(signal.SIGTERM)
        assert agents[0].wait(timeout=20) == 0
        _, errors = controller.communicate(timeout=30)
    assert "the agent was stopped" in errors and agents[0].address in errors
    agents[1].send_signal(signal.SIGTERM)
    assert agents[1].wait(timeout=20) == 0


def run_when_free(*arguments):
    """Run a controller, again if an agent has not yet noticed that the controller before it has gone."""
    for _ in range(100):
        result = run(*arguments)
        if "busy with a run for" not in result.stderr:
            return result
        time.sleep(0.05)
    raise AssertionError(f"an agent stays busy: {result.stderr}")


def test_configuration_errors_print_one_line_before_any_agent_starts(server, agents):
    (free,) = free_ports(1)
    no_server = (
        ["--server", f"127.0.0.1:{free}"],
        [f"agent {agents[0].address}", "cannot connect", "is it running?"],
    )
    two = ["--server", server, "--clients", 2, "--agent"]
    refused = [
        no_server,
        ([*two, f"127.0.0.1:{free}"], [f"agent 127.0.0.1:{free}", "waystage load agent"]),
        ([*two, server], [f"agent {server}", "not a message of protocol 2"]),
        ([*two, agents[0].address], ["given twice"]),
        (["--server", server, "--agent", agents[1].address], ["--clients 1", "2 agents"]),
        (["--server", server, "--records", "/nowhere"], ["--records"]),
        (["--server", server, "--measure-locally", 5, "--requests", 9], ["--measure-locally", "--test-time"]),
        (["--server", server, "--rate", "many"], ["--rate"]),
        # Again, because a refused run must leave no state behind.
        no_server,
    ]
    for more, words in refused:
        one_line(run_when_free("load", "--agent", agents[0].address, *more), *words)
    one_line(run("load", "--server", server, "--measure-locally", 5), "--agent")
    one_line(run("load", "agent", "--listen", "nowhere.invalid:1"), "--listen")
    one_line(run("load", "agent", "--listen", agents[0].address), "--listen", agents[0].address)


def said(agent, *lines):
    """Return an agent's replies to these lines, until it closes the connection."""
    host, port = agent.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"".join(line + b"\n" for line in lines))
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read().decode()


def test_an_agent_refuses_other_protocols(agents):
    agent = agents[0]
    answer = said(agent, b'{"hello":{"protocol":99,"version":"7.7.7"}}')
    assert (
        answer.count("\n") == 1 and "protocol 99" in answer and "7.7.7" in answer and "protocol 2" in answer
    )
    assert "not a message" in said(agent, b"GET / HTTP/1.1")
    assert "unexpected message" in said(agent, b'{"start":{"at_clock_ns":1}}')
    version = run("--version").stdout.split()[1].encode()
    hello = b'{"hello":{"protocol":2,"version":"%s"}}' % version
    refused = [
        ("--bananas", "--bananas"),
        ("--json-out-file=/tmp/x", "--json-out-file"),
        ("--clients=0", "--clients"),
        # 100 clients with values of 1 GiB.
        ("--data-size=1g --clients=100", "--memory"),
    ]
    for argument, word in refused:
        prepare = json.dumps({"prepare": {"arguments": ["--server=127.0.0.1:1", *argument.split()]}}).encode()
        greeting, error = said(agent, hello, prepare).splitlines()
        assert "hello" in json.loads(greeting) and word in json.loads(error)["error"]["line"]


def test_a_secret_is_needed_on_both_sides(server, tmp_path):
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("correct horse battery staple\n")
    other.write_text("correct horse battery stable\n")
    with program("load", "agent", "--listen", "127.0.0.1:0", "--secret-file", secret) as agent:
        load = arguments(server, [agent], "--requests", 50)
        one_line(run_when_free(*load), agent.address, "needs the secret", "--secret-file")
        one_line(run_when_free(*load, "--secret-file", other), "does not have the agent's secret")
        result = run_when_free(*load, "--secret-file", secret)
        assert "50 " in result.stdout and result.returncode == 0, result
        command = [str(WAYSTAGE), *map(str, load)]
        environment = {**os.environ, "WAYSTAGE_AGENT_SECRET": secret.read_text()}
        result = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
        assert result.returncode == 0, result
    one_line(run("load", "agent", "--secret-file", tmp_path / "none"), "--secret-file", "none")
    other.write_text("short")
    one_line(run("load", "agent", "--secret-file", other), "--secret-file", "5 bytes")
    one_line(run("load", "agent", "--listen", "0.0.0.0:0"), "0.0.0.0:0", "--secret-file", "--insecure")
    one_line(run("load", "--server", server, "--agent", "192.0.2.1:7411"), "192.0.2.1:7411", "--insecure")
    for value in ("lots", "-1", ""):
        one_line(run("load", "agent", f"--memory={value}"), "--memory")


FORGED = "\x1b[2J\rwaystage: done\nVALID\u202e"


def test_what_a_peer_sends_is_escaped_on_both_terminals(server, agents):
    prepare = {"prepare": {"arguments": [f"--server={FORGED}", FORGED]}}
    version = run("--version").stdout.split()[1]
    hello = {"hello": {"protocol": 2, "version": version}}
    said(agents[0], *(json.dumps(one).encode() for one in (hello, prepare)))
    lines = [agents[0].stderr.readline() for _ in range(2)]
    assert "prepares: " in lines[0] and all(line.startswith("127.0.0.1:") for line in lines), lines
    with socket.create_server(("127.0.0.1", 0)) as liar:
        address = f"127.0.0.1:{liar.getsockname()[1]}"
        command = [str(WAYSTAGE), "load", "--server", server, "--agent", address]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as controller:
            connection, _ = liar.accept()
            with connection:
                connection.sendall(json.dumps({"error": {"line": FORGED}}).encode() + b"\n")
                out, errors = controller.communicate(timeout=60)
    assert out == "" and len(errors.splitlines()) == 1, errors
    for text in (*lines, errors):
        assert not set(text.rstrip("\n")) & set("\x1b\r\n\u202e") and "\\u{202e}" in text, text


def test_an_agent_limits_the_length_of_a_line(agents):
    host, port = agents[0].address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=20) as connection,
        # The agent closes the connection long before all of this is sent.
        pytest.raises((BrokenPipeError, ConnectionResetError)),
    ):
        connection.sendall(b"x" * (64 << 20))
    assert "not a message" in said(agents[0], b"?")
