"""Simulation of a described network by the program `waystage simulate`; the result is as any solver's, with intervals.

The only part of the models that starts a process.
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waylab.models.errors import ModelError, UnstableError
from waylab.models.network import Network
from waylab.models.network_file import network_as_dict
from waylab.models.result import Result
from waylab.program import find_waystage

Array = NDArray[np.float64]
_FORMAT = "waystage-simulation/1"
_UNSTABLE = "is unstable: utilisation "
_STATION = {
    "throughput_per_s": "station_throughput_per_s",
    "response_s": "station_response_s",
    "waiting_s": "station_waiting_s",
    "queue_length": "queue_length",
    "utilisation": "utilisation",
}


@dataclass(frozen=True, eq=False)
class SimulatedTimes:
    """Simulated quantiles of the response time in seconds."""

    shares: Array
    times_s: Array

    def quantile(self, share: float) -> float:
        """Quantile, by linear interpolation between the simulated quantiles.

        Raises:
            ModelError: for a share outside the simulated range.
        """
        if not self.shares[0] <= share <= self.shares[-1]:
            low, high = self.shares[0], self.shares[-1]
            raise ModelError("share", f"must lie between {low:g} and {high:g} of a simulation, not {share:g}")
        return float(np.interp(share, self.shares, self.times_s))


def simulate(  # noqa: PLR0913 - keywords, each a flag of the program
    network: Network,
    *,
    seed: int = 1,
    replications: int = 20,
    requests: int | None = None,
    warm_up: int | None = None,
    precision: float | None = None,
    threads: int | None = None,
    records: Path | None = None,
    sample: int = 1,
    stamps: Mapping[str, str] | None = None,
    program: Path | None = None,
) -> Result:
    """Simulate a network: independent replications, the warm-up removed, 95 % t intervals over replications.

    Each replication measures `requests` after a warm-up of `warm_up` requests. By default both follow the relaxation
    time of the slowest open queue; the warm-up also follows MSER-5 (White 1997). A run that is too short for its
    load, because of these arguments, has no intervals and a note.
    With `precision`, replications are added until the half-width of each class's mean response time is below that
    share of it. `records` is a folder for the first replication's records in the lab's format, one request in
    `sample`. `stamps` maps stages of the proxy to events such as `enter NODE` and adds records in the proxy's format.
    The same seed gives the same result with any number of `threads`. Every feature of the description is simulated.

    Raises:
        LabError: when the program is not found, or when an untrusted user could have put it there.
        ModelError: when it rejects the model or a setting; the message is its line.
        UnstableError: when arrivals at a station exceed its capacity.
    """
    arguments = ["--seed", seed, "--replications", replications, "--json"]
    given = (("requests", requests), ("warm-up", warm_up), ("precision", precision), ("threads", threads))
    for name, value in given:
        if value is not None:
            arguments += [f"--{name}", value]
    if records is not None:
        arguments += ["--records", records, "--sample", sample]
    with tempfile.TemporaryDirectory(prefix="waystage-model-") as folder:
        path = Path(folder) / "model.json"
        described = network_as_dict(network) | ({"stamps": dict(stamps)} if stamps else {})
        path.write_text(json.dumps(described), encoding="utf-8")
        content = _run(program or find_waystage(), path, [str(argument) for argument in arguments])
    return result_from_simulation(network, content)


def _run(program: Path, model: Path, arguments: Sequence[str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [str(program), "simulate", str(model), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise ModelError(str(program), f"cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        line = lines[-1].removeprefix("waystage: ") if lines else f"exited with code {done.returncode}"
        raise _refusal(line.removeprefix(f"{model}: "))
    content: dict[str, Any] = json.loads(done.stdout)
    if content.get("format") != _FORMAT:
        raise ModelError(str(program), f"writes {content.get('format')!r}, not {_FORMAT!r}; rebuild it")
    return content


def _refusal(line: str) -> ModelError:
    """Turn the program's error line into an error with field and rule."""
    where, found, rule = line.partition(": ")
    if not found:
        return ModelError("simulate", line)
    if rule.startswith(_UNSTABLE):
        return UnstableError(where, float(rule.removeprefix(_UNSTABLE).split()[0]))
    return ModelError(where, rule)


def result_from_simulation(network: Network, content: dict[str, Any]) -> Result:
    """Turn `waystage-simulation/1` into a result; the order of its parts is that of the description."""
    means: dict[str, Array] = {}
    half_widths: dict[str, Array] = {}

    def take(name: str, rows: Any) -> None:
        means[name] = _numbers(rows, "mean")
        half_widths[name] = _numbers(rows, "half_width")

    for name in ("throughput_per_s", "response_s", "lost_per_s"):
        take(name, [part[name] for part in content["classes"]])
    for name, ours in _STATION.items():
        take(ours, [[part[name] for part in station["classes"]] for station in content["stations"]])
    if content["forks"]:
        take(
            "fork_response_s", [[part["response_s"] for part in fork["classes"]] for fork in content["forks"]]
        )
    if content["pools"]:
        take("pool_waiting_s", [[part["waiting_s"] for part in pool["classes"]] for pool in content["pools"]])
        take("pool_busy", [pool["busy"] for pool in content["pools"]])
    # Without requests, rates and lengths are 0; times stay unknown.
    for name in ("throughput_per_s", "station_throughput_per_s", "queue_length", "utilisation", "lost_per_s"):
        means[name] = np.nan_to_num(means[name])
    quantiles = {
        part["name"]: SimulatedTimes(
            np.array(part["quantiles"]["share"]), np.array(part["quantiles"]["response_s"])
        )
        for part in content["classes"]
        if part["quantiles"]
    }
    warm_up = content["warm_up"]
    said = (
        f"{content['replications']} replications of {content['requests']} requests after a warm-up of "
        f"{warm_up['requests']}"
        + ("; intervals of 95 %" if content["relative_half_width"] is not None else "")
    )
    return Result(
        network=network,
        method="simulation",
        kind="simulation",
        quantiles=quantiles,
        present_probability={
            station["name"]: np.array(station["present_probability"]) for station in content["stations"]
        },
        half_widths=half_widths,
        notes=(said, *content["notes"]),
        **means,
    )


def _numbers(rows: Any, name: str) -> Array:
    if isinstance(rows, dict):
        value = rows[name]
        return np.asarray(math.nan if value is None else float(value))
    return np.array([_numbers(row, name) for row in rows], dtype=float)
