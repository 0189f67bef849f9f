"""What the tests of clients in Go and JavaScript need: the clients with their tests, and servers with or without proxy.

The clients come from the registries of their languages, pinned by the lock files in `tests/clients`. They are kept with
what is built.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from programs import MEMCACHED, ROOT, WAYSTAGE, find, free_ports, need
from test_programs import memcached, serving

CLIENTS = ROOT / "tests" / "clients"
KEPT = ROOT / "target" / "peers"
GOMEMCACHE = "github.com/bradfitz/gomemcache"
# In the copy of its source: the address of the server, and a longer timeout of the client, as the machine may be busy.
# One test empties the server, and does not wait until this has happened: it fails now and then, with memcached as well.
FLUSH = r'io.WriteString(c, "flush_all\r\n")'
GOMEMCACHE_CHANGES = [
    (
        "memcache_test.go",
        'const localhostTCPAddr = "localhost:11211"',
        'var localhostTCPAddr = os.Getenv("SERVER")',
    ),
    ("memcache_test.go", FLUSH, f"{FLUSH}\n\tbufio.NewReader(c).ReadString(10)"),
    ("memcache.go", "DefaultTimeout = 500 * time.Millisecond", "DefaultTimeout = 20 * time.Second"),
]
# Neither another toolchain nor a workspace of the machine.
GO_ENVIRONMENT = {"GOTOOLCHAIN": "local", "GOWORK": "off"}
# In the place of the number of servers behind a proxy: no proxy.
DIRECT = 0
# The proxy has its default configuration, but for a long timeout: the machine may be busy.
PROXY = ["--backend-timeout", "60s"]


def run(command: list[object], seconds: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program until it exits."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, **options)


def must(result: subprocess.CompletedProcess[str]) -> str:
    """Return what a program has printed. It must have succeeded."""
    assert result.returncode == 0, f"{result.args}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def fetched(result: subprocess.CompletedProcess[str], client: str) -> str:
    """Return what a program that fetches a client has printed; skip the test if it could not be fetched."""
    if result.returncode != 0:
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, result.stderr
        pytest.skip(f"{client} cannot be fetched; pymemcache and the transcripts cover the protocol")
    return result.stdout


def go(*arguments: object, folder: Path = CLIENTS / "go") -> subprocess.CompletedProcess[str]:
    """Run the go command."""
    return run(["go", *arguments], 600, cwd=folder, env={**os.environ, **GO_ENVIRONMENT})


def replace_once(file: Path, old: str, new: str) -> None:
    """Replace a text in a copied file. It must be there once."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file}: {old!r} is there {text.count(old)} times"
    file.write_text(text.replace(old, new))


def gomemcache_folder() -> Path:
    """Return a folder with two programs: `suite` runs the client's own tests, `transcript` is ours."""
    need("go", "memcached", instead="pymemcache and the transcripts cover the protocol")
    module = json.loads(fetched(go("mod", "download", "-json", GOMEMCACHE), "gomemcache"))
    folder = KEPT / "go"
    source = folder / "gomemcache"
    if source.exists():
        shutil.rmtree(source)
    # The files of the module cache are read-only.
    shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
    for path in [source, *source.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for name, old, new in GOMEMCACHE_CHANGES:
        replace_once(source / "memcache" / name, old, new)
    must(go("test", "-c", "-o", folder / "suite", "./memcache", folder=source))
    must(go("build", "-o", folder / "transcript", "."))
    return folder


def node_memcached_folder() -> Path:
    """Return a folder with the installed packages, our transcript, and a copy of the client with its tests."""
    need("node", "npm", "memcached", instead="pymemcache and the transcripts cover the protocol")
    folder, lock = KEPT / "javascript", CLIENTS / "javascript" / "package-lock.json"
    installed = folder / "installed-lock.json"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(lock.with_name("package.json"), folder)
        shutil.copy(lock, folder)
        command: list[object] = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        fetched(run(command, 300, cwd=folder), "the npm package memcached")
        shutil.copy(lock, installed)
    shutil.copy(CLIENTS / "javascript" / "transcript.js", folder)
    shutil.copytree(folder / "node_modules" / "memcached", folder / "memcached", dirs_exist_ok=True)
    with (folder / "memcached" / "test" / "common.js").open("a") as common:
        common.write("\nexports.servers.multi = process.env.SERVERS.split(',');\n")
        common.write("exports.servers.single = exports.servers.multi[0];\n")
    return folder


@contextmanager
def servers(count: int) -> Iterator[list[str]]:
    """Start this number of memcached servers; yields their addresses."""
    with ExitStack() as stack:
        yield [stack.enter_context(memcached()) for _ in range(count)]


@contextmanager
def addresses(behind: int, *flags: object, count: int = 1) -> Iterator[list[str]]:
    """Yield this number of addresses: of memcached servers (DIRECT), or of a proxy before so many memcached servers."""
    with servers(behind or count) as started:
        if behind == DIRECT:
            yield started
            return
        listening = [f"127.0.0.1:{port}" for port in free_ports(count)]
        words = [word for address in listening for word in ("--listen", address)]
        with serving("proxy", *server_arguments(started), *words, *PROXY, *flags):
            yield listening


def server_arguments(started: list[str]) -> list[str]:
    """Return the arguments with which a proxy uses these servers."""
    return [word for address in started for word in ("--server", address)]


def gomemcache_tests(folder: Path, behind: int) -> dict[str, str]:
    """Run gomemcache's own tests; return PASS, FAIL or SKIP of each, and print what the failed ones say.

    The tests run at the same time and delete everything, so each that starts a server has memcached servers of its own.
    """
    with ExitStack() as stack:
        (server,) = stack.enter_context(addresses(behind))
        for_sockets, for_tls = (stack.enter_context(servers(behind)) for _ in range(2))
        environment = {
            **os.environ,
            "PATH": f"{CLIENTS / 'go' / 'bin'}:{os.environ['PATH']}",
            "SERVER": server,
            "MEMCACHED": find(MEMCACHED[0]) or "memcached",
            "WAYSTAGE": "" if behind == DIRECT else str(WAYSTAGE),
            "UNIX_SERVERS": " ".join([*server_arguments(for_sockets), *PROXY]),
            "TLS_SERVERS": " ".join([*server_arguments(for_tls), *PROXY]),
        }
        result = run([folder / "suite", "-test.v"], cwd=folder / "gomemcache" / "memcache", env=environment)
    print(result.stdout, result.stderr)
    return {name: outcome for outcome, name in re.findall(r"--- (PASS|FAIL|SKIP): (\S+)", result.stdout)}


def mocha(folder: Path, started: list[str], *options: str) -> dict[str, list[str]]:
    """Run the tests of the npm package memcached; return the names of those that passed, and of those that failed."""
    tests = sorted(str(path) for path in (folder / "memcached" / "test").glob("*.test.js"))
    command = ["node", folder / "node_modules" / "mocha" / "bin" / "mocha.js", *tests]
    command += ["--require", "should", "--reporter", "json", "--exit", *options]
    # The deprecation warnings of old packages go to standard error.
    result = run(command, cwd=folder, env={**os.environ, "SERVERS": ",".join(started)})
    assert result.stdout.lstrip().startswith("{"), result.stdout[-3000:] + result.stderr[-3000:]
    report = json.loads(result.stdout)
    for failure in report["failures"]:
        print(failure["fullTitle"], failure["err"])
    return {
        outcome: sorted(test["fullTitle"] for test in report[outcome]) for outcome in ("passes", "failures")
    }
