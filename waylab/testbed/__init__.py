"""Processes that come up, are ready, and go away again whatever happens. Knows nothing of results."""

from waylab.testbed.local import LocalTestbed
from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.programs import Programs, find_programs

__all__ = ["LocalTestbed", "Process", "Programs", "TestbedError", "find_programs"]
