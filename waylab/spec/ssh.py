"""Checks of experiments on other machines (`testbed.kind = "ssh"`). ValueError names the key that is refused."""

import re
from dataclasses import fields

from waylab.spec.hosts import HostSettings, TestbedSettings
from waylab.spec.schema import MACHINE_SPEED, Spec, TrialSettings

# The keys of a host that describe a machine that exists; all others describe one to emulate.
_REAL = ("ssh", "address", "folder")
# As ssh takes it. A destination that begins with a dash would be an option of ssh.
_DESTINATION = re.compile(r"[A-Za-z0-9_][^\s'\"\\]{0,254}")
_FOLDER = re.compile(r"/[A-Za-z0-9_./+-]{0,200}")


def check_ssh(spec: Spec) -> None:
    """Check the testbed of a specification."""
    if spec.testbed.kind != "ssh":
        return
    default = TestbedSettings()
    for name in ("pinning", "oversubscribe", "time_scale", "links"):
        if getattr(spec.testbed, name) != getattr(default, name):
            raise ValueError(f'testbed.{name}: is only for emulated hosts, not for testbed.kind = "ssh"')
    if spec.design.covariate == MACHINE_SPEED:
        raise ValueError(
            'design.covariate: is not measured on other machines; leave it out with testbed.kind = "ssh"'
        )
    known: dict[str, str] = {}
    for name, host in spec.testbed.hosts.items():
        _check_host(name, host)
        if host.ssh in known:
            raise ValueError(
                f"testbed.hosts.{name}.ssh = {host.ssh!r}: is the host {known[host.ssh]}; use that name for both"
            )
        known[host.ssh] = name


def check_ssh_settings(testbed: TestbedSettings, settings: TrialSettings) -> None:
    """Check the settings of one combination."""
    if testbed.kind != "ssh":
        return
    system = settings.system
    if not system.under_test.runs_over_ssh:
        raise ValueError(
            f"system.kind = {system.under_test.name!r}: does not run over SSH; "
            'set it to "proxy" or "direct", or use another testbed'
        )
    if system.backends.server != "embedded":
        raise ValueError(
            'system.backends.server: set it to "embedded"; memcached is not started over SSH yet'
        )


def _check_host(name: str, host: HostSettings) -> None:
    key = f"testbed.hosts.{name}"
    if not host.ssh:
        raise ValueError(f'{key}.ssh: is missing; it is the destination for ssh, for example "user@machine"')
    if not _DESTINATION.fullmatch(host.ssh):
        raise ValueError(
            f"{key}.ssh = {host.ssh!r}: should be a destination for ssh, for example user@machine"
        )
    if host.folder and not _FOLDER.fullmatch(host.folder):
        raise ValueError(f"{key}.folder = {host.folder!r}: should be an absolute path without spaces")
    for part in fields(host):
        if part.name not in _REAL and getattr(host, part.name) not in (None, "", False):
            raise ValueError(f'{key}.{part.name}: describes an emulated host; leave it out with kind = "ssh"')
