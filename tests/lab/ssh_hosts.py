"""Hosts for tests of the testbed `ssh`: real sshd's on loopback addresses, with throw-away keys and their own clocks.

As root, every host has a CLOCK_MONOTONIC of its own (a time namespace), hours away from that of this machine.
"""

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_KEYGEN = shutil.which("ssh-keygen")
_STARTED_WITHIN_S = 30.0
_SECONDS_APART = 40_000
_SERVER = """
Port {port}
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {public}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
MaxSessions 1
AllowTcpForwarding no
"""
_CLIENT = """
Host {name}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
"""


def can_run_hosts() -> bool:
    """Return whether this machine has sshd; with WAYSTAGE_REQUIRE_PEERS it must."""
    required = os.environ.get("WAYSTAGE_REQUIRE_PEERS")
    assert SSHD or not required, "openssh-server is not installed"
    return bool(SSHD and _KEYGEN and shutil.which("ssh"))


@dataclass
class SshServer:
    """One host: its name for ssh, its address, and its server."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    folder: Path

    def end(self) -> None:
        """End the server with all its connections, as if the host went away."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        sshds = [child for child in children if "sshd" in child.name()]
        for one in (*sshds, self.process):
            one.kill()
        self.process.wait()

    def left(self) -> list[str]:
        """Return what the lab has left in the host's folder for files."""
        return [path.name for path in self.folder.iterdir()]


class SshServers:
    """Several hosts, and a `ssh` that knows them: put `bin` at the beginning of PATH."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        key = folder / "key"
        subprocess.run([str(_KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        config = folder / "ssh_config"
        real = shutil.which("ssh")
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {real} -F {config} "$@"\n')
        wrapper.chmod(0o755)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.hosts: dict[str, SshServer] = {}
        self._ports: dict[str, int] = {}
        text = ""
        for index, name in enumerate(names):
            address = f"127.0.0.{index + 2}"
            self._ports[name] = free_port(address)
            text += _CLIENT.format(
                name=name, address=address, port=self._ports[name], user=getpass.getuser(), key=key
            )
            self.start(name, index)
        config.write_text(text)

    def start(self, name: str, index: int) -> None:
        """Start the server of a host, also again after it was ended."""
        address, port = f"127.0.0.{index + 2}", self._ports[name]
        files = self.folder / f"files-{name}"
        files.mkdir(exist_ok=True)
        described = self.folder / f"sshd-{name}"
        key = self.folder / "key"
        described.write_text(_SERVER.format(port=port, address=address, key=key, public=f"{key}.pub"))
        command = [str(SSHD), "-D", "-e", "-f", str(described)]
        if os.geteuid() == 0:
            seconds = _SECONDS_APART * (index + 1)
            command = ["unshare", "--time", f"--monotonic={seconds}", "--fork", "--kill-child", *command]
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.hosts[name] = SshServer(name, address, process, files)
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while not _answers(address, port):
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.05)

    def end(self) -> None:
        """End all servers."""
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.end()


def free_port(address: str) -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
