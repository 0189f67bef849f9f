"""Hosts, and processes that come up on them, are ready, and go away again whatever happens.

Knows nothing of results. Which role runs on which host is the assignment; a testbed knows no roles.
"""

from waylab.testbed.database import COUNTERS, Database
from waylab.testbed.fitting import check_fits, cores_described, open_testbed, used_hosts
from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.machine import Finding, Machine
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.programs import Programs, find_programs
from waylab.testbed.systems import RunningSystem, programs_of, register_system, running_system

__all__ = [
    "COUNTERS",
    "Database",
    "Finding",
    "Host",
    "Machine",
    "Process",
    "Programs",
    "RunningSystem",
    "Testbed",
    "TestbedError",
    "check_fits",
    "cores_described",
    "find_programs",
    "open_testbed",
    "programs_of",
    "register_system",
    "running_system",
    "used_hosts",
]
