"""A client in Go and one in JavaScript: their own tests and every method, with memcached and through the proxy.

Behind the proxy there is one memcached, or three with the default configuration. Every difference is listed here, with
its reason.
"""

import json
import os
import re
from itertools import zip_longest

import pytest
from client_suites import (
    CLIENTS,
    DIRECT,
    addresses,
    gomemcache_folder,
    gomemcache_tests,
    mocha,
    must,
    node_memcached_folder,
    run,
)
from test_clients import DISCIPLINES

BEHIND = [1, 3]
# The servers behind the proxy, and its arguments, for the transcripts. WAYSTAGE_CLIENTS=all adds all disciplines.
PROXIES = [(1, []), (3, [])]
if os.environ.get("WAYSTAGE_CLIENTS") == "all":
    PROXIES += [
        (3, ["--loops", loops, "--dispatch", *DISCIPLINES[name]])
        for name in ("pipelined", "per-backend", "shared")
        for loops in (1, 2)
    ]

# Tests of gomemcache that are skipped with memcached and pass through the proxy.
GO_PASS_THROUGH_PROXY_ONLY = {"TestTLS": "Debian's memcached is built without TLS"}
# The tests of gomemcache that use a server. The others test the client alone, or the server of its own.
GO_USE_A_SERVER = {"TestLocalhost", "TestUnixSocket", "TestTLS"}

# Tests of the npm package memcached: the number of those that run here, and those that do not.
JAVASCRIPT_RUN = 38
JAVASCRIPT_NOT_RUN = {
    "of the client alone: no server listens": [
        "should call the callback only once if theres an error",
        "should remove a failed server",
        "should properly schedule failed server retries",
        "should properly schedule server reconnection attempts",
        "should reset failures after reconnecting to failed server",
    ],
    "of the client alone: they connect to an address of another network": [
        "should return error on connection timeout",
        "should reset failures if all failures do not occur within failuresTimeout ms",
    ],
    "of the client alone: its default port, 11211": [
        "should default to port 11211",
        "should not create multiple connections with no port",
    ],
    "a value that expires in one second, which for memcached is the next tick of its clock": [
        "changes lifetime"
    ],
}

# Lines of the transcripts with memcached, the line through the proxy, and why.
GO_DIFFERENCES: dict[str, tuple[str, str]] = {}
NO_ITEMS = "the proxy stores no items"
JAVASCRIPT_DIFFERENCES = {
    "slabs, of items: true": ("slabs, of items: false", NO_ITEMS),
    "items, of items: true": ("items, of items: false", NO_ITEMS),
    "statsItems, of items: true": ("statsItems, of items: false", NO_ITEMS),
    "cachedump, items: true": ("cachedump, items: false", NO_ITEMS),
}


# Methods that clients do not call: the package exports them for itself and its tests.
JAVASCRIPT_INTERNAL = """
    buffer command connect connectionIssue delegateCallback makeCallback multi rawDataReceived
""".split()


def differences(direct, proxied):
    """Return the lines that differ, by their text with memcached."""
    pairs = zip_longest(direct.splitlines(), proxied.splitlines())
    return {line: other for line, other in pairs if line != other}


def without_reasons(expected):
    return {line: other for line, (other, _) in expected.items()}


@pytest.fixture(scope="session")
def gomemcache():
    return gomemcache_folder()


@pytest.fixture(scope="session")
def node_memcached():
    return node_memcached_folder()


@pytest.fixture(scope="session")
def gomemcache_direct(gomemcache):
    return gomemcache_tests(gomemcache, DIRECT)


@pytest.fixture(scope="session")
def node_memcached_direct(node_memcached):
    return javascript_suite(node_memcached, DIRECT)


def javascript_suite(folder, behind):
    excluded = "|".join(re.escape(title) for titles in JAVASCRIPT_NOT_RUN.values() for title in titles)
    with addresses(behind, count=3) as started:
        return mocha(folder, started, "--grep", excluded, "--invert")


@pytest.mark.parametrize("behind", BEHIND)
def test_gomemcache_passes_its_own_tests_as_with_memcached(gomemcache, gomemcache_direct, behind):
    proxied = gomemcache_tests(gomemcache, behind)
    assert proxied.keys() == gomemcache_direct.keys() >= GO_USE_A_SERVER
    assert set(proxied.values()) == {"PASS"}
    missed = {name for name, outcome in gomemcache_direct.items() if outcome != "PASS"}
    assert missed <= GO_PASS_THROUGH_PROXY_ONLY.keys()
    assert {gomemcache_direct[name] for name in missed} <= {"SKIP"}


@pytest.mark.parametrize("behind", BEHIND)
def test_the_npm_package_memcached_passes_its_own_tests_as_with_memcached(
    node_memcached, node_memcached_direct, behind
):
    proxied = javascript_suite(node_memcached, behind)
    assert proxied == node_memcached_direct
    assert proxied["failures"] == [] and len(proxied["passes"]) == JAVASCRIPT_RUN


def test_every_test_of_the_npm_package_runs_or_has_a_reason_why_not(node_memcached):
    excluded = [title for titles in JAVASCRIPT_NOT_RUN.values() for title in titles]
    listed = mocha(node_memcached, ["127.0.0.1:1"], "--dry-run")["passes"]
    for title in excluded:
        assert sum(name.endswith(title) for name in listed) == 1, title
    assert len(listed) - len(excluded) == JAVASCRIPT_RUN


def test_the_packages_are_pinned_by_their_contents_and_come_from_any_registry():
    lock = json.loads((CLIENTS / "javascript" / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages and all("integrity" in package and "resolved" not in package for package in packages)


@pytest.fixture(scope="session")
def go_transcript(gomemcache):
    def play(behind, flags=()):
        with addresses(behind, *flags) as started:
            return must(run([gomemcache / "transcript", *started]))

    return play, play(DIRECT)


@pytest.fixture(scope="session")
def javascript_transcript(node_memcached):
    def play(behind, flags=()):
        with addresses(behind, *flags, count=3) as started:
            return must(run(["node", "transcript.js", ",".join(started)], cwd=node_memcached))

    return play, play(DIRECT)


def not_called(transcript, source, internal):
    """Return the methods of a client, which a line of the transcript lists, that do not occur in its source."""
    (methods,) = [line for line in transcript.splitlines() if line.startswith("methods: ")]
    text = (CLIENTS / source).read_text()
    names = set(methods.split()[1:]) - set(internal)
    return {name for name in names if not re.search(rf"\.{name}\b|'{name}'", text)}


def test_the_transcripts_call_every_method(go_transcript, javascript_transcript):
    assert not_called(go_transcript[1], "go/transcript.go", []) == set()
    assert not_called(javascript_transcript[1], "javascript/transcript.js", JAVASCRIPT_INTERNAL) == set()


@pytest.mark.parametrize(("behind", "flags"), PROXIES)
def test_every_method_of_gomemcache_returns_the_same(go_transcript, behind, flags):
    play, direct = go_transcript
    assert len(direct.splitlines()) > 150
    assert differences(direct, play(behind, flags)) == without_reasons(GO_DIFFERENCES)


@pytest.mark.parametrize(("behind", "flags"), PROXIES)
def test_every_method_of_the_npm_package_returns_the_same(javascript_transcript, behind, flags):
    play, direct = javascript_transcript
    assert len(direct.splitlines()) > 150
    assert differences(direct, play(behind, flags)) == without_reasons(JAVASCRIPT_DIFFERENCES)
