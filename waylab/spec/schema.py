"""The parts of a specification as frozen dataclasses; each field carries its default and its check.

`experiments/demo.toml` explains every key.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from waylab.spec import checks
from waylab.spec.factors import Factor
from waylab.spec.findings import Published
from waylab.spec.hosts import Assignment, TestbedSettings
from waylab.spec.messages import Database, Messages, operations


def setting(check: checks.Check, default: Any) -> Any:
    """Make a field with a default and a check of what a specification puts in its place."""
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Backends:
    """The memcached servers behind the proxy."""

    count: int = setting(checks.whole(1, 64), 3)
    server: str = setting(checks.one_of("auto", "memcached", "embedded"), "auto")
    memory: str = setting(checks.size, "64m")
    threads: int = setting(checks.whole(1, 64), 1)
    service_time: str = setting(checks.distribution, "none")
    workers: int = setting(checks.whole(1, 1024), 1)
    seed: int = setting(checks.whole(0), 1)


@dataclass(frozen=True)
class Proxy:
    """The proxy under test; of several, all are alike and in front of the same backends."""

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

    def copies(self, backends: int) -> int:
        """Return how many copies there are of each value: half the backends is rounded up."""
        return {"half": (backends + 1) // 2, "full": backends}.get(str(self.replicas)) or int(self.replicas)

    def slots(self) -> dict[str, int]:
        """Return the kinds of slots that the discipline has, with how many there are of each."""
        names = {"per-backend": ("readers", "writers"), "shared": ("workers",)}.get(self.dispatch, ())
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class System:
    """What is measured: proxies with backends, or backends alone; message services with their database, or it alone."""

    kind: str = setting(checks.one_of("proxy", "nutcracker", "direct", "messages", "database"), "proxy")
    direct_to: str = setting(checks.one_of("one", "all"), "one")
    backends: Backends = field(default_factory=Backends)
    proxy: Proxy = field(default_factory=Proxy)
    messages: Messages = field(default_factory=Messages)
    database: Database = field(default_factory=Database)

    def resolved(self) -> "System":
        """Return the system with a number in the place of every word that stands for one."""
        return replace(self, proxy=replace(self.proxy, replicas=self.proxy.copies(self.backends.count)))

    @property
    def proxies(self) -> int:
        """How many proxies of whatever kind stand between load and backends."""
        return self.proxy.count if self.kind in ("proxy", "nutcracker") else 0

    @property
    def services(self) -> int:
        """How many message services there are."""
        return self.messages.services if self.kind == "messages" else 0

    @property
    def databases(self) -> int:
        """How many databases are in use: one, unless nothing asks for it."""
        return int(self.kind == "database" or (self.kind == "messages" and self.messages.has_database))

    def backends_for(self, generators: int) -> int:
        """How many backends there are: one that no load generator goes to would have nothing to do."""
        if self.kind in ("messages", "database"):
            return 0
        alone = self.kind == "direct" and self.direct_to == "one"
        return min(self.backends.count, generators) if alone else self.backends.count


@dataclass(frozen=True)
class Load:
    """What the load generator does: a closed loop of clients or, with a rate, an open one."""

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


# Levels of factors by their labels: `(("clients", ("1",)), ("workers", ("8", "64")))`.
Pattern = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Design:
    """Which combinations of levels, how often and in which order."""

    kind: str = setting(checks.one_of("crossed", "listed", "2k", "2k-p"), "crossed")
    generators: tuple[str, ...] = setting(checks.texts, ())
    exclude: tuple[Pattern, ...] = ()
    trials: tuple[Pattern, ...] = ()
    blocks: int = setting(checks.whole(1, 1000), 3)
    seed: int = setting(checks.whole(0), 1)
    order: str = setting(checks.one_of("random", "mirrored"), "random")


@dataclass(frozen=True)
class Stopping:
    """How precise the metrics must be before no further block is run; a precision of 0 is no rule."""

    precision: float = setting(checks.number(0, 1), 0.0)
    metrics: tuple[str, ...] = setting(checks.metrics, ("throughput_per_s",))
    blocks_min: int = setting(checks.whole(3, 1000), 4)
    blocks_max: int = setting(checks.whole(3, 1000), 12)
    budget_s: float = setting(checks.number(0, 864_000), 0.0)


@dataclass(frozen=True)
class Prediction:
    """Which configurations models may learn from, and which ones they are judged by."""

    calibrate: tuple[Pattern, ...] = ()
    held_out: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class Scale:
    """What is different at another scale than the full one; `levels` are those that are kept."""

    blocks: int | None = setting(checks.whole(1, 1000), None)
    test_time_s: float | None = setting(checks.number(0, 86400, above=True), None)
    warm_up_s: float | None = setting(checks.number(0, 3600), None)
    precision: float | None = setting(checks.number(0, 1, above=True), None)
    blocks_min: int | None = setting(checks.whole(3, 1000), None)
    blocks_max: int | None = setting(checks.whole(3, 1000), None)
    budget_s: float | None = setting(checks.number(0, 864_000), None)
    levels: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Gates:
    """What a trial must meet to be used; a looser limit than the default needs a reason."""

    generator_cpu_max: float = setting(checks.number(0, 1.5, above=True), 0.8)
    foreign_cpu_max: float = setting(checks.number(0, 1, above=True), 0.2)
    steal_max: float = setting(checks.number(0, 1, above=True), 0.1)
    hit_ratio_min: float = setting(checks.number(0, 1), 0.999)
    interactive_law_max: float = setting(checks.number(0, 10, above=True), 0.03)
    dropped_records_max: int = setting(checks.whole(0), 0)
    link_error_max: float = setting(checks.number(0, 1, above=True), 0.05)
    errors_max: int = setting(checks.whole(0), 0)
    verification: bool = setting(checks.flag, True)
    reason: str = setting(checks.text, "")

    def loosened(self) -> list[str]:
        """Name the limits that are looser than the defaults."""
        default = Gates()
        names = [
            name
            for name in (
                "generator_cpu_max",
                "foreign_cpu_max",
                "steal_max",
                "interactive_law_max",
                "dropped_records_max",
                "link_error_max",
            )
            if getattr(self, name) > getattr(default, name)
        ]
        names += ["errors_max"] if self.errors_max > default.errors_max else []
        names += ["hit_ratio_min"] if self.hit_ratio_min < default.hit_ratio_min else []
        names += ["verification"] if not self.verification else []
        return names


@dataclass(frozen=True)
class Compare:
    """Two levels of one factor, compared in pairs within blocks."""

    factor: str = setting(checks.text, "")
    baseline: str = ""
    candidate: str = ""
    metric: str = setting(checks.metric, "throughput_per_s")
    margin: float = setting(checks.number(0, 10), 0.0)
    role: str = setting(checks.one_of("effect", "null", "control"), "effect")
    added: str = setting(checks.duration_text, "")
    ratio: float = setting(checks.number(0, 1000), 0.0)


@dataclass(frozen=True)
class ReportOptions:
    """What the page shows beyond the defaults."""

    x: str = setting(checks.text, "")
    threats: tuple[str, ...] = setting(checks.texts, ())


@dataclass(frozen=True)
class Spec:
    """One experiment."""

    name: str = setting(checks.text, "")
    question: str = setting(checks.text, "")
    hypothesis: str = setting(checks.text, "")
    refuted_by: str = setting(checks.text, "")
    system: System = field(default_factory=System)
    load: Load = field(default_factory=Load)
    testbed: TestbedSettings = field(default_factory=TestbedSettings)
    assignment: Assignment = field(default_factory=Assignment)
    factors: tuple[Factor, ...] = ()
    design: Design = field(default_factory=Design)
    stopping: Stopping = field(default_factory=Stopping)
    predict: Prediction = field(default_factory=Prediction)
    scales: tuple[tuple[str, Scale], ...] = ()
    gates: Gates = field(default_factory=Gates)
    compare: tuple[Compare, ...] = ()
    published: Published = field(default_factory=Published)
    report: ReportOptions = field(default_factory=ReportOptions)
