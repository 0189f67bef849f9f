"""A study: several specifications with changes that apply to all of them, and the specifications that result.

The result is an ordinary specification, complete in one file, so that nothing else of the lab knows of studies.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from waylab import bounded
from waylab.errors import LabError
from waylab.runfolder.files import write_bytes
from waylab.runfolder.run import check_file_name
from waylab.spec.naming import nearest_here
from waylab.spec.tables import Table

_KEYS = ("name", "title", "calibration", "changes", "experiment")
_CALIBRATION_KEYS = ("experiment", "of", "host", "throughput_per_s")
_EXPERIMENT_KEYS = ("spec", "name", "control", "changes")
# The name of the run that calibrates a host, and its blocks.
CALIBRATION = "calibration"
CALIBRATION_BLOCKS = 3
# A larger file would be refused when it is read again, and no list of a specification is this deep.
_DEPTH_MAX = 16


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


@dataclass(frozen=True)
class Study:
    """The experiments of a study by name, each as the content of its specification."""

    name: str
    title: str
    experiments: dict[str, Table]
    # Experiments that show the cause of a finding of another one. Their findings are not counted.
    controls: frozenset[str] = frozenset()
    calibration: CalibratedHost | None = None

    def with_cores(self, cores: float) -> "Study":
        """Return the study with another share of a core for the calibrated host, in every experiment that has it."""
        if self.calibration is None:
            return self
        change = {"testbed": {"hosts": {self.calibration.host: {"cores": cores}}}}
        return replace(
            self,
            experiments={
                name: with_changes(content, change, "calibration")
                if self.calibration.host in _hosts(content)
                else content
                for name, content in self.experiments.items()
            },
        )


def read_study(path: Path) -> Study:
    """Read a study and apply its changes to its specifications."""
    content = _read(path, "study")
    try:
        _check_keys(content, _KEYS, "")
        name, title = _name(_text(content, "name", ""), "name"), _text(content, "title", "")
        listed = content.get("experiment")
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise ValueError("experiment: is missing; a study lists its specifications as [[experiment]]")
        experiments: dict[str, Table] = {}
        controls = set()
        for index, one in enumerate(listed):
            where = f"experiment[{index}]"
            _check_keys(one, _EXPERIMENT_KEYS, f"{where}.")
            spec = path.parent / _text(one, "spec", f"{where}.")
            changed = _read(spec, "specification")
            for changes in (content.get("changes", {}), one.get("changes", {})):
                changed = with_changes(changed, changes, f"{where}.changes")
            label = _name(str(one.get("name", changed.get("name", spec.stem))), f"{where}.name")
            if label in experiments:
                raise ValueError(f"{where}.name = {label!r}: names an experiment twice")
            experiments[label] = changed | {"name": label}
            if not isinstance(one.get("control", False), bool):
                raise ValueError(f"{where}.control: should be true or false")
            if one.get("control"):
                controls.add(label)
        calibration = _calibration(content["calibration"], experiments) if "calibration" in content else None
    except ValueError as error:
        raise LabError(f"{path}: {error}") from None
    return Study(name, title, experiments, frozenset(controls), calibration)


def calibration_spec(study: Study, calibration: CalibratedHost, cores: float) -> Table:
    """Return the specification that measures the calibrated configuration: its experiment, one level of a factor."""
    content = dict(study.with_cores(cores).experiments[calibration.experiment])
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
        "hypothesis": "The cores that this run gives it are right within 3 %.",
        "refuted_by": [{"metric": "failed_trials", "above": 0}],
        "factors": levels,
        "design": {"blocks": CALIBRATION_BLOCKS, "seed": content.get("design", {}).get("seed", 1)},
        "scale": {
            name: {key: value for key, value in scale.items() if key in kept} | {"blocks": CALIBRATION_BLOCKS}
            for name, scale in scales.items()
        },
    }


def _calibration(content: object, experiments: dict[str, Table]) -> CalibratedHost:
    if not isinstance(content, dict):
        raise ValueError("calibration: should be a table")
    where = "calibration."
    _check_keys(content, _CALIBRATION_KEYS, where)
    if CALIBRATION in experiments:
        raise ValueError(f"experiment.name = {CALIBRATION!r}: is the name of the calibration")
    experiment, host = _text(content, "experiment", where), _text(content, "host", where)
    if experiment not in experiments:
        raise ValueError(
            f"{where}experiment = {experiment!r}: is not an experiment; "
            + nearest_here(experiment, list(experiments), "")
        )
    hosts = _hosts(experiments[experiment])
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


def _hosts(content: Table) -> Table:
    testbed = content.get("testbed", {})
    hosts = testbed.get("hosts", {}) if isinstance(testbed, dict) else {}
    return hosts if isinstance(hosts, dict) else {}


def write_specs(study: Study, folder: Path) -> dict[str, Path]:
    """Write the specification of every experiment into the folder; a file that is already right is not touched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: cannot be created: {error.strerror}") from None
    paths = {name: folder / f"{name}.toml" for name in study.experiments}
    for name, path in paths.items():
        text = toml_text(study.experiments[name]).encode()
        if not path.is_file() or path.read_bytes() != text:
            write_bytes(path, text)
    return paths


def with_changes(content: Table, changes: object, where: str) -> Table:
    """Return a table with changes: tables are merged key by key, every other value is replaced."""
    if not isinstance(changes, dict):
        raise ValueError(f"{where}: should be a table")
    merged = dict(content)
    for key, value in changes.items():
        if isinstance(value, dict):
            inner = merged.get(key, {})
            merged[key] = with_changes(inner if isinstance(inner, dict) else {}, value, f"{where}.{key}")
        else:
            merged[key] = value
    return merged


def toml_text(content: Table) -> str:
    """Write a table as TOML: one section for every table at the top, everything below it inline."""
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, table in content.items():
        if isinstance(table, dict):
            lines += [
                "",
                f"[{_key(key)}]",
                *(f"{_key(name)} = {_value(value)}" for name, value in table.items()),
            ]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)


def _value(value: object, depth: int = 0) -> str:
    if depth > _DEPTH_MAX:
        raise ValueError("is nested too deeply")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, str):
        # A JSON string is a TOML string, apart from the character DEL.
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        inner = [_value(one, depth + 1) for one in value]
        if depth == 0 and any(isinstance(one, dict) for one in value):
            return "[\n" + "".join(f"    {one},\n" for one in inner) + "]"
        return f"[{', '.join(inner)}]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(key)} = {_value(one, depth + 1)}" for key, one in value.items()) + " }"
        )
    raise ValueError(f"{value!r}: a specification has no such value")


def _read(path: Path, what: str) -> Table:
    try:
        return bounded.read_toml(path)
    except FileNotFoundError:
        raise LabError(f"{path}: no such {what}") from None
    except bounded.UnreadableError as error:
        raise LabError(f"{path}: {error}") from None


def _check_keys(content: Table, known: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in known:
            raise ValueError(f"{where}{key} is not a key; {nearest_here(key, list(known), '')}")


def _name(name: str, where: str) -> str:
    """Return a name that becomes that of a file."""
    try:
        check_file_name(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return name


def _text(content: Table, key: str, where: str) -> str:
    value = content.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}{key}: is missing; it is a text")
    return value
