"""The settings of the parts of a system and of its load, as frozen dataclasses: each field has a default and a check.

`experiments/demo.toml` explains every key. `systems` checks settings against each other.
"""

import re
from dataclasses import dataclass

from waylab.spec import checks
from waylab.spec.checks import setting

_SERVER_SETTING = re.compile(r"[a-z_][a-z0-9_.]*=.*")


def server_settings(value: object) -> tuple[str, ...]:
    """A list of PostgreSQL's settings, each `name=value`."""
    found = checks.texts(value)
    for one in found:
        if not _SERVER_SETTING.fullmatch(one):
            raise ValueError(f"{one!r} should read like synchronous_commit=on")
    return found


def operations(value: object) -> str:
    """The mix of requests to a message service; the load generator knows the names."""
    if not re.fullmatch(r"[a-z0-9:.,=_-]*", checks.text(value)):
        raise ValueError("should name operations as `waystage load --operations` does, such as d15")
    return str(value)


@dataclass(frozen=True)
class Backends:
    """The memcached servers behind the proxy."""

    count: int = setting(checks.whole(1, 64), 3)
    server: str = setting(checks.one_of("auto", "memcached", "embedded"), "auto")
    memory: str = setting(checks.size, "64m")
    threads: int = setting(checks.whole(1, 64), 1)
    service_time: str = setting(checks.variate, "none")
    workers: int = setting(checks.whole(1, 1024), 1)
    seed: int = setting(checks.whole(0), 1)


@dataclass(frozen=True)
class Proxy:
    """The proxies in front of the backends. All proxies of a trial have the same settings and the same backends."""

    count: int = setting(checks.whole(1, 64), 1)
    replicas: int | str = setting(checks.whole_or(1, 64, "half", "full"), 1)
    loops: int = setting(checks.whole(1, 250), 1)
    dispatch: str = setting(checks.one_of("pipelined", "per-backend", "shared"), "pipelined")
    readers: int = setting(checks.whole(1, 1024), 16)
    writers: int = setting(checks.whole(1, 1024), 1)
    workers: int = setting(checks.whole(1, 1024), 16)
    multi_get: str = setting(checks.one_of("by-key", "sharded", "whole"), "by-key")
    stamps: str = setting(checks.one_of("off", "sampled", "all"), "all")
    sample: int = setting(checks.whole(1), 20)
    backend_timeout: str = setting(checks.duration_text, "1s")
    # A fault of a published middleware, with per-backend only; "" leaves it out.
    fault_write_poll: str = setting(checks.duration_or_none, "")
    # A fault of another one, with shared only; "" leaves it out.
    fault_write_hold: str = setting(checks.duration_or_none, "")

    def replica_count(self, backends: int) -> int:
        """Return the number of replicas of each value; `half` of an odd number of backends is rounded up."""
        words = {"half": (backends + 1) // 2, "full": backends}
        return words.get(str(self.replicas)) or int(self.replicas)

    def slots(self) -> dict[str, int]:
        """Return the number of slots of each setting that the discipline uses."""
        names = {"pipelined": (), "per-backend": ("readers", "writers"), "shared": ("workers",)}[
            self.dispatch
        ]
        return {name: int(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Messages:
    """The message services over one database. All have the same settings; clients use them in turn."""

    services: int = setting(checks.whole(1, 64), 1)
    dispatch: str = setting(checks.one_of("fused", "pool", "none", "canned"), "fused")
    lanes: int = setting(checks.whole(1, 256), 2)
    connections: int = setting(checks.whole(1, 1024), 40)

    def connections_of_each(self) -> int:
        """Connections of one service: its share of the pool, rounded up; or its own lanes."""
        return -(-self.connections // self.services) if self.dispatch == "pool" else self.lanes

    @property
    def servers(self) -> int:
        """How many statements all services together can run in the database at a time."""
        return self.connections_of_each() * self.services if self.has_database else 0

    @property
    def has_database(self) -> bool:
        """Whether the services use a database: `none` discards messages, `canned` answers without reading them."""
        return self.dispatch in ("fused", "pool")


@dataclass(frozen=True)
class Database:
    """The one PostgreSQL of a run, which the lab starts and stops; every trial has a fresh database in it."""

    further_index: bool = setting(checks.flag, True)
    settings: tuple[str, ...] = setting(server_settings, ())


@dataclass(frozen=True)
class Load:
    """The load: a closed loop of clients or, with a rate, an open loop."""

    clients: int = setting(checks.whole(1, 65536), 16)
    threads: int = setting(checks.whole(1, 256), 1)
    ratio: str = setting(checks.ratio, "0:1")
    operations: str = setting(operations, "")
    prefill: int = setting(checks.whole(0, 100_000_000), 0)
    protocol: str = setting(checks.one_of("text", "meta"), "text")
    rate: float = setting(checks.number(0, 1e9), 0.0)
    arrivals: str = setting(checks.arrivals, "poisson")
    data_size: int | str = setting(checks.sizes, 128)
    key_size: int | str = setting(checks.sizes_or_none, "")
    key_pattern: str = setting(checks.key_pattern, "uniform")
    key_minimum: int = setting(checks.whole(0), 0)
    key_maximum: int = setting(checks.whole(0), 10000)
    multi_key_get: int = setting(checks.whole(1, 1024), 1)
    pipeline: int = setting(checks.whole(1, 1024), 1)
    think_time: str = setting(checks.times, "none")
    test_time_s: float = setting(checks.number(0, 86400, above=True), 3.0)
    warm_up_s: float = setting(checks.number(0, 3600), 1.0)
    sample: int = setting(checks.whole(1), 20)
