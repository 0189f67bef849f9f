"""The calibration of a study: the configuration with a known throughput, and the specification that measures it."""

import math
from dataclasses import dataclass

from waylab.spec.naming import nearest_here
from waylab.spec.tables import Table, check_keys, text

_KEYS = ("experiment", "of", "host", "throughput_per_s")
# The name of the run that calibrates a host, and its blocks.
CALIBRATION = "calibration"
CALIBRATION_BLOCKS = 5


@dataclass(frozen=True)
class CalibratedHost:
    """The throughput that a host must have, in one configuration of an experiment, before the study is run.

    How much CPU time a request takes depends on the machine; the share of a core follows from it.
    """

    experiment: str
    # The levels of all factors of the experiment.
    of: Table
    host: str
    # Requests per second of the described hosts.
    throughput_per_s: float
    # The share of a core with which the search begins.
    cores: float


def calibration_spec(experiment: Table, calibration: CalibratedHost) -> Table:
    """Return the specification that measures the calibrated configuration of its experiment: one level of a factor."""
    content = dict(experiment)
    for key in ("published", "compare", "predict", "stopping", "report"):
        content.pop(key, None)
    scales = content.get("scale", {})
    kept = ("blocks", "warm_up_s", "test_time_s")
    levels = {
        factor: {str(level): found[str(level)]} if isinstance(found, dict) else [level]
        for factor, level in calibration.of.items()
        for found in (content["factors"][factor],)
    }
    return content | {
        "name": CALIBRATION,
        "question": f"Which share of a core does {calibration.host} need for "
        f"{calibration.throughput_per_s:,.0f} requests/s?",
        "hypothesis": "The cores that this run gives it are right.",
        "refuted_by": [{"metric": "failed_trials", "above": 0}],
        "factors": levels,
        "design": {"blocks": CALIBRATION_BLOCKS, "seed": content.get("design", {}).get("seed", 1)},
        "scale": {
            name: {key: value for key, value in scale.items() if key in kept} | {"blocks": CALIBRATION_BLOCKS}
            for name, scale in scales.items()
        },
    }


def read_calibration(content: object, experiments: dict[str, Table]) -> CalibratedHost:
    """Read the table `calibration` of a study; ValueError names the key that is wrong."""
    if not isinstance(content, dict):
        raise ValueError("calibration: should be a table")
    where = "calibration."
    check_keys(content, _KEYS, where)
    if CALIBRATION in experiments:
        raise ValueError(f"experiment.name = {CALIBRATION!r}: is the name of the calibration")
    experiment, host = text(content, "experiment", where), text(content, "host", where)
    if experiment not in experiments:
        raise ValueError(
            f"{where}experiment = {experiment!r}: is not an experiment; "
            + nearest_here(experiment, list(experiments), "")
        )
    hosts = hosts_of(experiments[experiment])
    cores = hosts[host].get("cores") if isinstance(hosts.get(host), dict) else None
    if not isinstance(cores, (int, float)) or isinstance(cores, bool):
        raise ValueError(f"{where}host = {host!r}: is not a host of {experiment} with cores")
    of, factors = content.get("of", {}), experiments[experiment].get("factors", {})
    if not isinstance(of, dict) or set(of) != set(factors):
        raise ValueError(f"{where}of: must have one level of each factor: {', '.join(sorted(factors))}")
    for factor, level in of.items():
        if (str(level) if isinstance(factors[factor], dict) else level) not in factors[factor]:
            raise ValueError(f"{where}of.{factor} = {level!r}: is not a level of {experiment}")
    rate = content.get("throughput_per_s")
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate < math.inf:
        raise ValueError(f"{where}throughput_per_s = {rate!r}: should be a number above 0")
    return CalibratedHost(experiment, of, host, float(rate), float(cores))


def hosts_of(content: Table) -> Table:
    """Return the described hosts of a specification by name; empty without any."""
    testbed = content.get("testbed", {})
    hosts = testbed.get("hosts", {}) if isinstance(testbed, dict) else {}
    return hosts if isinstance(hosts, dict) else {}
