"""The system `direct`: load and memcached servers, with nothing in between."""

from waylab.spec.systems.key_value import BACKENDS_SHOWN, KeyValueSystem
from waylab.spec.systems.under_test import Shown, System


class DirectSystem(KeyValueSystem):
    """Memcached servers that the load generators reach themselves."""

    name = "direct"
    runs_over_ssh = True

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """Backends alone; no more than there are load generators, if each generator uses one."""
        count = system.backends.count
        return {"backends": min(count, generators) if system.direct_to == "one" else count}

    def load_reaches(self, system: System) -> str:
        """One server for each generator, or all servers by key, as the specification sets it."""
        return system.direct_to

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """A single embedded server leaves a file: records distinguish a generator's ports, but not its servers."""
        alone = self.programs(system, generators)["backends"] == 1
        return {"load": generators, **({"cache": 1} if alone else {})}

    def shown(self, system: System) -> Shown:
        """The threads of each server."""
        return {"backends": BACKENDS_SHOWN}
