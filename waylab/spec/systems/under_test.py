"""The descriptive half of a system: its roles, the check of its settings, its description in the run folder.

It is in `spec`, which may not import `testbed`, because experiments are also checked and planned where nothing can run.
The running half, in `testbed/systems`, starts and stops the same system.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

from waylab.runfolder.run import SystemDescription
from waylab.runfolder.trial_numbers import STAGES
from waylab.spec.checks import one_of, setting, text
from waylab.spec.roles.settings import GeneratorSettings, Role, addresses
from waylab.spec.settings import Backends, Database, Load, Messages, Proxy

# Label and dotted key of the settings that drawings show, by role.
Shown = dict[str, list[list[str]]]

_registered: dict[str, "SystemUnderTest"] = {}


def register(system: "SystemUnderTest") -> None:
    """Make a system known, so that specifications can name it."""
    _registered[system.name] = system


def unregister(name: str) -> None:
    """Forget a system."""
    del _registered[name]


def _registered_name(value: object) -> str:
    return one_of(*_registered)(value)


@dataclass(frozen=True)
class System:
    """The system under test: its name, and the settings of every part that it may have."""

    kind: str = setting(_registered_name, "proxy")
    direct_to: str = setting(one_of("one", "all"), "one")
    # The `waystage` that runs the parts of the system; the load generator is always the one that the lab finds.
    program: str = setting(text, "")
    backends: Backends = field(default_factory=Backends)
    proxy: Proxy = field(default_factory=Proxy)
    messages: Messages = field(default_factory=Messages)
    database: Database = field(default_factory=Database)
    # Of a system that the specification describes itself, in the order in which they start.
    roles: dict[str, Role] = field(default_factory=dict, metadata={"named": Role})
    # The role that the load reaches; empty: the one that starts last.
    target: str = setting(text, "")
    # Of a system that already runs.
    addresses: tuple[str, ...] = setting(addresses, ())
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)

    @property
    def under_test(self) -> "SystemUnderTest":
        """The system of that name."""
        return _registered[self.kind]

    def resolved(self) -> "System":
        """Return the system with `half` and `full` replaced by the number of replicas."""
        replicas = self.proxy.replica_count(self.backends.count)
        return replace(self, proxy=replace(self.proxy, replicas=replicas))

    def programs(self, generators: int) -> dict[str, int]:
        """Return the number of programs of each role beside the load, in the order in which a request passes them."""
        return self.under_test.programs(self, generators)


class SystemUnderTest(ABC):
    """A system as specifications, plans and run folders describe it. One object for all trials; keeps no state."""

    # The value of `system.kind` in a specification.
    name: ClassVar[str]
    # The protocol of the load: "memcached" or "messages".
    protocol: ClassVar[str] = "memcached"
    # The word for the programs between the load and the servers.
    middle: ClassVar[str] = "proxy"
    # The program whose records have the times of the stages; None when no program of the system records them.
    stage_program: ClassVar[str | None] = None
    # Operations, as records name them, whose stages a report shows separately.
    operations: ClassVar[tuple[str, ...]] = ()
    # Whether the lab can start it on machines that it reaches through SSH: nothing but `waystage` is installed there.
    runs_over_ssh: ClassVar[bool] = False
    # Whether a read that finds nothing is a fault of the trial.
    hit_ratio: ClassVar[bool] = True

    @abstractmethod
    def programs(self, system: System, generators: int) -> dict[str, int]:
        """Return the number of programs of each role beside the load, in the order in which a request passes them."""

    @abstractmethod
    def check(self, system: System, load: Load, generators: int) -> None:
        """Check the settings of one trial against each other; ValueError names those that contradict each other."""

    def database_connections(self, system: System, load: Load) -> int:
        """Return the number of connections to the database that all programs together open at most."""
        return 0

    def load_reaches(self, system: System) -> str:
        """Return `one` or `all`: the programs of the first role that each load generator connects to."""
        return "all"

    def slows_down(self, system: System) -> dict[str, int]:
        """Return the roles whose programs can slow themselves down, with the number of threads of each."""
        return {}

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """Return the number of record files that each program leaves."""
        return {"load": generators}

    def keeps_order(self, system: System) -> bool:
        """Return whether messages of one sender arrive in the order in which they were sent."""
        return True

    def titles(self) -> dict[str, str]:
        """Return the titles of roles in drawings; the title of backends is the name of their server."""
        return {}

    def shown(self, system: System) -> Shown:
        """Return the settings that drawings show for each role beside the load."""
        return {}

    def describe(self, system: System, generators: int) -> SystemDescription:
        """Return the description of this system with these settings for the run folder."""
        return SystemDescription(
            name=self.name,
            protocol=self.protocol,
            programs=self.programs(system, generators),
            load_reaches=self.load_reaches(system),
            middle=self.middle,
            stage_program=self.stage_program,
            stages=list(STAGES) if self.stage_program else [],
            operations=list(self.operations),
            record_files=self.record_files(system, generators),
            hit_ratio=self.hit_ratio,
            keeps_order=self.keeps_order(system),
            titles=self.titles(),
            shown={"load": [["clients", "load.clients"]], **self.shown(system)},
        )
