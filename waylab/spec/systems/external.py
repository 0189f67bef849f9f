"""The system `external`: addresses of programs that already run, and that the lab never starts or stops."""

from waylab.spec.settings import Load
from waylab.spec.systems.command import OwnSystem
from waylab.spec.systems.under_test import System


class ExternalSystem(OwnSystem):
    """Programs of somebody else; the lab knows their addresses only."""

    name = "external"

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """None that the lab starts."""
        return {}

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse a system without an address, and roles."""
        if not system.addresses:
            raise ValueError(
                'system.addresses: is missing; system.kind = "external" needs it, for example ["10.0.0.7:11211"]'
            )
        if system.roles or system.target:
            raise ValueError(
                'system.roles: needs system.kind = "command"; the lab does not start external programs'
            )
        super().check(system, load, generators)
