"""The summaries of several load generators as one, exactly: counts and histograms are added, percentiles read anew.

What cannot be added (percentiles of single seconds) is left out. Knows nothing of analysis.
"""

import math
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

from waylab import folder
from waylab.errors import LabError

# The least share of their windows in which all generators must have measured at once; the rest was another load.
OVERLAP_MIN = 0.9
_HIGHEST_NS = 3_600_000_000_000
_NOT_NUMBERS_TO_ADD = ("second", "measured", "mean_ns", "p50_ns", "p99_ns", "max_ns")


def merge_summaries(directory: Path, names: list[str]) -> None:
    """Write `load.json` of a trial from the summaries of its generators."""
    parts = [
        folder.read_json(directory / name, folder.LOAD_FORMAT, "the load wrote no summary") for name in names
    ]
    try:
        merged = merged_summary(parts, names)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise LabError(
            f"{directory}: {', '.join(names)} are not what docs/load-summary.md describes: {error!r}"
        ) from None
    folder.write_json(directory / folder.LOAD, merged)


def merged_summary(parts: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Put summaries of generators that ran at the same time together; shapes as in docs/load-summary.md."""
    start_ns = max(part["measure_from_clock_ns"] for part in parts)
    end_ns = min(part["measure_to_clock_ns"] for part in parts)
    measured_s = sum(part["measured_s"] for part in parts) / len(parts)
    reasons = [
        f"{name}: {reason}" for name, part in zip(names, parts, strict=True) for reason in part["reasons"]
    ]
    overlap = (end_ns - start_ns) * 1e-9 / measured_s
    if overlap <= 0:
        raise LabError("load: the generators did not measure at the same time at all")
    if overlap < OVERLAP_MIN:
        reasons.append(
            f"the load generators measured at the same time for {100 * overlap:.1f} % of their windows only, "
            f"at least {100 * OVERLAP_MIN:g} %"
        )
    settings = dict(parts[0].get("settings", {}))
    for key in ("clients", "threads"):
        if key in settings:
            settings[key] = sum(part["settings"][key] for part in parts)
    return {
        "format": folder.LOAD_FORMAT,
        "version": parts[0].get("version"),
        "arguments": [part.get("arguments") for part in parts],
        "settings": settings,
        "started_unix_ns": min(part.get("started_unix_ns", 0) for part in parts),
        "measure_from_clock_ns": start_ns,
        "measure_to_clock_ns": end_ns,
        "measured_s": measured_s,
        "totals": _added([part["totals"] for part in parts]),
        "throughput_per_s": sum(part["throughput_per_s"] for part in parts),
        "operations": {
            name: _operation([part["operations"][name] for part in parts]) for name in parts[0]["operations"]
        },
        "seconds": _seconds([part["seconds"] for part in parts]),
        "cpu": {
            "user_s": sum(part["cpu"]["user_s"] for part in parts),
            "system_s": sum(part["cpu"]["system_s"] for part in parts),
            # The busiest one: it is the first to be a bottleneck.
            "share": max(part["cpu"]["share"] for part in parts),
        },
        "verification": _added([part["verification"] for part in parts]),
        "errors": _added([part["errors"] for part in parts]),
        "valid": all(part["valid"] for part in parts) and overlap >= OVERLAP_MIN,
        "reasons": reasons,
        "generators": [_short(name, part) for name, part in zip(names, parts, strict=True)],
    }


def _short(name: str, part: dict[str, Any]) -> dict[str, Any]:
    keys = ("throughput_per_s", "measure_from_clock_ns", "measure_to_clock_ns", "cpu")
    return {"summary": name, **{key: part[key] for key in keys}}


def _added(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: sum(part.get(key, 0) for part in parts) for part in parts for key in part}


def _operation(parts: list[dict[str, Any]]) -> dict[str, Any]:
    merged = _added([{key: value for key, value in part.items() if isinstance(value, int)} for part in parts])
    counts = [part["count"] for part in parts]
    for name in ("response", "service", "slip"):
        merged[name] = _times([part[name] for part in parts], counts)
    return merged


def _times(parts: list[dict[str, Any]], counts: list[int]) -> dict[str, Any]:
    """Merge one kind of time; mean and deviation from those of the parts, exact by the law of total variance."""
    total = sum(counts)
    histogram = HdrHistogram(1, _HIGHEST_NS, 3)
    for part in parts:
        if part["histogram"]:
            histogram.add(HdrHistogram.decode(part["histogram"]))
    there = [(part, count) for part, count in zip(parts, counts, strict=True) if count]
    mean = sum(count * part["mean_ns"] for part, count in there) / total if total else 0.0
    square = sum(count * (part["std_ns"] ** 2 + (part["mean_ns"] - mean) ** 2) for part, count in there)
    percents = parts[0]["percentiles"]
    return {
        "mean_ns": mean,
        "std_ns": math.sqrt(square / total) if total else 0.0,
        "min_ns": min((part["min_ns"] for part, _ in there), default=0),
        "max_ns": max((part["max_ns"] for part, _ in there), default=0),
        "percentiles": {
            percent: int(histogram.get_value_at_percentile(float(percent))) if total else 0
            for percent in percents
        },
        "histogram": histogram.encode().decode() if total else "",
    }


def _seconds(parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Add the seconds up; they are those of each generator's own clock, which started within milliseconds."""
    merged = []
    for index in range(min(len(part) for part in parts)):
        rows = [part[index] for part in parts]
        requests = sum(row["requests"] for row in rows)
        row = _added(
            [{key: value for key, value in row.items() if key not in _NOT_NUMBERS_TO_ADD} for row in rows]
        )
        weighted = sum(row.get("mean_ns", 0.0) * row["requests"] for row in rows)
        row |= {
            "second": rows[0]["second"],
            "measured": all(row["measured"] for row in rows),
            "mean_ns": weighted / requests if requests else 0.0,
            "p50_ns": None,
            "p99_ns": None,
            "max_ns": max(row.get("max_ns", 0) for row in rows),
        }
        merged.append(row)
    return merged
