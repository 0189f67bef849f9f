"""The system `proxy`: load, `waystage proxy`, memcached servers."""

from waylab.spec.settings import Load
from waylab.spec.systems.key_value import BACKENDS_SHOWN, KeyValueSystem
from waylab.spec.systems.under_test import Shown, System


class ProxySystem(KeyValueSystem):
    """`waystage proxy` in front of memcached servers."""

    name = "proxy"
    runs_over_ssh = True
    stage_program = "proxy"

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse more replicas than backends, and slots that the loops or the discipline cannot use."""
        replicas = system.proxy.replica_count(system.backends.count)
        if replicas > system.backends.count:
            raise ValueError(
                f"system.proxy.replicas = {system.proxy.replicas}: more than the {system.backends.count} backends"
            )
        super().check(system, load, generators)
        _check_slots(system, replicas)

    def slows_down(self, system: System) -> dict[str, int]:
        """Each event loop of the proxy can."""
        return {"proxy": system.proxy.loops}

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """Each proxy that stamps requests leaves a file."""
        proxies = {} if system.proxy.stamps == "off" else {"proxy": system.proxy.count}
        return {"load": generators, **proxies}

    def titles(self) -> dict[str, str]:
        """The role is called as the program."""
        return {"proxy": "proxy"}

    def shown(self, system: System) -> Shown:
        """Loops, discipline and replicas."""
        proxy = [
            ["loops", "system.proxy.loops"],
            ["", "system.proxy.dispatch"],
            ["replicas", "system.proxy.replicas"],
        ]
        return {"proxy": proxy, "backends": BACKENDS_SHOWN}


def _check_slots(system: System, replicas: int) -> None:
    proxy = system.proxy
    for name, slots in proxy.slots().items():
        if slots < proxy.loops:
            raise ValueError(
                f"system.proxy.{name} = {slots}: fewer than the {proxy.loops} loops; each loop needs one"
            )
    for name, dispatch in (("fault_write_poll", "per-backend"), ("fault_write_hold", "shared")):
        if getattr(proxy, name) and proxy.dispatch != dispatch:
            raise ValueError(f'system.proxy.{name} = {getattr(proxy, name)!r}: needs dispatch = "{dispatch}"')
    if proxy.dispatch == "shared" and proxy.multi_get != "by-key" and replicas < system.backends.count:
        raise ValueError(
            f"system.proxy.multi_get = {proxy.multi_get!r}: requests any key from any server; "
            f"needs replicas = {system.backends.count}, a replica on every backend"
        )
