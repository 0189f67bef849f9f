"""The systems that a trial can run, one file for each. Only this folder and `spec/systems` know their names.

Each class here has a descriptive half in the file of the same name in `spec/systems`.
"""

from dataclasses import replace
from pathlib import Path

from waylab.plan import Trial
from waylab.spec import SystemUnderTest, systems
from waylab.testbed.hosts import Testbed
from waylab.testbed.programs import Programs, find_programs, require_version
from waylab.testbed.run_database import RunDatabase
from waylab.testbed.systems.database import RunningDatabaseSystem
from waylab.testbed.systems.direct import RunningDirectSystem
from waylab.testbed.systems.messages import RunningMessagesSystem
from waylab.testbed.systems.nutcracker import RunningNutcrackerSystem
from waylab.testbed.systems.proxy import RunningProxySystem
from waylab.testbed.systems.running import RunningSystem

_running: dict[str, type[RunningSystem]] = {
    "proxy": RunningProxySystem,
    "nutcracker": RunningNutcrackerSystem,
    "direct": RunningDirectSystem,
    "messages": RunningMessagesSystem,
    "database": RunningDatabaseSystem,
}


def register_system(described: SystemUnderTest, running: type[RunningSystem]) -> None:
    """Register both halves of a system."""
    systems.register(described)
    _running[described.name] = running


def running_system(
    trial: Trial, programs: Programs, directory: Path, testbed: Testbed, database: RunDatabase | None = None
) -> RunningSystem:
    """Return the system of a trial as a context."""
    return _running[trial.system.kind](trial, programs, directory, testbed, database)


def programs_of(trials: tuple[Trial, ...]) -> Programs:
    """Find the programs that the trials of a plan need."""
    needs: set[str] = set()
    servers: set[str] = set()
    for trial in trials:
        needs |= _running[trial.system.kind].needs
        roles = trial.system.programs(trial.assignment.generators)
        servers |= {trial.system.backends.server} if "backends" in roles else set()
        needs |= {"postgres"} if "database" in roles else set()
    versions = {trial.system.program: Path(trial.system.program) for trial in trials if trial.system.program}
    for path in versions.values():
        require_version(path)
    return replace(find_programs(servers, frozenset(needs)), versions=versions)


__all__ = ["RunningSystem", "programs_of", "register_system", "running_system"]
