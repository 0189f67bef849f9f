"""CPU time and memory of other machines and of the programs on them, from their files in /proc."""

from dataclasses import dataclass

from waylab.testbed.processes import Process, TestbedError
from waylab.testbed.ssh.connection import KeeperConnection

# The kernel reports ticks of 10 ms to programs on every architecture that Rust and Python support.
_TICKS_PER_S = 100.0
_MACHINE = ["/proc/stat", "/proc/loadavg", "/proc/meminfo", "/proc/net/dev"]


@dataclass(frozen=True)
class ProcessCounters:
    """CPU seconds, resident bytes and threads of a process."""

    process: str
    pid: int
    user_s: float
    system_s: float
    resident_bytes: int
    threads: int


@dataclass(frozen=True)
class MachineCounters:
    """The counters of a machine since its start, in the columns of `machine.csv`."""

    capacity_s: float
    user_s: float
    system_s: float
    interrupt_s: float
    idle_s: float
    steal_s: float
    load_1m: float
    memory_available_bytes: int
    network_sent_bytes: int


def read_usage(
    connection: KeeperConnection, processes: list[tuple[str, int]], cores: int
) -> tuple[int, list[ProcessCounters], MachineCounters]:
    """Return the host's clock, the use of each process that still runs, and that of the machine."""
    files = [f"/proc/{pid}/{name}" for _, pid in processes for name in ("stat", "status")]
    found = connection.request("texts", paths=[*files, *_MACHINE])
    texts: list[str | None] = found["texts"]
    clock_ns = int(found["clock_ns"])
    uses = []
    for index, (name, pid) in enumerate(processes):
        stat, status = texts[2 * index : 2 * index + 2]
        if stat and status:
            uses.append(_process(name, pid, stat, status))
    stat, load, memory, network = texts[-len(_MACHINE) :]
    if not (stat and load and memory and network):
        raise TestbedError(f"host {connection.name}: /proc cannot be read")
    return clock_ns, uses, _machine(stat, load, memory, network, clock_ns, cores)


def memory_bytes(text: str) -> int:
    """Return the memory of a machine from its /proc/meminfo."""
    return _kib(text, "MemTotal:") * 1024


def watched(processes: list[Process], host: str) -> list[tuple[str, int]]:
    """Return names and process ids of the programs on a host that have not ended."""
    return [(one.name, one.pid) for one in processes if one.host == host and one.exit_code is None]


def _process(name: str, pid: int, stat: str, status: str) -> ProcessCounters:
    # The second field is the program's name in brackets, and may contain anything.
    fields = stat.rpartition(")")[2].split()
    return ProcessCounters(
        name,
        pid,
        int(fields[11]) / _TICKS_PER_S,
        int(fields[12]) / _TICKS_PER_S,
        _kib(status, "VmRSS:") * 1024,
        int(fields[17]),
    )


def _machine(stat: str, load: str, memory: str, network: str, clock_ns: int, cores: int) -> MachineCounters:
    ticks = [int(value) for value in stat.splitlines()[0].split()[1:9]]
    user, nice, system, idle, waiting, interrupt, soft, steal = (ticks + [0] * 8)[:8]
    sent = sum(int(line.partition(":")[2].split()[8]) for line in network.splitlines() if ":" in line)
    return MachineCounters(
        capacity_s=round(clock_ns * 1e-9 * cores, 6),
        user_s=(user + nice) / _TICKS_PER_S,
        system_s=system / _TICKS_PER_S,
        interrupt_s=(interrupt + soft) / _TICKS_PER_S,
        idle_s=(idle + waiting) / _TICKS_PER_S,
        steal_s=steal / _TICKS_PER_S,
        load_1m=float(load.split(maxsplit=1)[0]),
        memory_available_bytes=_kib(memory, "MemAvailable:") * 1024,
        network_sent_bytes=sent,
    )


def _kib(text: str, key: str) -> int:
    """Return the number after a key; 0 if there is none, as for a process that is ending."""
    for line in text.splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0
