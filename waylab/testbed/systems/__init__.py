"""The systems that a trial can run, one file for each. Only this folder and `spec/systems` know their names.

Each class here has a descriptive half in the file of the same name in `spec/systems`.
"""

from dataclasses import replace
from pathlib import Path

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.spec import SystemUnderTest, systems
from waylab.spec.roles.placeholders import words
from waylab.spec.roles.settings import GeneratorSettings, Role
from waylab.testbed.command_load import ADAPTERS
from waylab.testbed.hosts import Testbed
from waylab.testbed.programs import Programs, find_command, find_programs, require_version
from waylab.testbed.run_database import RunDatabase
from waylab.testbed.systems.command import RunningCommandSystem
from waylab.testbed.systems.database import RunningDatabaseSystem
from waylab.testbed.systems.direct import RunningDirectSystem
from waylab.testbed.systems.external import RunningExternalSystem
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
    "command": RunningCommandSystem,
    "external": RunningExternalSystem,
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
    return replace(
        find_programs(servers, frozenset(needs)),
        versions=versions,
        commands=find_commands(trials),
        version_arguments=_version_arguments(trials),
    )


def _version_arguments(trials: tuple[Trial, ...]) -> dict[str, list[str]]:
    parts = list[Role | GeneratorSettings]()
    for trial in trials:
        parts += [*trial.system.roles.values(), trial.system.generator]
    return {part.program: words(part.version) for part in parts if part.version}


def find_commands(trials: tuple[Trial, ...]) -> dict[str, Path]:
    """Find the programs of roles and generators; LabError names the key of the first that is not there.

    Also refuses an adapter that does not exist, before anything is started.
    """
    found: dict[str, Path] = {}
    for trial in trials:
        wanted = {f"system.roles.{name}.program": role.program for name, role in trial.system.roles.items()}
        wanted["system.generator.program"] = trial.system.generator.program
        for key, program in wanted.items():
            if program and program not in found:
                found[program] = find_command(program, key)
        adapter = trial.system.generator.adapter
        if adapter and adapter not in ADAPTERS:
            raise LabError(
                f"system.generator.adapter = {adapter!r}: is unknown; known: {', '.join(ADAPTERS)}"
            )
    return found


__all__ = ["RunningSystem", "programs_of", "register_system", "running_system"]
