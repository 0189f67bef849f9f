"""The settings of a configuration as models know them, and how `--set` changes them."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from waylab.errors import LabError
from waylab.fit.observations.hosts import Placement
from waylab.runfolder.run import LoadSettings, Settings, described

_CLIENTS_MAX = 20_000
_IN_FLIGHT_MAX = 100_000
_COUNT_MAX = 10_000
_TIME = re.compile(r"(?:fixed:|exp:)?([0-9.]+)(ns|us|ms|s)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZE = re.compile(r"(\d+)(k|m)?i?b?", re.IGNORECASE)
_BYTES = {None: 1, "k": 1024, "m": 1024 * 1024}


@dataclass(frozen=True, order=True)
class ModelSettings:
    """What a model needs to know of a configuration. A count of 0 means that there is no such program or limit."""

    clients: int
    rate_per_s: float = 0.0
    think_s: float = 0.0
    pipeline: int = 1
    load_threads: int = 1
    writes_share: float = 0.0
    value_bytes: int = 0
    keys: int = 1
    proxies: int = 0
    loops: int = 1
    # Requests in flight behind all proxies or services together.
    slots: int = 0
    # Reads in flight to each server, with a queue in front of each server.
    readers: int = 0
    replicas: int = 1
    servers: int = 0
    server_threads: int = 1
    service_s: float = 0.0
    service_workers: int = 1
    services: int = 0
    lanes: int = 0
    # Round trips on emulated links: from the load to the first programs, and from those to the last.
    outer_delay_s: float = 0.0
    inner_delay_s: float = 0.0
    # The group of hosts of each role, and the cores of one host of each group; roles in one group share its cores.
    hosts: tuple[tuple[str, str], ...] = ()
    cores: tuple[tuple[str, float], ...] = ()
    # Groups of several hosts: how many programs one host has.
    programs: tuple[tuple[str, int], ...] = ()
    # Limited links: group of hosts, direction, and bytes per second of one host.
    links: tuple[tuple[str, str, float], ...] = ()
    # Settings that no model knows as a number: configurations that differ in one of them are different systems.
    others: tuple[tuple[str, str], ...] = ()

    @property
    def in_flight(self) -> int:
        """Requests that clients have outstanding at most in a closed loop."""
        return self.clients * self.pipeline

    @property
    def pool(self) -> int:
        """Requests in flight behind the queues of all proxies or services; 0 without a limit."""
        return self.slots or self.readers * self.servers

    def programs_of(self, role: str) -> int:
        """How many programs, or threads of load generators, a role has."""
        counts = {
            "load": self.load_threads,
            "proxy": self.proxies,
            "messages": self.services,
            "backends": self.servers,
        }
        return max(1, counts.get(role, 1))

    def host_count(self, group: str) -> int:
        """How many hosts a group has. Where programs have hosts of their own, further programs bring further hosts."""
        each = dict(self.programs).get(group)
        if each is None:
            return 1
        return max(-(-self.programs_of(role) // each) for role, mine in self.hosts if mine == group)

    def as_dict(self) -> dict[str, object]:
        """The numbers by name."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name not in _STRUCTURE}


_STRUCTURE = frozenset({"hosts", "cores", "programs", "links", "others"})
NUMERIC = tuple(part.name for part in fields(ModelSettings) if part.name not in _STRUCTURE)
# Names that users write, by field. The specification's dotted keys are among them.
_NAMES = {
    "clients": ("clients", "load.clients"),
    "rate_per_s": ("rate", "load.rate"),
    "think_s": ("think", "think_time", "load.think_time"),
    "pipeline": ("pipeline", "load.pipeline"),
    "load_threads": ("threads", "load.threads"),
    "writes_share": ("writes", "writes_share", "ratio", "load.ratio"),
    "value_bytes": ("value", "data_size", "load.data_size"),
    "keys": ("keys", "multi_key_get", "load.multi_key_get"),
    "proxies": ("proxy", "proxies", "proxy.count", "system.proxy.count"),
    "loops": ("loops", "proxy.loops", "system.proxy.loops"),
    "slots": ("workers", "connections", "system.proxy.workers", "system.messages.connections"),
    "readers": ("readers", "proxy.readers", "system.proxy.readers"),
    "replicas": ("replicas", "proxy.replicas", "system.proxy.replicas"),
    "servers": ("server", "servers", "backends", "backends.count", "system.backends.count"),
    "server_threads": ("server_threads", "backends.threads", "system.backends.threads"),
    "service_s": ("service_time", "backends.service_time", "system.backends.service_time"),
    "service_workers": ("backends.workers", "system.backends.workers"),
    "services": ("services", "messages.services", "system.messages.services"),
    "lanes": ("lanes", "messages.lanes", "system.messages.lanes"),
}
# Counts that 0 says there are none of.
_COUNTS = ("proxies", "loops", "replicas", "slots", "readers", "servers", "services", "lanes")
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in (*names, field)}
# Settings that change nothing a model predicts.
_IGNORED = {"seed", "sample", "memory", "test_time_s", "warm_up_s", "prefill"}
_KNOWN_LOAD = {
    "clients",
    "threads",
    "ratio",
    "rate",
    "data_size",
    "multi_key_get",
    "pipeline",
    "think_time",
    "think_mean_s",
}
_KNOWN_SYSTEM = {
    "proxy": {"count", "replicas", "loops", "workers", "readers"},
    "backends": {"count", "threads", "service_time", "workers", "service_mean_s"},
    "messages": {"services", "lanes", "connections"},
    "database": set(),
}


def settings_of(
    system: Settings,
    load: LoadSettings,
    placement: Placement,
    generators: int,
) -> ModelSettings:
    """The settings of a planned trial."""
    programs = described(system).programs
    proxy, backends, messages = system["proxy"], system["backends"], system["messages"]
    has_proxy, has_service = "proxy" in programs, "messages" in programs
    servers = programs.get("backends", 0)
    slots = 0
    if has_proxy and proxy["dispatch"] == "shared":
        slots = int(proxy["workers"]) * programs["proxy"]
    if has_service and messages["dispatch"] == "pool":
        slots = int(messages["connections"])
    kinds = {role for role in programs if role in _KNOWN_SYSTEM}
    others = {
        f"{role}.{name}": str(value)
        for role in sorted(kinds)
        for name, value in system[role].items()
        if name not in _KNOWN_SYSTEM[role] | _IGNORED
    }
    others |= {
        f"load.{name}": str(getattr(load, name))
        for name in load.__struct_fields__
        if name not in _KNOWN_LOAD | _IGNORED
    }
    others["programs"] = ", ".join(programs)
    size, known_size = _bytes(load.data_size)
    if not known_size:
        others["load.data_size"] = str(load.data_size)
    return ModelSettings(
        clients=load.clients,
        rate_per_s=load.rate,
        think_s=load.think_mean_s,
        pipeline=load.pipeline,
        load_threads=load.threads * max(generators, 1),
        writes_share=_share_of(load.ratio) if servers else 0.0,
        value_bytes=size,
        keys=load.multi_key_get,
        proxies=programs.get("proxy", 0),
        loops=int(proxy["loops"]) if has_proxy else 1,
        slots=slots,
        readers=int(proxy["readers"]) if has_proxy and proxy["dispatch"] == "per-backend" else 0,
        replicas=_replicas(proxy["replicas"], servers) if has_proxy else 1,
        servers=servers,
        server_threads=int(backends["threads"]) if servers else 1,
        service_s=float(backends["service_mean_s"]) if servers else 0.0,
        service_workers=int(backends["workers"]) if servers else 1,
        services=programs.get("messages", 0),
        lanes=int(messages["lanes"]) if has_service and messages["dispatch"] == "fused" else 0,
        outer_delay_s=placement.outer_delay_s,
        inner_delay_s=placement.inner_delay_s,
        hosts=tuple(sorted(placement.hosts.items())),
        cores=tuple(sorted(placement.cores.items())),
        programs=tuple(sorted(placement.programs.items())),
        links=tuple((group, way, rate) for (group, way), rate in sorted(placement.links.items())),
        others=tuple(sorted(others.items())),
    )


def field_of(name: str) -> str | None:
    """The field of a name as users write it."""
    return _FIELD_OF.get(name.strip())


def changed_settings(
    base: ModelSettings, changes: Mapping[str, str], option: str = "--set "
) -> ModelSettings:
    """Settings with `name=value` changes as a user writes them; `replicas=full` means one on each server.

    `option` stands before the name of a setting in errors.

    Raises:
        LabError: for an unknown name, a value that is none, or a combination that cannot exist.
    """
    values: dict[str, Any] = {}
    replicas = ""
    for name, text in changes.items():
        field = _FIELD_OF.get(name.strip())
        if field is None:
            known = sorted(names[0] for names in _NAMES.values())
            near = difflib.get_close_matches(name, known, n=1)
            raise LabError(
                f"{option}{name}: models do not know this setting; "
                + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
            )
        if field == "replicas" and text in ("full", "half"):
            replicas = text
            continue
        values[field] = _value(option + name, field, text.strip())
    found = replace(base, **values)
    if replicas:
        found = replace(found, replicas=_replicas(replicas, found.servers))
    for field in values:
        if field in _COUNTS and not getattr(base, field):
            raise LabError(
                f"{option}{field}: the measured system has none, so that models cannot know its effect"
            )
    if found.in_flight > _IN_FLIGHT_MAX:
        raise LabError(
            f"{option}: {found.clients} clients with a pipeline of {found.pipeline} have {found.in_flight} requests in "
            f"flight; models solve at most {_IN_FLIGHT_MAX}"
        )
    if found.servers and found.replicas > found.servers:
        raise LabError(f"{option}replicas={found.replicas}: there are only {found.servers} servers")
    return found


def _value(name: str, field: str, text: str) -> float | int:
    try:
        if field == "writes_share":
            share = _share_of(text) if ":" in text else float(text)
            if not 0 <= share <= 1:
                raise ValueError
            return share
        if field in ("think_s", "service_s"):
            return 0.0 if text in ("none", "0") else time_of(text)
        if field == "value_bytes":
            size, known = _bytes(text)
            if not known:
                raise ValueError
            return size
        if field == "rate_per_s":
            rate = number_with_suffix(text)
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError
            return rate
        if not (text.isascii() and text.isdigit()):
            raise ValueError
        count = int(text)
        if not 1 <= count <= (_CLIENTS_MAX if field == "clients" else _COUNT_MAX):
            raise ValueError
    except ValueError:
        example = {
            "writes_share": "0.2 or 1:4",
            "think_s": "2ms",
            "service_s": "200us",
            "value_bytes": "4k",
            "rate_per_s": "20k",
        }.get(field, f"a number from 1 to {_CLIENTS_MAX if field == 'clients' else _COUNT_MAX}")
        raise LabError(f"{name}: {text[:40]!r} is not a value; give {example}") from None
    return count


def time_of(text: str) -> float:
    """Seconds of a time with a unit, or the mean of `exp:` and `fixed:`.

    Raises:
        ValueError: for anything else.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _SECONDS[match[2]]


def number_with_suffix(text: str) -> float:
    """Read 20k or 1.5M."""
    factor = {"k": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    return float(text[:-1] if factor > 1 else text) * factor


def _share_of(ratio: str) -> float:
    """Share of SET in a ratio SET:GET."""
    sets, gets = (float(part) for part in ratio.split(":"))
    if sets < 0 or gets < 0 or not sets + gets > 0:
        raise ValueError(ratio)
    return sets / (sets + gets)


def _bytes(size: int | str) -> tuple[int, bool]:
    if isinstance(size, int):
        return size, True
    match = _SIZE.fullmatch(size)
    return (int(match[1]) * _BYTES[match[2].lower() if match[2] else None], True) if match else (0, False)


def _replicas(value: int | str, servers: int) -> int:
    if value == "full":
        return max(servers, 1)
    if value == "half":
        return max(1, (servers + 1) // 2)
    return int(value)
