"""The numbers of one trial as `analysis.json` has them: response times, stages, CPU time, gates."""

from typing import Generic, TypeVar

from msgspec import Struct, field

from waylab.runfolder.load import LoadSource
from waylab.runfolder.numbers import Interval, Law, Percentiles

# The intervals of a request in a program that writes stamps, in the order in which it passes them.
STAGES = ("parse", "route", "admit", "queue", "send", "backend", "reply")
# Their sum stands behind them under this name.
TOTAL = "total"

# One number of a trial, or its mean over the trials of a configuration.
Number = TypeVar("Number", float, Interval)


class Gate(Struct, frozen=True, kw_only=True):
    """A condition that a trial must meet to be used."""

    name: str  # name of the gate
    passed: bool | None  # null if the gate does not apply or cannot be judged
    value: float | None  # what was measured, in the unit of the limit
    limit: float | None  # the limit
    text: str  # the result in words
    unjudged: bool = False  # whether the gate applies, but imported results do not have what it judges


class TrialOperation(Struct, frozen=True, kw_only=True):
    """The response time of one operation in a trial."""

    count: int  # number of requests
    response_mean_ns: float  # mean in nanoseconds
    response_std_ns: float  # standard deviation in nanoseconds
    percentiles_ns: Percentiles  # percentiles in nanoseconds
    unanswered: int = 0  # number of requests without a reply


class WarmUpFound(Struct, frozen=True, kw_only=True):
    """How long the measured window took to reach a steady state."""

    cut_s: int  # seconds that should have been cut off
    steady: bool | None  # whether there is a steady state; null if the window is too short to decide
    by: str  # the series that decided
    text: str  # the result in words


class WithinInterval(Struct, frozen=True, kw_only=True):
    """The mean of one trial with the interval that its seconds allow."""

    mean: float | None  # mean in the unit of the field's name
    low: float | None  # lower end of the 95 % interval
    high: float | None  # upper end of the 95 % interval
    effective: float | None  # effective number of seconds
    text: str | None  # why there is no interval


class WithinPercentile(Struct, frozen=True, kw_only=True):
    """A percentile of one trial with the interval that its seconds allow."""

    value: float | None  # the percentile in nanoseconds; null if too few requests lie beyond it
    low: float | None  # lower end of the 95 % interval
    high: float | None  # upper end of the 95 % interval
    effective: float | None  # effective number of requests
    text: str | None  # why there is no interval


class WithinTrial(Struct, frozen=True, kw_only=True):
    """How well one trial is known from its seconds."""

    seconds: int  # whole seconds of the measured window
    warm_up: WarmUpFound | None = None  # null if nothing was answered
    throughput_per_s: WithinInterval | None = None  # throughput after the warm-up
    response_mean_ns: WithinInterval | None = None  # mean response time after the warm-up
    percentiles_ns: dict[str, WithinPercentile] = field(default_factory=dict)  # by name, after the warm-up


class TraceSecond(Struct, frozen=True, kw_only=True):
    """One second of a trial."""

    second: int  # number of the second, from 0 at the start of the run
    measured: bool  # whether it lies in the measured window
    throughput_per_s: float  # requests in this second
    response_mean_ns: float | None  # mean response time in nanoseconds
    response_p99_ns: float | None  # 99th percentile of the response time in nanoseconds
    miss_ratio: float | None  # keys not found, as a share of the keys read


class Trace(Struct, frozen=True, kw_only=True):
    """A trial second by second, warm-up included."""

    measured_from: int  # second at which measuring starts
    settled_from: int | None  # second at which MSER-5 finds the steady state; null if it cannot decide
    steady: bool | None  # whether there is a steady state
    seconds: list[TraceSecond]  # whole seconds in order


class StageTimes(Struct, Generic[Number], frozen=True, kw_only=True):
    """The time that requests spent in one stage."""

    mean_ns: Number  # mean in nanoseconds
    p5_ns: float  # 5th percentile in nanoseconds
    p25_ns: float  # lower quartile in nanoseconds
    p50_ns: float  # median in nanoseconds
    p75_ns: float  # upper quartile in nanoseconds
    p95_ns: float  # 95th percentile in nanoseconds
    p99_ns: float  # 99th percentile in nanoseconds


class OperationStages(Struct, Generic[Number], frozen=True, kw_only=True):
    """The stages of one operation."""

    count: int  # number of recorded requests
    stages: dict[str, StageTimes[Number]]  # by stage in order, `total` last


class QueueLength(Struct, Generic[Number], frozen=True, kw_only=True):
    """How many requests an arriving one finds ahead of it."""

    mean: Number  # mean number of requests
    p50: Number  # median
    p95: Number  # 95th percentile
    largest: Number  # maximum


class ProxyView(Struct, Generic[Number], frozen=True, kw_only=True):
    """The same requests as the client and as the proxy (or message service) see them."""

    joined: Number  # requests in the records of both
    unmatched: Number  # requests in the client's records only
    client_mean_ns: Number  # mean response time of the client, in nanoseconds
    client_p95_ns: Number  # 95th percentile of the response time of the client
    proxy_mean_ns: Number  # mean time in the proxy
    proxy_p95_ns: Number  # 95th percentile of the time in the proxy
    difference_mean_ns: Number  # mean difference of both
    before_mean_ns: Number  # part of the difference before the proxy received the request
    after_mean_ns: Number  # part of the difference after the proxy replied


class ServerView(Struct, Generic[Number], frozen=True, kw_only=True):
    """The same requests as the client and as the embedded server see them."""

    joined: Number  # requests in the records of both
    unmatched: Number  # requests in the client's records only
    client_mean_ns: Number  # mean response time of the client, in nanoseconds
    sojourn_mean_ns: Number  # mean time in the server until the end of service
    wait_mean_ns: Number  # mean wait for a worker
    service_mean_ns: Number  # mean service time
    late_mean_ns: Number  # mean time from the end of service to the reply
    delay_mean_ns: Number  # mean response time minus mean sojourn


class MachineUse(Struct, frozen=True, kw_only=True):
    """What the whole machine did in the measured window."""

    capacity_s: float  # CPU time of all cores: their number times the length of the window
    user_s: float  # user time in seconds, over all cores; the kernel samples user and system time
    system_s: float  # system time
    interrupt_s: float  # time in interrupts
    idle_s: float  # idle time, which the kernel measures
    steal_s: float  # steal time
    network_sent_bytes: float  # bytes sent over all interfaces


class CpuUse(Struct, frozen=True, kw_only=True):
    """CPU time of the programs in the measured window."""

    cpu_s: dict[str, float] = field(default_factory=dict)  # seconds by role
    cpu_per_request_ns: dict[str, float] = field(default_factory=dict)  # nanoseconds by role
    machine: MachineUse | None = None  # null if the telemetry could not be read
    foreign_share: float | None = None  # CPU time of other programs, as a share of the machine
    busy_share: float | None = None  # time that was not idle, as a share of the machine
    steal_share: float | None = None  # steal time, as a share of the machine
    probe_ns: float | None = None  # mean CPU time of a fixed computation in nanoseconds; null without it


class LinkUse(Struct, frozen=True, kw_only=True):
    """How full the emulated links were in the measured window."""

    utilisation: dict[str, float] = field(default_factory=dict)  # share by host and direction
    throttled_share: dict[str, float] = field(default_factory=dict)  # share of time that a host was throttled
    dropped_packets: int | None = None  # packets dropped in the whole trial; null if unknown
    late_share: dict[str, float] = field(
        default_factory=dict
    )  # share of packets that a link's program delayed, by host
    waited_share: dict[str, float] = field(
        default_factory=dict
    )  # share of time that a host waited for a CPU although its quota was not used up, by host
    paced: list[str] = field(default_factory=list)  # hosts in use whose programs slow themselves down


class TrialNumbers(Struct, frozen=True, kw_only=True):
    """The numbers of a trial whose load summary could be read."""

    server: str | None  # memcached, embedded or another server behind the system's entry
    took_s: float  # duration of the trial in seconds
    measured_s: float  # length of the measured window in seconds
    requests: int  # requests of the window
    throughput_per_s: float  # requests completed per second of the window
    largest_second_per_s: float | None  # most requests in a whole second of the window
    think_mean_s: float  # mean think time in seconds
    interactive_law_error: float | None  # X (R + Z) / N - 1; null for an open loop
    laws: list[Law]  # operational laws
    within: WithinTrial  # how well the trial is known from its seconds
    trace: Trace | None  # second by second; null for short trials
    hit_ratio: float | None  # keys found, as a share of the keys read
    generator_cpu_share: float | None  # CPU time of the load generator, as a share of its threads' time
    operations: dict[str, TrialOperation]  # by operation, `all` first
    cpu: CpuUse  # CPU time of the programs
    links: LinkUse  # use of the emulated links
    database: dict[
        str, float
    ]  # commits, WAL bytes and so on per request and per message; empty without a database
    time_scale: float = 1.0  # seconds of this trial for one second of the described hosts
    outcomes: dict[str, int] = field(default_factory=dict)  # recorded requests by outcome
    stages: dict[str, OperationStages[float]] = field(default_factory=dict)  # by operation, `all` first
    queue_length: QueueLength[float] | None = None  # null without records of a proxy or service
    proxy_view: ProxyView[float] | None = None  # null without records of both sides
    server_view: ServerView[float] | None = None  # null without records of both sides
    source: LoadSource | None = None  # null unless the results were imported


class AnalysedTrial(Struct, frozen=True, kw_only=True):
    """One trial of the plan: its gates and, if it was measured, its numbers."""

    id: str  # name of the trial
    order: int  # position in the plan, from 1
    block: int  # number of the block, from 1
    configuration: str  # name of the configuration
    levels: dict[str, str]  # label of the level, by factor
    seed: int  # seed of the load generator
    run: bool  # whether the trial was run at all
    used: bool  # whether it passed every gate
    reasons: list[str]  # the gates that failed, a line each
    gates: list[Gate]  # every gate
    refused: list[str] = field(default_factory=list)  # why earlier measurements of this trial were not used
    numbers: TrialNumbers | None = None  # null if the trial failed or left no readable summary

    def measured(self) -> TrialNumbers:
        """Return the numbers of a trial that was measured, as every used one was."""
        assert self.numbers is not None, f"{self.id} was not measured"
        return self.numbers
