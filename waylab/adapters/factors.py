"""The factors of imported trials: from `--set`, names of files, columns, and settings in which files differ."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as changed

from waylab.adapters.foreign import ForeignTrial, WrongFileError
from waylab.errors import LabError
from waylab.runfolder.columns import TAKEN
from waylab.runfolder.run import FactorLevel, FactorLevels, LoadSettings, Value
from waylab.spec import mean_time_s

# Settings that the lab knows by these names: the dotted key, and whether they are whole numbers.
_SETTINGS = {
    "clients": ("load.clients", True),
    "rate": ("load.rate", False),
    "threads": ("load.threads", True),
    "pipeline": ("load.pipeline", True),
    "multi_key_get": ("load.multi_key_get", True),
    "data_size": ("load.data_size", True),
    "ratio": ("load.ratio", None),
    "think_time": ("load.think_time", None),
    "servers": ("system.backends.count", True),
}
# Settings that become a factor if files differ in them.
_DIFFERING = ("clients", "rate", "pipeline", "multi_key_get", "data_size", "ratio")
_BLOCK = "block"
_COUNT_MAX = 1_000_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,39}")
_IN_FILE_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_.]*)=(.+?)(?=$|[,; -]+[A-Za-z][A-Za-z0-9_.]*=)")
_PLACE = re.compile(r"\{([^{}]*)\}")
_LABEL_MAX = 60


def is_setting(name: str) -> bool:
    """Return whether a name is a setting of the lab."""
    return name in _SETTINGS


def check_factor(name: str, where: str = "") -> None:
    """Raise LabError for a name that no factor may have; `where` stands before it in the message.

    Raises:
        WrongFileError: for a name with other characters, or that of a column of the results.
    """
    if not _NAME.fullmatch(name):
        raise WrongFileError(
            f"{where}{name[:60]!r}: a factor has letters, digits and underscores, and begins with a letter"
        )
    if name not in _SETTINGS and TAKEN.fullmatch(name):
        raise WrongFileError(
            f"{where}{name}: is the name of a column of the results; rename it, for example my_{name.rstrip('_')}_level"
        )


def given_levels(texts: Sequence[str]) -> dict[str, str]:
    """Return the levels of `--set NAME=VALUE`.

    Raises:
        LabError: for a text without "=", a name that is taken, or one that is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise LabError(f"--set {text[:60]}: give NAME=VALUE, for example clients=64 or version=7.2")
        if name in found:
            raise LabError(f"--set {name}: is given twice")
        if name != _BLOCK:
            check_factor(name, "--set ")
        found[name] = value
    return found


def levels_of_name(path: Path, pattern: str) -> dict[str, str]:
    """Return the levels in the name of a file: by a pattern such as `{version}-{clients}.json`, or each NAME=VALUE.

    Raises:
        LabError: for a pattern that does not match, or a name that is taken.
    """
    if not pattern:
        found = dict(_IN_FILE_NAME.findall(path.stem if path.suffix not in ("", ".") else path.name))
    else:
        depth = pattern.count("/") + 1
        name, parts = "/".join(path.parts[-depth:]), _PLACE.split(pattern)
        names = parts[1::2]
        if len(set(names)) < len(names) or not names:
            raise LabError(
                f"--names {pattern}: give each factor once, for example {{version}}-{{clients}}.json"
            )
        joined = "".join(re.escape(part) if index % 2 == 0 else "(.+?)" for index, part in enumerate(parts))
        match = re.fullmatch(joined, name)
        if match is None:
            raise LabError(f"{path}: its name does not match --names {pattern}")
        found = dict(zip(names, match.groups(), strict=True))
    for name in found:
        if name != _BLOCK:
            check_factor(name, f"{path}: ")
    return found


def with_levels(trial: ForeignTrial, levels: Mapping[str, str], where: str) -> ForeignTrial:
    """Return a trial with these levels; those that are settings of the lab become its settings.

    Raises:
        LabError: for a level that contradicts the file, or that is no value of its setting.
    """
    found, load, programs = dict(trial.levels), trial.load, dict(trial.programs)
    block = trial.block
    for name, text in levels.items():
        if name == _BLOCK:
            block = int(_number(text, f"{where}: {_BLOCK}", whole=True))
            continue
        known = found.setdefault(name, text)
        if known != text:
            raise LabError(f"{where}: {name} is {known!r} in the file, and {text!r} is given; give one")
    for name, text in found.items():
        if len(text) > _LABEL_MAX or not text.isprintable():
            raise LabError(
                f"{where}: {name} is {text[:40]!r}; give a level of at most {_LABEL_MAX} printable characters"
            )
        if name == "servers":
            programs["backends"] = int(_number(text, f"{where}: {name}", whole=True))
        elif name in _SETTINGS:
            load = _with_setting(load, name, text, where)
    return replace(trial, levels=found, load=load, programs=programs, block=block)


def _with_setting(load: LoadSettings, name: str, text: str, where: str) -> LoadSettings:
    if name == "think_time":
        try:
            return changed(load, think_time=text, think_mean_s=mean_time_s(text))
        except ValueError as error:
            raise LabError(f"{where}: think_time is {text!r}: {error}") from None
    if name == "ratio":
        if not re.fullmatch(r"\d{1,6}:\d{1,6}", text) or text.replace("0", "") == ":":
            raise LabError(f"{where}: ratio is {text!r}; give sets to gets, for example 1:10")
        return changed(load, ratio=text)
    whole = bool(_SETTINGS[name][1])
    value = _number(text, f"{where}: {name}", whole)
    before = getattr(load, name)
    # A tool may send at another rate than the given one. 0, 1 and 128 are what a file without the setting has.
    if name != "rate" and before not in (0, 1, 128) and before != value:
        raise LabError(
            f"{where}: {name} is {before:g} in the file, and {value:g} is given; give the file's own"
        )
    return changed(load, **{name: int(value) if whole else value})


def _number(text: str, where: str, whole: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= (_COUNT_MAX if whole else 1e9) or (whole and value != int(value)):
        raise LabError(f"{where} is {text[:40]!r}; give a positive {'integer' if whole else 'number'}")
    return value


def with_differing_settings(trials: Sequence[ForeignTrial]) -> list[ForeignTrial]:
    """Return the trials with a further factor for each setting of the load in which files differ."""
    found = list(trials)
    for name in _DIFFERING:
        values = {getattr(one.load, name) for one in found if not one.failed}
        if len(values) > 1 and not any(name in one.levels for one in found):
            found = [
                replace(one, levels={**one.levels, name: _label(getattr(one.load, name))}) for one in found
            ]
    names = dict.fromkeys(name for one in found for name in one.levels)
    # A file without the level of a factor that others have.
    return [replace(one, levels={name: _level(one, name) for name in names}) for one in found]


def _level(one: ForeignTrial, name: str) -> str:
    """Return the level of a factor; for a file without it, its own setting."""
    if name in one.levels:
        return one.levels[name]
    return _label(getattr(one.load, name)) if name in _DIFFERING else "none"


def _label(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def factors_of(trials: Sequence[ForeignTrial]) -> list[FactorLevels]:
    """Return the factors with their levels: numbers in order, words as they appear."""
    found = []
    for name in trials[0].levels if trials else ():
        labels = list(dict.fromkeys(one.levels[name] for one in trials))
        numbers = {label: _as_number(label) for label in labels}
        known = [number for number in numbers.values() if number is not None]
        if len(known) == len(labels):
            labels.sort(key=lambda label: numbers[label] or 0.0)
        key = _SETTINGS[name][0] if name in _SETTINGS else f"import.{name}"
        levels = [FactorLevel(label=label, settings={key: _value(numbers[label], label)}) for label in labels]
        found.append(FactorLevels(name=name, key=key, levels=levels))
    return found


def _as_number(label: str) -> float | None:
    try:
        value = float(label)
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def _value(number: float | None, label: str) -> Value:
    if number is None:
        return label
    return int(number) if number == int(number) else number
