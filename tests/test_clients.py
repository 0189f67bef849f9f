"""Other projects' clients with the proxy: memccapable of libmemcached, and pymemcache with its own test suite.

memccapable runs in every discipline and with one loop and two, pymemcache in some of these. The suite of pymemcache is
not in its wheel: its source is fetched once, by pip, and kept with what is built.
"""

import hashlib
import itertools
import os
import subprocess
import sys
import tarfile

import pytest
from programs import MEMCACHED, ROOT, missing, need
from test_programs import backend, memcached, serving

DISCIPLINES = {
    "pipelined": ["pipelined"],
    "per-backend": ["per-backend", "--readers", 3, "--writers", 2],
    "shared": ["shared", "--workers", 3],
    "shared-sharded": ["shared", "--workers", 3, "--multi-get", "sharded"],
    "shared-whole": ["shared", "--workers", 3, "--multi-get", "whole"],
}
# pymemcache's suite is slower than memccapable. WAYSTAGE_CLIENTS=all runs it in every combination.
PYMEMCACHE_RUNS = [("pipelined", 1), ("per-backend", 2), ("shared", 2)]
if os.environ.get("WAYSTAGE_CLIENTS") == "all":
    PYMEMCACHE_RUNS = list(itertools.product(DISCIPLINES, [1, 2]))
PYMEMCACHE = "4.0.0"
PYMEMCACHE_SHA256 = "27bf9bd1bbc1e20f83633208620d56de50f14185055e49504f4f5e94e94aff94"
# `stats cachedump` and `cache_memlimit` concern one server; the proxy refuses them. test_touch relies on a value that
# expires in one second, which for memcached is the next tick of its clock.
PYMEMCACHE_WITHOUT = "not test_misc and not test_touch"
# Each test exists with and without a prefix and for three clients, where applicable; the suite itself skips TLS.
PYMEMCACHE_PASSED_MIN = 70


def server():
    """One backend: memcached if it is installed, otherwise the embedded cache."""
    return backend() if missing(MEMCACHED[0]) else memcached()


def first(servers):
    """Return the address of a backend of either kind."""
    return servers if isinstance(servers, str) else servers[0]


def proxy(address, discipline, loops):
    """A proxy with one backend; yields its address and process. Its timeouts are long, because machines may be busy."""
    arguments = [
        "--listen",
        "127.0.0.1:0",
        "--server",
        address,
        "--loops",
        loops,
        "--backend-timeout",
        "60s",
        "--dispatch",
    ]
    return serving("proxy", *arguments, *DISCIPLINES[discipline])


def run(command, **options):
    """Run a client until it exits."""
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.fixture(scope="session")
def pymemcache_source():
    """Return the folder of pymemcache's source, with its tests."""
    kept = ROOT / "target" / "peers"
    archive, folder = kept / f"pymemcache-{PYMEMCACHE}.tar.gz", kept / f"pymemcache-{PYMEMCACHE}"
    if not archive.exists():
        kept.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-binary", ":all:", "--dest", str(kept), f"pymemcache=={PYMEMCACHE}"]
        result = run(command)
        if result.returncode != 0:
            assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, result.stderr
            pytest.skip(
                "the source of pymemcache cannot be fetched; memccapable and the transcripts cover the protocol"
            )
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == PYMEMCACHE_SHA256, (
        f"{archive}: not what it was"
    )
    with tarfile.open(archive) as packed:
        packed.extractall(kept, filter="data")
    return folder


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_memccapable_passes_in_every_discipline(discipline, loops):
    need("memccapable", instead="pymemcache and the transcripts cover the protocol")
    with server() as servers, proxy(first(servers), discipline, loops) as (address, _):
        host, port = address.split(":")
        result = run(["memccapable", "-h", host, "-p", port, "-a"])
    assert result.stdout.count("[pass]") == 27 and "FAIL" not in result.stdout, result.stdout


@pytest.mark.parametrize(("discipline", "loops"), PYMEMCACHE_RUNS)
def test_pymemcache_passes_its_own_tests(pymemcache_source, discipline, loops):
    with server() as servers, proxy(first(servers), discipline, loops) as (address, _):
        host, port = address.split(":")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "pymemcache/test/test_integration.py",
            "-q",
            "-c",
            os.devnull,
        ]
        command += [
            "--rootdir",
            ".",
            "-W",
            "ignore",
            "-p",
            "no:cacheprovider",
            "--server",
            host,
            "--port",
            port,
        ]
        result = run([*command, "-k", PYMEMCACHE_WITHOUT], cwd=pymemcache_source)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = int(result.stdout.split(" passed")[0].split()[-1])
    assert passed >= PYMEMCACHE_PASSED_MIN, result.stdout
