"""Station 9 of docs/life-of-an-experiment.md: the numbers and gates of one trial."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from waylab.analysis import histograms, stages, views
from waylab.analysis.artifacts import Artifacts
from waylab.analysis.database import database_use
from waylab.analysis.gates import failed_reasons, judge
from waylab.analysis.law_checks import interactive_law, record_laws
from waylab.analysis.links import link_use
from waylab.analysis.processor import processor_use
from waylab.analysis.traces import trace
from waylab.analysis.within import effective_counts, within_run
from waylab.errors import LabError
from waylab.runfolder import paths


@dataclass
class TrialResult:
    """What goes into `analysis.json`, and beside it the samples that only merging over trials needs."""

    content: dict[str, Any]
    histograms: dict[str, HdrHistogram] = field(default_factory=dict)
    stages: dict[str, dict[str, NDArray[np.int64]]] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        """Whether the trial counts."""
        return bool(self.content["used"])


def trial_result(artifacts: Artifacts, gates: dict[str, Any]) -> TrialResult:
    """Compute everything about one trial; a trial without a readable summary has only its reasons."""
    plan = artifacts.plan
    head = {key: plan[key] for key in ("id", "order", "block", "configuration", "levels", "seed")}
    head["run"] = artifacts.result is not None
    if artifacts.load is not None:
        try:
            return _measured(artifacts, gates, head)
        except LabError as error:
            artifacts.problems.append(str(error))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            artifacts.problems.append(f"{paths.LOAD}: is not what docs/load-summary.md describes: {error!r}")
    text = "; ".join(artifacts.problems)
    gate = {"name": "complete", "passed": False, "value": None, "limit": None, "text": text}
    return TrialResult({**head, "used": False, "reasons": [f"complete: {text}"], "gates": [gate]})


def _measured(artifacts: Artifacts, gates: dict[str, Any], head: dict[str, Any]) -> TrialResult:
    load, window_ns, plan = artifacts.load, artifacts.window_ns, artifacts.plan
    assert load is not None
    operations = _operations(load)
    decoded = {
        name: histograms.decode(operation["response"]["histogram"], f"{artifacts.directory}, {name}")
        for name, operation in operations.items()
        if operation.get("count")
    }
    numbers = _numbers(artifacts, decoded, gates)
    samples: dict[str, dict[str, NDArray[np.int64]]] = {}
    recorded = artifacts.records
    described = plan["system"]["description"]
    middle = recorded.get(described["stage_program"])
    if middle is not None:
        samples = stages.stage_samples(middle, window_ns)
        numbers["outcomes"] = stages.outcomes(middle, window_ns)
        numbers["stages"] = stages.stage_summary(samples)
        numbers["queue_length"] = stages.queue_summary(middle, window_ns)
        if "load" in recorded:
            numbers["proxy_view"] = views.proxy_view(recorded["load"], middle, window_ns)
    if "cache" in recorded and "load" in recorded and "cache" in described["record_files"]:
        numbers["server_view"] = views.server_view(recorded["load"], recorded["cache"], window_ns)
    laws = record_laws(load, recorded, window_ns, numbers["throughput_per_s"])
    numbers["laws"] += [law.as_dict() for law in laws]
    judged = judge(artifacts, numbers, gates)
    reasons = failed_reasons(judged)
    content = {**head, "used": not reasons, "reasons": reasons, "gates": judged, **numbers}
    return TrialResult(content, decoded, samples)


def _numbers(artifacts: Artifacts, decoded: dict[str, HdrHistogram], gates: dict[str, Any]) -> dict[str, Any]:
    load, settings = artifacts.load, artifacts.plan["load"]
    assert load is not None and artifacts.result is not None
    operations = _operations(load)
    totals = load["totals"]
    read = totals["hits"] + totals["misses"]
    response_ns = load["operations"]["all"]["response"]["mean_ns"] if totals["requests"] else None
    think_s = settings["think_mean_s"]
    in_flight = settings["clients"] * settings["pipeline"]
    throughput = load["throughput_per_s"]
    law = None
    if not settings.get("rate"):
        law = interactive_law(in_flight, throughput, response_ns, think_s, gates["interactive_law_max"])
    within = within_run(load, str(artifacts.directory))
    effective = {"all": effective_counts(within)}
    numbers: dict[str, Any] = {
        "server": artifacts.result["server"],
        "took_s": artifacts.result["took_s"],
        "measured_s": load["measured_s"],
        "requests": totals["requests"],
        "throughput_per_s": throughput,
        "largest_second_per_s": _largest_second(load),
        "think_mean_s": think_s,
        "interactive_law_error": law.residual if law else None,
        "laws": [law.as_dict()] if law else [],
        "within": within,
        "trace": trace(load, within),
        "hit_ratio": totals["hits"] / read if read else None,
        "generator_cpu_share": load["cpu"]["share"],
        "operations": {
            name: {
                "count": operations[name]["count"],
                "response_mean_ns": operations[name]["response"]["mean_ns"],
                "response_std_ns": operations[name]["response"]["std_ns"],
                "percentiles_ns": histograms.percentiles(histogram, effective.get(name)),
            }
            for name, histogram in decoded.items()
        },
    }
    try:
        numbers["processor"] = processor_use(
            artifacts.directory, load, artifacts.window_ns, totals["requests"]
        )
    except (LabError, KeyError, ValueError) as error:
        artifacts.problems.append(f"telemetry: {error}")
        numbers["processor"] = {"cpu_s": {}, "cpu_per_request_ns": {}}
        numbers["processor"] |= {"foreign_share": None, "steal_share": None}
    try:
        numbers["links"] = link_use(
            artifacts.directory, artifacts.testbed, artifacts.plan, artifacts.window_ns
        )
    except (LabError, KeyError, ValueError) as error:
        artifacts.problems.append(f"{paths.HOSTS}: {error}")
        numbers["links"] = {"utilisation": {}, "throttled_share": {}, "dropped_packets": None}
    numbers["database"] = database_use(artifacts.result, load)
    return numbers


def _operations(load: dict[str, Any]) -> dict[str, Any]:
    """Return the operations of a load by name, `all` first: those of a message service, or get and set."""
    operations = load["operations"]
    known = operations.get("messages") or {
        name: operations[name] for name in operations if name != "messages"
    }
    return {"all": operations["all"], **known}


def _largest_second(load: dict[str, Any]) -> float | None:
    """Return the most requests in one whole second of the window; the last one may be cut short."""
    counts = [second["requests"] for second in load["seconds"] if second["measured"]]
    return float(max(counts)) if counts else None
