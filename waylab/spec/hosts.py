"""The hosts of an experiment, and the assignment of roles to them.

Knows nothing of how a testbed emulates hosts.
"""

from dataclasses import dataclass, field, fields, replace

from waylab.spec import checks
from waylab.spec.checks import setting

# The machines of the published studies. Only their sending rate was limited.
PROFILES: dict[str, dict[str, float]] = {
    "asl18-client": {"cores": 2.0, "up_mbit": 200.0},
    "asl18-middleware": {"cores": 4.0, "up_mbit": 800.0},
    "asl18-server": {"cores": 1.0, "up_mbit": 100.0},
}


@dataclass(frozen=True)
class HostSettings:
    """One machine. Emulated: 10^6 bit/s of Ethernet frames each way, one-way delay, cores. None means no limit.

    `queue_kib` is the space in front of a limited rate, `loss` the share of frames that each direction loses.
    `core_speed` is the speed of its cores, relative to a core of the machine that emulates it. On a `paced` host, the
    programs slow themselves down to these cores; otherwise a quota of CPU time does that.
    """

    profile: str = setting(checks.one_of(*PROFILES), "")
    cores: float | None = setting(checks.number(0.05, 1024), None)
    core_speed: float | None = setting(checks.number(0.001, 100), None)
    paced: bool = setting(checks.flag, False)
    up_mbit: float | None = setting(checks.number(1, 30_000), None)
    down_mbit: float | None = setting(checks.number(1, 30_000), None)
    delay_ms: float | None = setting(checks.number(0, 10_000, above=True), None)
    queue_kib: float | None = setting(checks.number(16, 1 << 20), None)
    loss: float | None = setting(checks.number(0, 0.5, above=True), None)
    # Of a machine that exists: the destination for ssh, the IP address of its programs ("" for that of its name), and
    # the folder for files of the lab.
    ssh: str = setting(checks.text, "")
    address: str = setting(checks.ip_address, "")
    folder: str = setting(checks.text, "")

    @property
    def quota(self) -> float | None:
        """The CPU time that the kernel allows the host, in cores; None without a limit."""
        return None if self.paced else self.cores


@dataclass(frozen=True)
class TestbedSettings:
    """Where the programs run: on this machine as it is, on emulated hosts, or on other machines."""

    __test__ = False

    kind: str = setting(checks.one_of("local", "netns", "ssh"), "local")
    pinning: str = setting(checks.one_of("shared", "apart"), "shared")
    oversubscribe: bool = setting(checks.flag, False)
    time_scale: float = setting(checks.number(1, 1000), 1.0)
    links: str = setting(checks.one_of("auto", "process"), "auto")
    hosts: dict[str, HostSettings] = field(default_factory=dict)

    def emulated(self, name: str) -> HostSettings:
        """Return a host as this machine emulates it: cores and rates divided by the time scale, delay multiplied."""
        described, scale = self.hosts[name], self.time_scale
        return replace(
            described,
            cores=described.cores and described.cores * (described.core_speed or 1.0) / scale,
            up_mbit=described.up_mbit and described.up_mbit / scale,
            down_mbit=described.down_mbit and described.down_mbit / scale,
            delay_ms=described.delay_ms and described.delay_ms * scale,
        )


@dataclass(frozen=True)
class Assignment:
    """Which hosts the roles run on. A role with several programs takes its hosts in turn.

    Every name in `load` is one load generator; named twice, a host runs two.
    """

    load: tuple[str, ...] = setting(checks.texts, ())
    proxy: tuple[str, ...] = setting(checks.texts, ())
    backends: tuple[str, ...] = setting(checks.texts, ())
    messages: tuple[str, ...] = setting(checks.texts, ())
    database: tuple[str, ...] = setting(checks.texts, ())
    # The hosts of roles that the specification describes itself, which are a part of their description.
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict, metadata={"derived": True})

    @property
    def generators(self) -> int:
        """How many load generators there are."""
        return max(1, len(self.load))

    def hosts(self, programs: dict[str, int]) -> list[str]:
        """Name the hosts in use, each once, by the number of programs of each role."""
        used = list(self.load)
        for role, count in programs.items():
            used += self.of(role)[:count]
        return list(dict.fromkeys(used))

    def of(self, role: str) -> tuple[str, ...]:
        """Return the names of the hosts of a role."""
        names: tuple[str, ...] = self.roles[role] if role in self.roles else getattr(self, role, ())
        return names

    def by_role(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the hosts by role."""
        fixed = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "roles"}
        return fixed | self.roles


def with_profile(settings: HostSettings) -> HostSettings:
    """Use the numbers of the profile for every key that the host leaves out."""
    profile = PROFILES.get(settings.profile, {})
    own = {part.name: getattr(settings, part.name) for part in fields(settings)}
    return HostSettings(**own | {name: value for name, value in profile.items() if own[name] is None})


def check_assignment(testbed: TestbedSettings, assignment: Assignment, counts: dict[str, int]) -> None:
    """Check that every role of a combination has a described host; ValueError names the role that has none.

    `counts` is the number of programs of each role beside the load.
    """
    if len(assignment.database) > 1:
        raise ValueError(
            f"assignment.database: one host, not {len(assignment.database)}; there is one database"
        )
    for role in ("load", *(role for role, count in counts.items() if count)):
        names = assignment.of(role)
        key = f"system.roles.{role}.hosts" if role in assignment.roles else f"assignment.{role}"
        for name in names:
            if name not in testbed.hosts:
                known = ", ".join(testbed.hosts) or "none is described"
                raise ValueError(f"{key}: {name!r} is not one of testbed.hosts; known: {known}")
        if testbed.kind != "local" and not names:
            raise ValueError(
                f'{key}: is missing; testbed.kind = "{testbed.kind}" runs every role on a host of its own'
            )
