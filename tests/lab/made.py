"""Complete parts of an analysis, so that a test states only the values that it tests."""

from msgspec import convert, to_builtins
from msgspec.structs import replace

from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.analysis import Configuration
from waylab.runfolder.load import LoadSummary
from waylab.runfolder.numbers import Interval
from waylab.runfolder.run import ExperimentSpec, LoadSettings
from waylab.runfolder.trial_numbers import (
    STAGES,
    TOTAL,
    AnalysedTrial,
    CpuUse,
    LinkUse,
    TrialNumbers,
    WithinTrial,
)
from waylab.spec import Spec, System, spec_as_dict

NONE = Interval(count=0, mean=None, low=None, high=None)


def interval(mean, low=None, high=None):
    return Interval(count=1, mean=mean, low=low, high=high)


def made_spec(**parts) -> ExperimentSpec:
    """The specification of an experiment without factors; `parts` may be plain dicts and lists."""
    content = spec_as_dict(Spec(name="made", question="q", hypothesis="h", refuted_by=()))
    return convert(content | to_builtins(parts), ExperimentSpec)


def made_numbers(**parts) -> TrialNumbers:
    nothing = {
        "server": "embedded",
        "took_s": 3.0,
        "measured_s": 2.0,
        "requests": 1,
        "throughput_per_s": 1.0,
        "largest_second_per_s": None,
        "think_mean_s": 0.0,
        "interactive_law_error": None,
        "laws": [],
        "within": WithinTrial(seconds=0),
        "trace": None,
        "hit_ratio": None,
        "generator_cpu_share": 0.5,
        "operations": {},
        "cpu": CpuUse(),
        "links": LinkUse(),
        "database": {},
    }
    plain = {name: one.item() if hasattr(one, "item") else one for name, one in (nothing | parts).items()}
    return convert(plain, TrialNumbers, from_attributes=True)


def made_trial(levels, block=1, order=1, used=True, **numbers) -> TrialResult:
    """A trial with these numbers; `numbers` may be plain dicts."""
    name = ", ".join(f"{factor}={label}" for factor, label in levels.items())
    content = AnalysedTrial(
        id=f"b{block}-{name}",
        order=order,
        block=block,
        configuration=name,
        levels=levels,
        seed=1,
        run=True,
        used=used,
        reasons=[],
        gates=[],
        numbers=made_numbers(**numbers),
    )
    return TrialResult(content)


def without_use(result: TrialResult) -> TrialResult:
    """The same trial, as if it had failed a gate."""
    return TrialResult(replace(result.content, used=False))


def with_numbers(result: TrialResult, **parts) -> TrialResult:
    """The same trial with other numbers."""
    return TrialResult(replace(result.content, numbers=replace(result.numbers, **parts)))


def made_system(system: System, generators: int = 1):
    """The settings of a system as `run.json` stores them."""
    return to_builtins(system) | {"description": to_builtins(system.under_test.describe(system, generators))}


def made_configuration(**parts) -> Configuration:
    """A configuration of a proxy with one trial; `parts` may be plain dicts."""
    nothing = {
        "name": "base",
        "levels": {},
        "x": "base",
        "series": "all trials",
        "places": {},
        "system": made_system(System()),
        "load": LoadSettings(clients=1),
        "server": "embedded",
        "trials": 1,
        "used": 1,
        "think_mean_s": 0.0,
        "throughput_per_s": interval(1.0),
        "largest_second_per_s": None,
        "interactive_law_error": NONE,
        "hit_ratio": NONE,
        "miss_ratio": NONE,
        "queue_length": None,
        "generator_cpu_share": NONE,
        "busy_share": NONE,
        "laws": [],
        "operations": {},
        "distribution": [],
        "shapes": {},
        "cpu_per_request_ns": {},
        "link_utilisation": {},
        "database": {},
        "stages": {},
        "proxy_view": None,
        "server_view": None,
    }
    return convert(to_builtins(nothing | parts), Configuration)


def made_load(**parts) -> LoadSummary:
    """The summary of a load without requests; `parts` may be plain dicts."""
    times = {"mean_ns": None, "std_ns": None, "histogram": ""}
    nothing = {
        "format": "waystage-load/1",
        "measure_from_clock_ns": 0,
        "measure_to_clock_ns": 1_000_000_000,
        "measured_s": 1.0,
        "totals": {"requests": 0, "hits": 0, "misses": 0, "errors": 0},
        "throughput_per_s": 0.0,
        "operations": {"all": {"count": 0, "response": times}},
        "seconds": [],
        "cpu": {"user_s": 0.0, "system_s": 0.0, "share": 0.0},
        "verification": {"checked": 0, "wrong": 0, "torn": 0, "stale": 0, "unexpected_reply": 0},
        "valid": True,
        "reasons": [],
    }
    return convert(nothing | parts, LoadSummary)


def made_stages(**means_ns):
    """The stages of one operation of a configuration, empty unless given; every percentile is the mean."""
    percentiles = ("p5_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns")
    times = {
        name: {"mean_ns": interval(mean_ns), **dict.fromkeys(percentiles, mean_ns)}
        for name, mean_ns in (dict.fromkeys((*STAGES, TOTAL), 0.0) | means_ns).items()
    }
    return {"count": 1, "stages": times}
