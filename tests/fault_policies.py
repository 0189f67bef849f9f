"""The proxies of fault_run.py: their policies, and what docs/consistency.md promises for each.

Each proxy has a configuration file of its own. A reload writes the file again, with other names for the pools and
another spelling of the addresses.
"""

from dataclasses import dataclass, field
from typing import Any

from fault_dns import NAME, weight

SERVERS = 3
# Timeouts of the proxies. A replica that has not answered an acknowledged write may return the old value until then.
TIMEOUT_S = 0.3
REPLY_TIMEOUT_S = 1.5
TIMEOUTS = {"connect": "300ms", "read": "300ms", "write": "300ms", "reply": "1500ms"}
EXPIRY = "600s"
# The user and the password that some servers require.
LOGIN = "proxy:to:servers"

ALL = {"writes": "all"}
LATE = "majority first"


@dataclass(frozen=True)
class Pool:
    """A pool: its name, its servers, and the keys of the configuration that are not defaults."""

    name: str
    servers: int
    settings: dict[str, Any] = field(default_factory=dict)
    # The pool whose first servers it uses, as when a pool grows.
    servers_of: str = ""


@dataclass(frozen=True)
class Route:
    """The pool of the keys with a prefix, and what its servers receive in the place of the prefix, if it changes."""

    prefix: str
    pool: str
    replacement: str | None = None

    def document(self, suffix: str) -> dict[str, Any]:
        """Return the route as a table of the configuration; the pool has this suffix."""
        table = {"prefix": self.prefix, "pool": self.pool + suffix}
        if self.replacement is None:
            return table
        change = {"replace-prefix": self.replacement} if self.replacement else {"strip-prefix": True}
        return {**table, **change}


@dataclass(frozen=True)
class Policy:
    """One proxy. The first pool has all keys, except those of routes."""

    name: str
    pools: tuple[Pool, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    # No prefix begins with another one.
    routes: tuple[Route, ...] = ()
    # Another process takes over, instead of reloads.
    hands_over: bool = False
    # The clients use all of them.
    proxies: int = 1

    @property
    def may_be_late(self) -> bool:
        """Whether a replica that has not answered an acknowledged write may return the old value."""
        return any(pool.settings.get("writes") in ("majority", "first") for pool in self.pools)

    @property
    def mends(self) -> bool:
        """Whether a failed write is never applied after a later one.

        With one replica it may be, and a new process, or another proxy, does not know what a proxy has to delete.
        """
        own = self.pools[0].settings
        return (
            not self.hands_over
            and self.proxies == 1
            and (own.get("replicas", 1) > 1 or "failover-pool" in own)
        )

    def stored_key(self, key: str) -> str:
        """Return the key that servers receive for this key."""
        for route in self.routes:
            if route.replacement is not None and key.startswith(route.prefix):
                return route.replacement + key.removeprefix(route.prefix)
        return key

    def own_servers(self) -> dict[str, int]:
        """Return the numbers of servers of the pools that have their own."""
        return {pool.name: pool.servers for pool in self.pools if not pool.servers_of}

    def guarded(self) -> set[str]:
        """Return the names of the pools whose servers require a login."""
        return {pool.name for pool in self.pools if "server-auth-file" in pool.settings}

    def all_ports(self, own: dict[str, list[int]]) -> dict[str, list[int]]:
        """Return the ports of all pools, given those of the pools that have their own servers."""
        return {pool.name: own[pool.servers_of or pool.name][: pool.servers] for pool in self.pools}

    @property
    def denies_flush(self) -> bool:
        """Whether the listener does not allow `flush_all`."""
        listen = self.settings.get("listen", {})
        return "flush" in listen.get("deny", []) or ("allow" in listen and "flush" not in listen["allow"])

    @property
    def has_old_values(self) -> bool:
        """Whether keys have values in a warm-up pool at the start."""
        return "warm-up" in self.pools[0].settings


def _failover(expiry: str = EXPIRY) -> dict[str, Any]:
    return {"pool": "failover", "expiry": expiry}


POLICIES = (
    Policy(
        "plain-failover",
        (
            Pool("main", SERVERS, {"failover-pool": _failover(), "failures": 2}),
            Pool("failover", 2, {"replicas": 2}),
        ),
        {
            "listen": {"address": "127.0.0.1:0", "deny": ["flush"]},
            "part-failure": "error",
            "hot-keys": 8,
            "log-level": "warn",
            "log-format": "json",
            "log-keys": "hashed",
            "slow-requests": "2ms",
            "slow-requests-per-second": 50,
            # `fault_proxy.py` has the collector, and puts its URL here.
            "traces": "",
            "traces-sample": 5,
            "traces-queue": 200,
            "traces-keys": "plain",
            "traces-service": "fault run",
            "clients-per-address": 500,
            "client-idle-timeout": "5m",
            "client-request-timeout": "20s",
            "client-unread-timeout": "30s",
            "tcp-keepalive": "20s",
        },
        routes=(Route("w0", "main", "zero-"), Route("w1", "main", "")),
    ),
    Policy(
        "plain-shared",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "hash": "fnv1a_64",
                    "hash-tag": "{}",
                    "timeouts": {"connect": "200ms"},
                    "near-cache": {"lifetime": "1s", "memory": "1m"},
                },
            ),
        ),
        {"dispatch": "shared", "workers": 12, "multi-get": "by-key", "queue": 5000, "part-failure": "miss"},
    ),
    Policy(
        "majority-failover",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 3,
                    "writes": "majority",
                    "reads": "primary",
                    "failover": "on-error",
                    "failover-pool": _failover(),
                    "server-auth-file": "login",
                    "near-cache": {"lifetime": "100ms"},
                },
            ),
            Pool("failover", 1),
        ),
        {"part-failure": "partial", "client-window": 64, "stamps": "off"},
    ),
    Policy(
        "all-any",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 3,
                    "writes": "all",
                    "reads": "any",
                    "failover": "on-error",
                    "distribution": "rendezvous",
                    "delete-pools": ["far"],
                    "near-cache": {"lifetime": "1s", "memory": "16k"},
                },
            ),
            # It has no values of clients, but receives their deletes.
            Pool("far", 2, {"replicas": 2}),
        ),
        {"dispatch": "per-backend", "readers": 6, "writers": 4, "queue": 5000, "part-failure": "error"},
        # The other writer has its own keys, so a multi-get of the reader has both kinds.
        routes=(Route("w1", "main", ""), Route("oth", "main", "rest-")),
    ),
    Policy(
        "all-least-sharded",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 3,
                    "writes": "all",
                    "reads": "least-outstanding",
                    "failover": "on-miss",
                    "distribution": "modulo",
                    "hash": "crc32",
                    "shadow": {"to": "shadow", "share": 1.0, "reads": True},
                },
            ),
            Pool("shadow", 1),
        ),
        {"dispatch": "shared", "workers": 16, "multi-get": "sharded"},
        routes=(Route("w0", "main", "a-longer-prefix-"),),
    ),
    Policy(
        "all-any-whole",
        (
            # Its servers are those of SRV records. The DNS server has no usable answer during a part of the reloads.
            Pool(
                "main",
                2,
                {
                    "replicas": 2,
                    "writes": "all",
                    "reads": "any",
                    "failover": "on-error",
                    "hash": "xxh3_64",
                    "failover-pool": _failover(),
                    "srv": NAME,
                },
            ),
            Pool("failover", 1),
        ),
        {
            "dispatch": "shared",
            "workers": 8,
            "multi-get": "whole",
            "client-buffer": "256k",
            # The address of the DNS server replaces this one.
            "resolver": "127.0.0.1:53",
            "resolve-every": "1s",
        },
    ),
    Policy(
        "first-hedged",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 2,
                    "writes": "first",
                    "reads": "any",
                    "failover": "on-error",
                    "distribution": "jump",
                    "hedge": {"delay": "20ms", "budget": 0.1},
                },
            ),
        ),
        {"dispatch": "per-backend", "readers": 8, "writers": 2, "backend-window": 512},
    ),
    Policy(
        "warm-up-routed",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 2,
                    "warm-up": {"from": "old", "expiry": EXPIRY},
                    "shadow": {"to": "new", "share": 0.5},
                    "near-cache": {"lifetime": "1s"},
                    "hash": "md5",
                },
            ),
            Pool("old", 1),
            # As in a migration, where the shadow pool replaces the main pool later.
            Pool("new", 1, {"flush": False, "warm-up": {"from": "main", "expiry": EXPIRY}}),
            Pool("others", 1),
        ),
        {"records": "records", "sample": 50, "stamps": "sampled"},
        routes=(Route("memtier-", "others", ""), Route("w0", "main", "zero-")),
    ),
    Policy(
        "grown-pool",
        (
            # The file has other lines than a list of servers during a part of its reloads.
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 2,
                    "warm-up": {"from": "old", "expiry": EXPIRY},
                    "servers-file": "servers",
                    "resolve": "one",
                },
            ),
            Pool("old", 2, servers_of="main"),
            Pool("others", 1),
        ),
        # The replies to large multi-gets are longer than that.
        {"reply-max": "1m"},
        routes=(Route("memtier-", "others"),),
    ),
    # What several proxies before the same servers may be used with: all replicas must accept a write and reads use the
    # primary, or there is one replica.
    Policy(
        "two-proxies",
        (Pool("main", SERVERS, {"replicas": 3, "writes": "all", "reads": "primary"}), Pool("single", 2)),
        # The largest values of hostile clients are longer than that.
        {"reply-max": "600k"},
        routes=(Route("w1", "single", "one-"),),
        proxies=2,
    ),
    Policy(
        "hand-over",
        (
            Pool(
                "main",
                SERVERS,
                {
                    "replicas": 2,
                    "writes": "all",
                    "reads": "primary",
                    # Large multi-gets exceed it now and then.
                    "rate-limit": {"per-second": 1500, "burst": 200},
                },
            ),
        ),
        {
            "hand-over-wait": "30s",
            "listen": {
                "address": "127.0.0.1:0",
                "allow": ["read", "touch", "write", "delete", "stats"],
            },
        },
        routes=(Route("w0", "main", ""),),
        hands_over=True,
    ),
)


@dataclass(frozen=True)
class Spelling:
    """How a configuration file writes the same pools and servers."""

    suffix: str = ""
    host: str = "127.0.0.1"


def _servers(one: Pool, ports: dict[str, list[int]], spelling: Spelling) -> list[dict[str, Any]]:
    # The name is hashed, so that another spelling of the address does not move keys to other servers.
    return [
        {"address": f"{spelling.host}:{port}", "name": f"{one.name}-{number}", "weight": weight(number)}
        for number, port in enumerate(ports[one.name])
    ]


def servers_file(policy: Policy, ports: dict[str, list[int]], spelling: Spelling) -> str | None:
    """Return the file with the servers of the pool that has one."""
    of_pools = [_servers(pool, ports, spelling) for pool in policy.pools if "servers-file" in pool.settings]
    lines = (
        f"{server['address']}:{server['weight']} {server['name']}\n"
        for servers in of_pools
        for server in servers
    )
    return "".join(lines) or None


def proxy_file(
    policy: Policy, ports: dict[str, list[int]], spelling: Spelling, folder: str
) -> dict[str, Any]:
    """Return the configuration of a proxy in front of servers on these ports, as a document."""
    references = {"failover-pool": "pool", "warm-up": "from", "shadow": "to"}

    def pool(one: Pool) -> dict[str, Any]:
        servers = _servers(one, ports, spelling)
        settings = dict(one.settings)
        for key, reference in references.items():
            if key in settings:
                settings[key] = {**settings[key], reference: settings[key][reference] + spelling.suffix}
        if "delete-pools" in settings:
            settings["delete-pools"] = [name + spelling.suffix for name in settings["delete-pools"]]
        if "server-auth-file" in settings:
            settings["server-auth-file"] = f"{folder}/login"
        settings["timeouts"] = {**TIMEOUTS, **settings.get("timeouts", {})}
        named = {"name": one.name + spelling.suffix, **settings}
        if "servers-file" in settings:
            return {**named, "servers-file": f"{folder}/servers"}
        if "srv" in settings:
            return named
        return {**named, "servers": servers}

    document = {
        "listen": "127.0.0.1:0",
        "metrics": "127.0.0.1:0",
        "loops": 2,
        "memory": "64m",
        **policy.settings,
    }
    if policy.hands_over:
        document["control"] = f"{folder}/control"
    if "records" in document:
        document["records"] = f"{folder}/records"
    document["pools"] = [pool(one) for one in policy.pools]
    document["routes"] = [route.document(spelling.suffix) for route in policy.routes]
    return document


def toml(document: dict[str, Any]) -> str:
    """Return a document as TOML: keys, and tables of `[[pools]]` and `[[routes]]`."""
    lists = {key: value for key, value in document.items() if _is_list_of_tables(value)}
    lines = [
        f"{key} = {_value(value)}" for key, value in document.items() if key not in lists and value != []
    ]
    for key, tables in lists.items():
        for table in tables:
            lines += [f"[[{key}]]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def settings_of(document: dict[str, Any]) -> set[str]:
    """Return the settings of a configuration: each key, and `key = "value"` of those with text."""
    found: set[str] = set()

    def collect(value: Any, key: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                collect(inner, f"{key}.{name}" if key else name)
        elif _is_list_of_tables(value):
            found.add(key)
            for inner in value:
                collect(inner, key)
        else:
            found.add(key)
            found.add(f'{key} = "{value}"')

    collect(document, "")
    return found
