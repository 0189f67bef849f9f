"""The systems that specifications can name, each with its descriptive half. The other half is `testbed/systems`."""

from waylab.spec.systems.command import CommandSystem
from waylab.spec.systems.database import DatabaseSystem
from waylab.spec.systems.direct import DirectSystem
from waylab.spec.systems.external import ExternalSystem
from waylab.spec.systems.messages import MessagesSystem
from waylab.spec.systems.nutcracker import NutcrackerSystem
from waylab.spec.systems.proxy import ProxySystem
from waylab.spec.systems.under_test import System, SystemUnderTest, register, unregister

for _system in (
    *(ProxySystem(), NutcrackerSystem(), DirectSystem(), MessagesSystem(), DatabaseSystem()),
    *(CommandSystem(), ExternalSystem()),
):
    register(_system)

__all__ = ["System", "SystemUnderTest", "register", "unregister"]
