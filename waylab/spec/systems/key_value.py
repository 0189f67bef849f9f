"""The common part of all systems whose load reads and writes keys of memcached servers."""

from waylab.spec.settings import Load
from waylab.spec.systems.under_test import System, SystemUnderTest

BACKENDS_SHOWN = [["threads", "system.backends.threads"]]


class KeyValueSystem(SystemUnderTest):
    """Memcached servers, with or without proxies in front of them."""

    protocol = "memcached"
    operations = ("get", "set")

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """Proxies in front of backends."""
        return {"proxy": system.proxy.count, "backends": system.backends.count}

    def load_reaches(self, system: System) -> str:
        """Each client connects to one proxy; all proxies serve the same data."""
        return "one"

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse settings of messages, and more proxies than clients."""
        for name in ("operations", "prefill"):
            if getattr(load, name):
                raise ValueError(f'load.{name}: needs system.kind = "messages" or "database"')
        if self.programs(system, generators).get("proxy", 0) > load.clients:
            raise ValueError(
                f"system.proxy.count = {system.proxy.count}: more than the {load.clients} clients; "
                "each goes to one proxy"
            )
