"""oha: its JSON, `--output-format json` or `--json` (https://github.com/hatoo/oha). Times are seconds."""

import re

from waylab.adapters.foreign import (
    ForeignFile,
    ForeignTimes,
    ForeignTrial,
    ReadOptions,
    WrongFileError,
    needed,
    number,
)
from waylab.runfolder.run import LoadSettings

NAME = "oha"
_NS = 1_000_000_000
_LATENCY = (
    "a response time starts when the request is sent, unless oha ran with --latency-correction, which the file does "
    "not show"
)
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


def detect(file: ForeignFile) -> bool:
    """Return whether this is the JSON of oha."""
    return isinstance(file.json, dict) and {"summary", "latencyPercentiles"} <= set(file.json)


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a run."""
    content = file.json
    measured_s = needed(content, "summary", "total")
    statuses = {
        name: round(needed(content, "statusCodeDistribution", name))
        for name in _table(content, "statusCodeDistribution")
    }
    aborted = {
        name: round(needed(content, "errorDistribution", name))
        for name in _table(content, "errorDistribution")
    }
    # What was still in flight when the time was over is no failure of the server.
    cut = aborted.get("aborted due to deadline", 0)
    replies = sum(statuses.values())
    if not replies or not measured_s:
        raise WrongFileError("has no reply; measure again")
    failed = sum(count for name, count in statuses.items() if not name.startswith(("2", "3")))
    found = {
        f"{float(match[1]):g}": value * _NS
        for name in _table(content, "latencyPercentiles")
        if (match := _PERCENTILE.fullmatch(name))
        and (value := number(content, "latencyPercentiles", name)) is not None
    }
    mean_ns = needed(content, "summary", "average") * _NS
    return [
        ForeignTrial(
            tool=NAME,
            latency=_LATENCY,
            corrected=None,
            throughput_per_s=(replies - failed) / measured_s,
            operations={"all": ForeignTimes(replies, mean_ns, None, found)},
            load=LoadSettings(clients=0),
            measured_s=measured_s,
            requests=replies,
            errors=failed + sum(aborted.values()) - cut,
            unknown={"hit_ratio": "HTTP has no hits", "steady_state": "the file has no seconds"},
        )
    ]


def _table(content: dict[str, object], name: str) -> dict[str, object]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise WrongFileError(f"has no {name}; it is truncated or of another version")
    return found
