"""Where the programs of a trial run: hosts and cores of each role, delays between them, and rates of their links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waylab.runfolder.run import PlannedTrial, Settings

MACHINE = "machine"
UP, DOWN = "up", "down"
_BYTES_PER_MBIT = 1e6 / 8
_MS = 1e-3


@dataclass(frozen=True)
class Placement:
    """Hosts as a model sees them, in the time of this machine: a time scale makes cores smaller and delays longer."""

    # The group of hosts of each role; roles in one group share its cores.
    hosts: dict[str, str]
    # Cores of one host of each group.
    cores: dict[str, float]
    # Programs on one host of each group of several hosts; further programs get further hosts.
    programs: dict[str, int]
    # Round trips in seconds: between load and the first programs, and between those and the last.
    outer_delay_s: float
    inner_delay_s: float
    # Bytes per second of one host of a group in one direction.
    links: dict[tuple[str, str], float]


def placement_of(planned: PlannedTrial, described: Mapping[str, Settings], machine_cores: int) -> Placement:
    """The placement of a trial; `described` are the emulated hosts by name, without a time scale."""
    counts = {"load": len(planned.assignment.get("load") or ()), **planned.description.programs}
    counts = {role: count for role, count in counts.items() if role == "load" or count}
    names = {role: (planned.assignment.get(role) or [])[: count or None] for role, count in counts.items()}
    counts["load"] = max(counts["load"], 1) * planned.load.threads
    hosts: dict[str, str] = {}
    cores: dict[str, float] = {MACHINE: float(machine_cores)} if machine_cores else {}
    programs: dict[str, int] = {}
    links: dict[tuple[str, str], float] = {}
    known: dict[tuple[str, ...], str] = {}
    for role, mine in names.items():
        if not mine:
            hosts[role] = MACHINE
            continue
        # Runs whose servers have more or fewer hosts are of one system, so that the name does not depend on them.
        key = tuple(planned.assignment[role])
        hosts[role] = known.setdefault(key, key[0] if len(set(key)) == 1 else f"hosts of {role}")
        limits = [
            _number(described, one, "cores") * (_number(described, one, "core_speed") or 1) for one in mine
        ]
        if all(limits):
            cores[hosts[role]] = round(sum(limits) / len(limits) / planned.time_scale, 9)
        if len(set(key)) > 1:
            each = -(-counts[role] // len(set(mine)))
            programs[hosts[role]] = max(each, programs.get(hosts[role], 0))
        for way in (UP, DOWN):
            rates = [_number(described, one, f"{way}_mbit") for one in mine]
            if all(rates):
                links[hosts[role], way] = round(
                    sum(rates) / len(rates) * _BYTES_PER_MBIT / planned.time_scale, 3
                )
    middle, last = path_of(counts)
    scale_s = planned.time_scale * _MS
    return Placement(
        hosts,
        cores,
        programs,
        # Rounded, so that means over different numbers of equal hosts are equal.
        round(scale_s * _round_trip_ms(described, names["load"], names.get(middle, [])), 9),
        round(scale_s * _round_trip_ms(described, names.get(middle, []), names.get(last, [])), 9),
        links,
    )


def link_name(group: str, way: str) -> str:
    """The name of the links of a group of hosts in one direction."""
    return f"link of {group}, {way}"


def path_of(roles: Mapping[str, int]) -> tuple[str, str]:
    """The roles that a request reaches first and then; the second is empty if there is none."""
    middle = next((role for role in ("proxy", "messages") if roles.get(role)), "")
    last = next((role for role in ("backends", "database") if roles.get(role)), "")
    return (middle, last) if middle else (last, "")


def _round_trip_ms(described: Mapping[str, Settings], first: Sequence[str], second: Sequence[str]) -> float:
    """There and back, through the delays of both hosts; programs on one host have none."""
    if not first or not second or set(first) == set(second):
        return 0.0
    ends = (
        sum(_number(described, one, "delay_ms") for one in names) / len(names) for names in (first, second)
    )
    return 2 * sum(ends)


def _number(described: Mapping[str, Settings], host: str, name: str) -> float:
    return float((described.get(host) or {}).get(name) or 0)
