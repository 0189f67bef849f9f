"""The system `external`: programs that already run; the lab only checks that they accept connections."""

from functools import partial

from waylab.testbed.processes import TestbedError
from waylab.testbed.role import accepts
from waylab.testbed.systems.own import RunningOwnSystem


class RunningExternalSystem(RunningOwnSystem):
    """Addresses, and nothing to start or stop."""

    @property
    def server(self) -> str:
        """Unknown: the lab did not start it."""
        return "external"

    def start_servers(self) -> list[str]:
        """Return the addresses after each accepted a connection from the host of the load."""
        addresses = list(self.trial.system.addresses)
        for address in addresses:
            if not self.host_of("load").inside(partial(_accepts, address)):
                raise TestbedError(
                    f"system.addresses: {address} accepts no connection; start its program first"
                )
        return addresses

    def values_of_roles(self) -> dict[str, object]:
        """None: there are no roles."""
        return {}


def _accepts(address: str) -> bool:
    name, _, port = address.rpartition(":")
    return accepts(name.strip("[]"), int(port))
