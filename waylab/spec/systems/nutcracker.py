"""The system `nutcracker`: load, twemproxy, memcached servers. twemproxy reports no stages."""

from waylab.spec.settings import Load
from waylab.spec.systems.key_value import BACKENDS_SHOWN, KeyValueSystem
from waylab.spec.systems.under_test import Shown, System


class NutcrackerSystem(KeyValueSystem):
    """twemproxy in the place of `waystage proxy`."""

    name = "nutcracker"

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse replicas."""
        if system.proxy.replica_count(system.backends.count) > 1:
            raise ValueError(
                f'system.proxy.replicas = {system.proxy.replicas}: system.kind = "nutcracker" keeps one replica'
            )
        super().check(system, load, generators)

    def titles(self) -> dict[str, str]:
        """The role is called as the program."""
        return {"proxy": "nutcracker"}

    def shown(self, system: System) -> Shown:
        """Loops, of which twemproxy has one."""
        return {"proxy": [["loops", "system.proxy.loops"]], "backends": BACKENDS_SHOWN}
