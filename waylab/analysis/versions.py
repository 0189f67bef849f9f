"""Two runs of one specification, say of two versions of a program: paired by configuration and block, with a verdict.

Reads the analyses of both; knows nothing of their trials' files.
"""

import math
import re
from pathlib import Path
from typing import Any

from waylab import __version__
from waylab.analysis.comparisons import metric_of
from waylab.analysis.run import read_analysis
from waylab.analysis.statistics import paired_ratio
from waylab.analysis.verdicts import BETTER, EQUIVALENT, WORSE, verdict, verdict_sentence
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.files import read_json, read_run

METRICS = ("throughput_per_s", "response_mean_ns", "cpu_per_request_ns.total")
MARGIN = 0.05
_LEVEL = 0.05
_KNOWN = re.compile(
    r"throughput_per_s|response_mean_ns|response_p(50|90|95|99)_ns"
    r"|cpu_per_request_ns\.(total|load|proxy|backends|messages|database|interrupts)"
    r"|(commits|wal_bytes|wal_syncs)_per_(request|message)"
)
_KNOWN_WORDS = (
    "throughput_per_s, response_mean_ns, response_p50_ns (_p90_, _p95_, _p99_), "
    "cpu_per_request_ns.total (.load, .proxy, .backends, .messages, .database, .interrupts), "
    "commits_per_request, wal_bytes_, wal_syncs_ (_per_message)"
)
# Facts of the environment that make two runs comparable.
_SAME = ("processor", "kernel", "cores_usable", "governor")


def compare_runs(
    baseline: Path, candidate: Path, margin: float = MARGIN, metrics: tuple[str, ...] = METRICS
) -> dict[str, Any]:
    """Compare the candidate with the baseline; ratios are candidate / baseline.

    Intervals are at 1 - 5 % / metrics (Bonferroni), so that a false alarm over all metrics comes at most once in
    twenty. Equivalence needs no such correction, since all metrics must show it (Berger 1982). `verdict` is `worse`
    if any metric is, `no worse` if all are equivalent or better, else `undecided`.

    Raises:
        LabError: for runs of different specifications or scales, without a trial in common, or a margin of 0.
    """
    if not margin > 0:
        raise LabError(f"compare: the margin must be above 0, not {margin:g}")
    for metric in metrics:
        if not _KNOWN.fullmatch(metric):
            raise LabError(f"compare: metric {metric!r} is unknown; known: {_KNOWN_WORDS}")
    runs = [read_run(directory) for directory in (baseline, candidate)]
    _check_same(baseline, candidate, runs)
    analyses = [read_analysis(directory) for directory in (baseline, candidate)]
    pairs = _pairs(analyses)
    if not pairs:
        raise LabError(f"{candidate}: has no used trial that {baseline} has, too; look at both reports")
    found = [_metric(metric, pairs, margin, 1 - _LEVEL / len(metrics)) for metric in metrics]
    verdicts = [one["verdict"] for one in found]
    if WORSE in verdicts:
        said = WORSE
    else:
        said = "no worse" if all(one in (EQUIVALENT, BETTER) for one in verdicts) else "undecided"
    return {
        "format": paths.COMPARE_FORMAT,
        "waylab": __version__,
        "name": runs[0]["name"],
        "question": runs[0]["spec"]["question"],
        "baseline": _side(baseline, runs[0], analyses[0]),
        "candidate": _side(candidate, runs[1], analyses[1]),
        "margin": margin,
        "confidence": 1 - _LEVEL / len(metrics),
        "pairs": len(pairs),
        "metrics": found,
        "verdict": said,
        "notes": _notes(baseline, candidate),
    }


def _check_same(baseline: Path, candidate: Path, runs: list[dict[str, Any]]) -> None:
    if baseline.resolve() == candidate.resolve():
        raise LabError(f"compare: {baseline} cannot be compared with itself")
    for key in ("quick", "scale"):
        if runs[0].get(key) != runs[1].get(key):
            raise LabError(
                f"compare: {key} is {runs[0].get(key)} in {baseline}, {runs[1].get(key)} in {candidate}"
            )
    different = _first_difference(runs[0]["spec"], runs[1]["spec"])
    if different:
        raise LabError(f"compare: {baseline} and {candidate} have different specifications, in {different}")


def _first_difference(one: Any, other: Any, where: str = "") -> str:
    """Name the first key whose values differ; empty when there is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            found = _first_difference(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
            if found:
                return found
        return ""
    return "" if one == other else where


def _pairs(analyses: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the trials that were used in both, by configuration and block."""
    sides = [
        {(trial["configuration"], trial["block"]): trial for trial in analysis["trials"] if trial["used"]}
        for analysis in analyses
    ]
    order = [configuration["name"] for configuration in analyses[0]["configurations"]]
    both = sorted((key for key in sides[0] if key in sides[1]), key=lambda key: (order.index(key[0]), key[1]))
    return {key: [sides[0][key], sides[1][key]] for key in both}


def _metric(
    metric: str, pairs: dict[tuple[str, int], list[dict[str, Any]]], margin: float, confidence: float
) -> dict[str, Any]:
    ratios: dict[str, dict[int, float]] = {}
    for (configuration, block), pair in pairs.items():
        before, after = (metric_of(content, metric) for content in pair)
        if before and after:
            ratios.setdefault(configuration, {})[block] = math.log(after / before)
    # Only blocks that every configuration has mean the same; if there is none, all that there are.
    blocks = set.intersection(*(set(found) for found in ratios.values())) if ratios else set()
    everywhere = sorted(blocks or {block for found in ratios.values() for block in found})
    means = []
    for block in everywhere:
        members = [found[block] for found in ratios.values() if block in found]
        means.append(math.fsum(members) / len(members))
    overall = paired_ratio(means, margin, confidence)
    return {
        "metric": metric,
        "overall": overall,
        "verdict": verdict(overall, metric),
        "text": verdict_sentence(overall, metric, margin),
        "configurations": [
            {"name": name, **paired_ratio(list(found.values()), margin, confidence)}
            for name, found in ratios.items()
        ],
    }


def _side(directory: Path, run: dict[str, Any], analysis: dict[str, Any]) -> dict[str, Any]:
    environment = _environment(directory)
    program = environment["programs"].get("waystage") or {}
    return {
        "directory": str(directory),
        "created_utc": run["created_utc"],
        "version": program.get("version"),
        "sha256": program.get("sha256"),
        "commit": (environment.get("source") or {}).get("commit"),
        "trials_used": analysis["trials_used"],
        "trials_total": analysis["trials_total"],
    }


def _notes(baseline: Path, candidate: Path) -> list[str]:
    """Say what weakens the comparison."""
    first, second = _environment(baseline), _environment(candidate)
    notes = [
        "The runs were made one after the other: what changed on the machine between them is in the ratios, too. "
        "Versions that run interleaved, as levels of one factor, are compared more sharply."
    ]
    notes += [
        f"Not the same machine or state: {key} is {first.get(key)} in the baseline, {second.get(key)} in the candidate."
        for key in _SAME
        if first.get(key) != second.get(key)
    ]
    hashes = [(side["programs"].get("waystage") or {}).get("sha256") for side in (first, second)]
    if hashes[0] == hashes[1]:
        notes.append("Both runs have the very same program: this is a null comparison, and tells the noise.")
    return notes


def _environment(directory: Path) -> dict[str, Any]:
    path = directory / paths.ENVIRONMENT
    return read_json(path, paths.ENVIRONMENT_FORMAT, "the run folder is incomplete")
