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
from waylab.spec.calibration import CalibratedHost, hosts_of, read_calibration
from waylab.spec.tables import Table, check_keys, text

_KEYS = ("name", "title", "calibration", "changes", "experiment")
_EXPERIMENT_KEYS = ("spec", "name", "control", "changes")
# A larger file would be refused when it is read again, and no list of a specification is this deep.
_DEPTH_MAX = 16


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
                if self.calibration.host in hosts_of(content)
                else content
                for name, content in self.experiments.items()
            },
        )


def read_study(path: Path) -> Study:
    """Read a study and apply its changes to its specifications."""
    content = _read(path, "study")
    try:
        check_keys(content, _KEYS, "")
        name, title = _name(text(content, "name", ""), "name"), text(content, "title", "")
        listed = content.get("experiment")
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise ValueError("experiment: is missing; a study lists its specifications as [[experiment]]")
        experiments: dict[str, Table] = {}
        controls = set()
        for index, one in enumerate(listed):
            where = f"experiment[{index}]"
            check_keys(one, _EXPERIMENT_KEYS, f"{where}.")
            spec = path.parent / text(one, "spec", f"{where}.")
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
        calibration = (
            read_calibration(content["calibration"], experiments) if "calibration" in content else None
        )
    except ValueError as error:
        raise LabError(f"{path}: {error}") from None
    return Study(name, title, experiments, frozenset(controls), calibration)


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
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else _text(name)


def _text(value: str) -> str:
    # A JSON string is a TOML string, apart from the character DEL and from pairs of surrogates.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object, depth: int = 0) -> str:
    if depth > _DEPTH_MAX:
        raise ValueError("is nested too deeply")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
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


def _name(name: str, where: str) -> str:
    """Return a name that becomes that of a file."""
    try:
        check_file_name(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return name
