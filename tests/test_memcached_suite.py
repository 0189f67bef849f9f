"""memcached's own test files, of the version that the proxy imitates, with a proxy in front of the memcached.

The files are in no Debian package: apt fetches memcached's source once, and it is kept with what is built.
`tests/memcached/MemcachedTest.pm` replaces the module with which they start a server.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile

import pytest
from programs import MEMCACHED, ROOT, WAYSTAGE, find, need

VERSION = "1.6.18"
ARCHIVE = f"memcached_{VERSION}.orig.tar.xz"
ARCHIVE_SHA256 = "35872bd25f8d29d7cc2072d23e74344530891bfd0aa4f4f64184a8ae7291164b"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Every test file of memcached is in one of the two lists.
RUN = """
    64bit binary-get bogus-commands cas chunked-items dash-M evictions expirations flags flush-all getandtouch getset
    incrdecr issue_104 issue_108 issue_14 issue_152 issue_163 issue_183 issue_192 issue_29 issue_3 issue_41 issue_42
    issue_61 issue_68 issue_70 item_size_max lru malicious-commands metaget multiversioning noreply quit
    strtol-testing touch
""".split()
NOT_RUN = {
    "of the server's process, options and sockets": """
        00-startup daemonize issue_67 misbehave shutdown unixsocket conn-limits idle-timeout
        maxconns restart""",
    "of the server's memory": """
        dyn-maxbytes lru-crawler lru-maintainer slabhang slabs-reassign-chunked slabs-reassign2 slabs_reassign""",
    "of the server's statistics, which the proxy has too": "issue_22 stats stats-conns stats-detail",
    "of the binary protocol, UDP, passwords and logging, which the proxy does not have": """
        ascii-auth binary binary-extstore binary-sasl issue_50 udp watcher watcher_connid""",
    "of extstore, TLS and memcached's own proxy, which Debian's memcached does not have": """
        chunked-extstore error-extstore extstore extstore-buckets extstore-jbod proxy ssl_cert_refresh ssl_ports
        ssl_proto_version ssl_session_resumption ssl_settings ssl_verify_modes""",
    "switched off by memcached, or of its source": "issue_140 issue_260 line-lengths refhang whitespace",
}


def debian_sources():
    """Return the machine's own Debian repositories as repositories of sources."""
    listed = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Identifier: Packages",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    repositories = {tuple(line.split()) for line in listed.stdout.splitlines()}
    return "".join(
        f"Types: deb-src\nURIs: {uri}\nSuites: {suite}\nComponents: {component}\nSigned-By: {KEYRING}\n\n"
        for uri, suite, component in sorted(repositories)
        if component == "main" and uri.rstrip("/").endswith(("/debian", "/debian-security"))
    )


def fetch(folder):
    """Fetch the source with apt, which has files of its own for this, so that the machine's are not changed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "memcached.sources").write_text(debian_sources())
    options = {
        "Dir::Etc::sourcelist": folder / "memcached.sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Retries": 3,
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    for command in (["update"], ["source", "--download-only", "memcached"]):
        result = subprocess.run(
            [*apt, *command], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        if result.returncode != 0:
            return result.stderr
    return None if (folder / ARCHIVE).exists() else f"apt has another version than {VERSION}"


@pytest.fixture(scope="session")
def source():
    """Return the folder of memcached's source, with our module among its tests."""
    need(
        "memcached", "perl", "apt-get", instead="the transcripts and the differential test cover the protocol"
    )
    folder = ROOT / "target" / "peers" / "memcached"
    archive = folder / ARCHIVE
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if failure := fetch(folder):
            assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, failure
            pytest.skip("memcached's source cannot be fetched; the differential test covers the protocol")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == ARCHIVE_SHA256, f"{archive}: not what it was"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    unpacked = folder / f"memcached-{VERSION}"
    shutil.copy(ROOT / "tests" / "memcached" / "MemcachedTest.pm", unpacked / "t" / "lib")
    return unpacked


@pytest.mark.parametrize("name", RUN)
def test_a_file_of_memcached_passes_through_the_proxy(source, name):
    memcached = [find(MEMCACHED[0]), *MEMCACHED[1:]]
    # Long timeouts: the machine may be busy.
    proxy = [WAYSTAGE, "proxy", "--listen", "127.0.0.1:0", "--backend-timeout", "60s", "--server"]
    environment = {
        **os.environ,
        "MEMCACHED": "\n".join(memcached),
        "WAYSTAGE": "\n".join(map(str, proxy)),
    }
    result = subprocess.run(
        ["perl", f"t/{name}.t"],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )
    lines = result.stdout.splitlines()
    failed = [line for line in lines if line.startswith("not ok")]
    assert result.returncode == 0 and not failed, f"{failed[:5]}\n{result.stderr[-3000:]}"
    assert any(line.startswith("ok") for line in lines), result.stdout


def test_every_file_of_memcached_is_run_or_has_a_reason_why_not(source):
    names = sorted(path.stem for path in (source / "t").glob("*.t"))
    assert sorted([*RUN, *" ".join(NOT_RUN.values()).split()]) == names
