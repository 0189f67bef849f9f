"""vegeta: the JSON of `vegeta report -type=json`. Times are nanoseconds.

The names are those of lib/metrics.go (https://github.com/tsenart/vegeta).
"""

import re
from datetime import datetime
from typing import Any

from waylab.adapters.foreign import (
    ForeignFile,
    ForeignTimes,
    ForeignTrial,
    ReadOptions,
    WrongFileError,
    needed,
    same,
)
from waylab.runfolder.run import LoadSettings

NAME = "vegeta"
_LATENCY = (
    "an open loop that adds connections while replies are late; a response time starts when the request is sent, so "
    "that a delay of vegeta itself is missing"
)
_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?)th")
_NANOSECONDS = re.compile(r"(\.\d{6})\d+")


def detect(file: ForeignFile) -> bool:
    """Return whether this is a report of vegeta."""
    return isinstance(file.json, dict) and {"latencies", "requests", "success"} <= set(file.json)


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a report."""
    content = file.json
    latencies = content.get("latencies")
    requests, success = round(needed(content, "requests")), needed(content, "success")
    sending_ns, wait_ns = needed(content, "duration"), needed(content, "wait")
    if requests < 2 or not sending_ns:
        raise WrongFileError(f"has {requests} requests; measure again")
    if success > 1:
        raise WrongFileError(f"success is {success:g}, and should be a share")
    percentiles = {
        f"{float(match[1]):g}": needed(latencies, name, where="latencies")
        for name in latencies
        if (match := _PERCENTILE.fullmatch(name))
    }
    statuses = content.get("status_codes")
    if isinstance(statuses, dict) and statuses:
        good = sum(needed(statuses, name) for name in statuses if name.startswith(("2", "3")))
        same(
            success * requests,
            good,
            f"success is {success:g}, but {good:g} of {requests} replies are 2xx or 3xx",
        )
    completed, measured_s = round(success * requests), (sending_ns + wait_ns) * 1e-9
    # There is one gap less than requests. Three digits, because runs of one rate should be one configuration.
    sent_per_s = float(f"{(requests - 1) / (sending_ns * 1e-9):.3g}")
    return [
        ForeignTrial(
            tool=NAME,
            latency=_LATENCY,
            corrected=False,
            loop="open",
            throughput_per_s=completed / measured_s,
            operations={
                "all": ForeignTimes(requests, needed(latencies, "mean", where="latencies"), None, percentiles)
            },
            load=LoadSettings(clients=0, rate=sent_per_s),
            measured_s=measured_s,
            requests=requests,
            errors=requests - completed,
            started_unix_s=_unix_s(content),
            unknown={"hit_ratio": "HTTP has no hits", "steady_state": "a report has no seconds"},
        )
    ]


def _unix_s(content: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(_NANOSECONDS.sub(r"\1", str(content.get("earliest")))).timestamp()
    except (ValueError, OverflowError):
        return None
