"""Hosts and the processes on them: starts them, waits until they are ready, and stops all of them in every case.

Step 3 of an experiment. Knows nothing of results. The assignment maps roles to hosts; a testbed knows no roles.
"""

from waylab.testbed.hosts import Host, Testbed
from waylab.testbed.machine import Feature, Machine
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.programs import Programs, find_programs
from waylab.testbed.requirements import check_requirements, cores_described, open_testbed, used_hosts
from waylab.testbed.run_database import COUNTERS, RunDatabase
from waylab.testbed.systems import RunningSystem, programs_of, register_system, running_system

__all__ = [
    "COUNTERS",
    "Feature",
    "Host",
    "Machine",
    "Process",
    "Programs",
    "RunDatabase",
    "RunningSystem",
    "Testbed",
    "TestbedError",
    "check_requirements",
    "cores_described",
    "find_programs",
    "open_testbed",
    "programs_of",
    "register_system",
    "running_system",
    "used_hosts",
]
