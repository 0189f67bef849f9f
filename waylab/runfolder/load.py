"""`load.json`: the parts of the load generator's summary that the lab reads. docs/load-summary.md has all of it."""

from typing import Any

from msgspec import Struct, field

from waylab.runfolder.numbers import Amount, Count

# Settings of the load generator, as docs/load-summary.md names them.
Settings = dict[str, Any]

# The operations of docs/load-messages.md; `d15` is one that consists of five requests.
MESSAGE_OPERATIONS = [
    *"send send-to pop pop-from peek peek-from waiting create delete".split(),
    *"receive acknowledge extend nack d15".split(),
]


class LoadTotals(Struct, frozen=True, kw_only=True):
    """Counts of the measured window."""

    requests: Count  # requests in the measured window
    keys: Count = 0  # keys of these requests
    hits: Count  # keys that were read and found
    misses: Count  # keys that were read and not found
    errors: Count  # error replies
    sent_bytes: Count | None = None  # bytes of requests
    received_bytes: Count | None = None  # bytes of replies
    completed: Count | None = None  # requests that were answered without an error within the window
    requests_answered: Count | None = None  # answered requests of the whole run, warm-up included
    unsent: Count | None = None  # requests of an open loop that were due and never sent
    achieved_share: Amount | None = None  # share of the due requests of an open loop that were answered


class LoadTimes(Struct, frozen=True, kw_only=True):
    """A distribution of times."""

    mean_ns: Amount | None  # mean in nanoseconds; null without a request
    std_ns: Amount | None  # standard deviation in nanoseconds; null without a request
    histogram: str  # HdrHistogram in nanoseconds: V2, deflated, base64; "" if empty
    percentiles: dict[str, Amount | None] = field(default_factory=dict)  # in nanoseconds, by name
    unanswered: Count = 0  # requests without a reply, which are slower than any time of the histogram


class LoadOperation(Struct, frozen=True, kw_only=True):
    """One operation, such as get."""

    count: Count  # number of requests
    errors: Count = 0  # number of requests that failed
    hits: Count | None = None  # keys that were read and found
    misses: Count | None = None  # keys that were read and not found
    sent_bytes: Count | None = None  # bytes of requests
    received_bytes: Count | None = None  # bytes of replies
    response: LoadTimes  # response time: from the intended start to the complete reply


class LoadOperations(Struct, frozen=True, kw_only=True):
    """All operations: get and set, and those of a message service by name."""

    all: LoadOperation  # all requests
    get: LoadOperation | None = None  # requests that read
    set: LoadOperation | None = None  # requests that write
    messages: dict[str, LoadOperation] = field(default_factory=dict)  # operations of a message service

    def __post_init__(self) -> None:
        """Accept known operations only, because their names appear in pages and names of files."""
        for name in self.messages:
            if name not in MESSAGE_OPERATIONS:
                raise ValueError(f"{name[:80]!r} is not an operation; known: {', '.join(MESSAGE_OPERATIONS)}")

    def by_name(self) -> dict[str, LoadOperation]:
        """Return the operations by name, `all` first: those of a message service, or get and set."""
        read_and_written = {"get": self.get, "set": self.set}
        found = self.messages or {name: one for name, one in read_and_written.items() if one is not None}
        return {"all": self.all, **found}


class LoadSecond(Struct, frozen=True, kw_only=True):
    """One second of the run."""

    second: Count  # number of the second, from 0
    measured: bool  # whether the whole second lies in the measured window
    requests: Count  # requests that ended in this second
    errors: Count | None = None  # requests that failed in this second
    hits: Count = 0  # keys found
    misses: Count = 0  # keys not found
    mean_ns: Amount | None = None  # mean response time in nanoseconds
    p99_ns: Amount | None = None  # 99th percentile of the response time in nanoseconds
    sum_ns: Count | None = None  # sum of the response times in nanoseconds
    histograms: dict[str, str] = field(default_factory=dict)  # histogram of the response time by operation

    def __post_init__(self) -> None:
        """Limit the number of histograms, because each takes much more memory than its text."""
        if len(self.histograms) > len(MESSAGE_OPERATIONS):
            raise ValueError(f"{len(self.histograms)} histograms in one second are too many")


class LoadCpu(Struct, frozen=True, kw_only=True):
    """CPU time of the load generator in the measured window."""

    user_s: Amount  # user time in seconds
    system_s: Amount  # system time in seconds
    polled_s: Amount | None = None  # CPU time of waiting without sleeping, which is not part of the share
    share: Amount  # CPU time as a share of the window times the threads


class LoadVerification(Struct, frozen=True, kw_only=True):
    """What the load generator found wrong with replies."""

    checked: Count  # values that were checked
    wrong: Count  # values of another key
    torn: Count  # values that mix parts of two writes
    stale: Count  # values older than the last acknowledged write
    unexpected_reply: Count  # replies that answer no request
    unjudged: Count = 0  # values whose staleness could not be judged, because a write of their key failed


class LoadPart(Struct, frozen=True, kw_only=True):
    """One load generator of several."""

    cpu: LoadCpu  # its CPU time
    measured_s: Amount | None = None  # length of its window in seconds
    settings: Settings = field(default_factory=dict)  # its settings by name


class LoadMessages(Struct, frozen=True, kw_only=True):
    """The fate of the messages of a run against a message service."""

    verified: bool = True  # whether the load generator followed every message
    received: Count = 0  # messages that were received; with verification, they are checked
    peeked: Count = 0  # messages that were read by a peek and stayed in their queue
    drained: Count | None = None  # messages of `received` that were read after the window
    lost: Count = 0  # messages that were acknowledged and are missing
    doubled: Count = 0  # messages that were delivered again after their end
    torn: Count = 0  # messages that differ from what was sent
    unknown: Count = 0  # messages that were not sent in this run
    misdelivered: Count = 0  # messages with another receiver, queue or sender than requested
    delivered_while_leased: Count = 0  # messages that were delivered under two valid leases
    ended_early: Count = 0  # messages with a lease that ended early
    held_too_long: Count = 0  # messages that were held for longer than the redelivery time
    refused_and_done: Count = 0  # messages that were delivered although their send was refused
    unread: Count = 0  # messages that were not read in time after the run

    def faults(self) -> dict[str, int]:
        """Return the counts that make a run invalid, by name."""
        return {
            "lost": self.lost,
            "doubled": self.doubled,
            "torn": self.torn,
            "unknown": self.unknown,
            "misdelivered": self.misdelivered,
            "delivered while leased": self.delivered_while_leased,
            "ended early": self.ended_early,
            "held too long": self.held_too_long,
            "refused and done": self.refused_and_done,
            "unread": self.unread,
        }


class LoadSource(Struct, frozen=True, kw_only=True):
    """The file of another tool that `waylab import` made a summary of."""

    tool: str  # name of the tool, for example memtier_benchmark
    file: str  # name of the file in the folder `sources` of the run
    sha256: str  # SHA-256 of the file, in hexadecimal digits
    line: Count | None = None  # line in a table; null for a file of one trial
    view: str = "client"  # whose times they are: client or middleware
    latency: str  # what the response times are, in one sentence
    corrected: bool | None = None  # whether they start when a request is due; null if unknown
    unknown: dict[str, str] = field(default_factory=dict)  # why a gate cannot be judged, by its name


class LoadSummary(Struct, frozen=True, kw_only=True):
    """The summary of a load generator, or of several that were merged."""

    format: str  # waystage-load/1
    started_unix_ns: Count | None = None  # start of second 0 in Unix time
    started_clock_ns: Count | None = None  # start of second 0 on the same clock
    measure_from_clock_ns: Count  # start of the measured window on CLOCK_MONOTONIC, in nanoseconds
    measure_to_clock_ns: Count  # end of the measured window
    measured_s: Amount  # length of the measured window in seconds
    totals: LoadTotals  # counts of the window
    throughput_per_s: Amount  # requests completed per second of the window
    operations: LoadOperations  # by operation
    seconds: list[LoadSecond]  # every second of the run, warm-up included
    cpu: LoadCpu | None = None  # CPU time in the window; null only for imported results
    verification: LoadVerification  # what was wrong with replies
    valid: bool  # the load generator's own verdict
    reasons: list[str]  # why the run is not valid
    partial: bool = False  # whether the run ended before its time
    settings: Settings = field(default_factory=dict)  # the settings of the load generator by name
    messages: LoadMessages | None = None  # null for a load of memcached
    errors: dict[str, Count] = field(default_factory=dict)  # count by first line of an error reply
    parts: list[LoadPart] = field(default_factory=list)  # the load generators of a merged summary
    source: LoadSource | None = None  # null unless the results were imported

    def __post_init__(self) -> None:
        """Require the CPU time of our own load generator."""
        if self.cpu is None and self.source is None:
            raise ValueError("Object missing required field `cpu`")

    @property
    def window_ns(self) -> tuple[int, int]:
        """The measured window on the monotonic clock."""
        return self.measure_from_clock_ns, self.measure_to_clock_ns
