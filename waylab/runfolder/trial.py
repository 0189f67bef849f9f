"""`trial.json`: what happened in one trial, and where it ran. Written last; without it the trial did not finish."""

from msgspec import Struct, field

from waylab.runfolder.numbers import Amount, Count

MEASURED, FAILED = "measured", "failed"


class MachineState(Struct, frozen=True, kw_only=True):
    """What may change between trials."""

    clock_ns: Count  # CLOCK_MONOTONIC, in nanoseconds
    load_average: list[float]  # over 1, 5 and 15 minutes
    steal_s: Amount  # steal time since the machine started, in seconds
    memory_available_bytes: Count  # memory that programs could still allocate, in bytes


class CpuAccounting(Struct, frozen=True, kw_only=True):
    """What the kernel counts as CPU time of a process; null if unknown."""

    interrupts_in_processes: (
        bool | None
    )  # whether it includes the interrupts that arrived while the process ran
    steal_in_processes: bool | None  # whether it includes steal time


class ProcessOutcome(Struct, frozen=True, kw_only=True):
    """One process of a trial, and how it ended."""

    name: str  # name of the process, for example backend-0
    command: list[str]  # the command line
    pid: int  # number of the process
    exit_code: int | None  # exit code; negative for the signal that ended it; null if unknown
    host: str | None = None  # emulated host; null on this machine as it is
    killed: bool = False  # whether it had to be killed


class LinkCheck(Struct, frozen=True, kw_only=True):
    """One number of an emulated link: as described and as measured."""

    name: str  # up_mbit, down_mbit or delay_ms
    asked: float  # the setting, in the unit of its name
    expected: float  # what TCP should measure for that setting: Mbit/s of payload, or ms there and back
    measured: float  # what TCP measured, in the same unit
    error: float  # measured / expected - 1


class Link(Struct, frozen=True, kw_only=True):
    """The link of an emulated host, as described and as measured before the first trial."""

    profile: str  # name of a known machine; "" for none
    cores: float | None  # CPU time of the host, in cores of this machine; null without a limit
    up_mbit: float | None  # rate of what the host sends, in Mbit/s of Ethernet frames; null without a limit
    down_mbit: float | None  # rate of what the host receives, in Mbit/s of Ethernet frames
    delay_ms: float | None  # one-way delay in milliseconds
    checks: list[LinkCheck]  # settings beside measurements
    round_trip_median_ms: float | None = None  # measured round trip in milliseconds
    round_trip_min_ms: float | None = None  # shortest measured round trip in milliseconds
    up_payload_mbit: float | None = None  # measured rate of payload that the host sends, in Mbit/s
    down_payload_mbit: float | None = None  # measured rate of payload that the host receives, in Mbit/s
    queue_kib: float | None = None  # space in front of a limited rate, in KiB; null for 4096
    loss: float | None = None  # share of the frames of each direction that are lost on purpose
    process: bool | None = None  # whether a program of the lab emulates a part of the link
    core_speed: float | None = None  # speed of the cores, relative to this machine; null for 1
    paced: bool = False  # whether its programs slow themselves down to its cores, instead of a quota
    segment_bytes: int | None = None  # payload of a full TCP segment, in bytes
    attempt: int | None = None  # number of the measurement that was accepted
    measured_unix_s: float | None = None  # when the link was measured, in seconds since 1970


class RemoteHost(Struct, frozen=True, kw_only=True):
    """A host that the lab reached through SSH."""

    ssh: str  # destination, as in the specification
    address: str  # IP address on which its programs listen
    waystage: str  # version of waystage on it
    sha256: str  # SHA-256 of that program
    cores: Count  # threads that it can run at once
    kernel: str | None  # release of its kernel
    memory_bytes: Count  # its memory, in bytes
    keeper_pid: Count  # process id of the program that runs the others there


class HostClock(Struct, frozen=True, kw_only=True):
    """CLOCK_MONOTONIC of a host against that of the lab, during one trial."""

    offset_ns: int  # the host's clock minus the lab's, in nanoseconds: mean of before and after the trial
    error_ns: Count  # bound on the error in nanoseconds: half of the shortest round trip and of the drift
    drift_ns: int  # offset after the trial minus offset before it, in nanoseconds
    measured_s: float  # time between both measurements, in seconds


class TestbedFacts(Struct, frozen=True, kw_only=True):
    """Where a trial ran."""

    __test__ = False

    kind: str = "local"  # local, netns or ssh
    pinning: str | None = None  # shared or apart: how cores of emulated hosts are limited
    cores_usable: int | None = None  # cores of the machine that the lab may use
    time_scale: Amount = 1.0  # seconds here for one second of the described hosts
    links: dict[str, Link] = field(default_factory=dict)  # links by name of the host; empty on this machine
    hosts: dict[str, RemoteHost] = field(default_factory=dict)  # hosts that were reached through SSH
    clocks: dict[str, HostClock] = field(default_factory=dict)  # clocks of these hosts
    clock_host: str | None = None  # host on whose clock the load and the telemetry are; null for the lab's

    @property
    def load_clock_ns(self) -> tuple[int, int]:
        """The clock of the load minus that of the lab, and a bound on the error."""
        clock = self.clocks.get(self.clock_host or "")
        return (clock.offset_ns, clock.error_ns) if clock else (0, 0)


class DatabaseFacts(Struct, frozen=True, kw_only=True):
    """The database of a trial, and its own counters."""

    version: str | None = None  # version of PostgreSQL
    file_system: str | None = None  # kind of the file system of its data
    command: list[str] = field(default_factory=list)  # the command line
    before: dict[str, Count | None] | None = None  # counters before the load; null for an unknown one
    after: dict[str, Count | None] | None = None  # counters after all programs have ended


class TrialOutcome(Struct, frozen=True, kw_only=True):
    """One trial: whether it was measured, and by which processes."""

    format: str  # waylab-trial/1
    id: str  # name of the trial
    order: Count  # position in the plan, from 1
    status: str  # measured or failed
    reason: str | None  # why the trial failed
    server: str | None  # memcached, embedded or another server behind the system's entry
    started_unix_s: Amount  # start in seconds since 1970
    took_s: Amount  # duration in seconds
    processes: list[ProcessOutcome]  # every process of the trial
    testbed: TestbedFacts = field(default_factory=TestbedFacts)  # where it ran
    database: DatabaseFacts | None = None  # null if the system has no database
    generators_overlap: Amount | None = None  # share of all windows in which every load generator measured
    before: MachineState | None = None  # the machine before the trial
    after: MachineState | None = None  # the machine after the trial
    manifest: bool = False  # whether manifest.json has the hashes of the trial's files
    accounting: CpuAccounting | None = None  # what the kernel charges to a process; null if not recorded
    refused: list[str] = field(default_factory=list)  # why earlier measurements of this trial were not used
    clock_step_s: float | None = None  # how far the wall clock moved against the monotonic one, in seconds
