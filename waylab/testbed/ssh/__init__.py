"""The testbed `ssh`: other machines, which the lab reaches through the system's OpenSSH client (docs/ssh.md)."""

from waylab.testbed.ssh.testbed import SshTestbed

__all__ = ["SshTestbed"]
