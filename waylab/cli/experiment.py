"""`waylab.experiment`: a specification that is written in Python, and run from there.

It is written as the TOML file that `waylab run` reads, so that a run can be repeated without the program.
"""

from __future__ import annotations

import math
import signal
import threading
import tomllib
from collections.abc import Mapping
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from waylab.cli.commands import conclude, minutes, run_campaign
from waylab.cli.interrupt import Interrupt
from waylab.errors import LabError
from waylab.notebook import OpenedRun
from waylab.plan import Plan, make_plan
from waylab.predict import check_models
from waylab.run import InterruptedRunError, create_run
from waylab.runfolder.files import write_bytes
from waylab.spec import FULL, Spec, spec_of, toml_text

if TYPE_CHECKING:
    from pandas import DataFrame

_NAME = Path("experiment")
_DEPTH_MAX = 50
_BITS_MAX = 10_000
# Columns of a plan that a factor must not hide.
_COLUMNS = ("trial", "order", "block", "seed", "expected_s")


class BuiltExperiment:
    """A checked specification: its plan, and its runs. Nothing runs before `run`."""

    def __init__(self, content: Mapping[str, object]) -> None:
        """Write and check a specification with the keys of the TOML file.

        Raises:
            LabError: in one line, with the key and what it may be.
        """
        try:
            self.text: str = toml_text({key: _plain(value, key) for key, value in content.items()})
        except ValueError as error:
            raise LabError(f"{_NAME}: {error}") from None
        self.spec: Spec = spec_of(tomllib.loads(self.text), _NAME)
        check_models(rule.model for rule in self.spec.refuted_by)

    @property
    def name(self) -> str:
        """The name of the experiment, and of its run folders."""
        return self.spec.name

    @property
    def expected_s(self) -> float:
        """The expected duration of all trials, in seconds."""
        return self._planned.expected_s

    @cached_property
    def plan(self) -> DataFrame:
        """One row for each trial, in the order in which they run."""
        import pandas  # noqa: PLC0415 # only a notebook needs data frames

        return pandas.DataFrame(
            [
                {
                    "trial": trial.id,
                    "order": trial.order,
                    "block": trial.block,
                    **{_column(name): label for name, label in trial.levels},
                    "seed": trial.seed,
                    "expected_s": trial.expected_s,
                }
                for trial in self._planned.trials
            ]
        )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the specification as a TOML file for `waylab run`, and return its path.

        Raises:
            LabError: if it cannot be written.
        """
        written = Path(path)
        write_bytes(written, self.text.encode())
        return written

    def run(
        self, results: str | PathLike[str] = "results", scale: str = FULL, quiet: bool = False
    ) -> OpenedRun:
        """Run all trials, analyse them and write the report; return the run.

        The specification is saved as `NAME.toml` in the folder `results`, which also gets the run folder. A line on
        standard error shows each finished trial, unless `quiet`.

        Raises:
            LabError: if the experiment cannot run here, or if it is interrupted; the message says how to continue.
        """
        if threading.current_thread() is not threading.main_thread():
            raise LabError(
                f"{_NAME}: run() was called in another thread; call it in the main thread, which receives signals"
            )
        folder = Path(results)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: cannot create a folder for the run: {error.strerror}") from None
        console = Console(stderr=True, highlight=False, quiet=quiet)
        campaign = create_run(self.save(folder / f"{self.name}.toml"), folder, scale, self.text)
        interrupt = Interrupt()
        before = signal.signal(signal.SIGINT, interrupt.handle)
        try:
            run_campaign(campaign, console, interrupt)
            conclude(campaign.directory, console, summary=False)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"stopped; continue with: waylab run --resume {campaign.directory}"
            ) from None
        finally:
            signal.signal(signal.SIGINT, before)
        return OpenedRun(campaign.directory)

    def __repr__(self) -> str:
        """Name, question, factors and duration, as text."""
        factors = [
            f"  {factor.name}: {', '.join(level.label for level in factor.levels)}"
            for factor in self.spec.factors
        ]
        return "\n".join([f"{self.name}: {self.spec.question}", *factors, f"  {self._how_long}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(factor.name)}</th>"
            f"<td>{escape(', '.join(level.label for level in factor.levels))}</td></tr>"
            for factor in self.spec.factors
        )
        head = f"<p><b>{escape(self.name)}</b>: {escape(self.spec.question)}</p>"
        return f"{head}<table>{rows}</table><p>{escape(self._how_long)}</p>"

    @cached_property
    def _planned(self) -> Plan:
        return make_plan(self.spec)

    @property
    def _how_long(self) -> str:
        return f"{len(self._planned.trials)} trials, about {minutes(self.expected_s)}"


def _column(factor: str) -> str:
    return f"factor_{factor}" if factor in _COLUMNS else factor


def _plain(value: object, where: str, depth: int = 0) -> object:
    """Return a value as TOML knows it; a path, a tuple, a range, and a number or an array of numpy are such values.

    Raises:
        ValueError: in one line for any other value; `where` is its key.
    """
    if depth > _DEPTH_MAX:
        raise ValueError(f"{where.partition('.')[0]} is nested too deeply")
    if isinstance(value, Mapping):
        found: dict[str, object] = {}
        for name, one in value.items():
            # The key 1 and the key "1" are the same in TOML.
            key = _checked(str(name), where)
            if key in found:
                raise ValueError(f"{where} has the key {key} twice")
            found[key] = _plain(one, f"{where}.{key}", depth + 1)
        return found
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, list | tuple | range):
        return [_plain(one, where, depth + 1) for one in value]
    # Before numbers: a float of numpy is a float.
    to_plain = None if isinstance(value, type) else getattr(value, "tolist", None)
    if callable(to_plain):
        return _plain(to_plain(), where, depth + 1)
    if isinstance(value, str):
        return _checked(value, where)
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        raise ValueError(f"{where} is a number with thousands of digits")
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        f"{where} = {str(value)[:80]!r}: should be text, a number, a truth value, a list or a table"
    )


def _checked(text: str, where: str) -> str:
    """Return a text that a file can have: half of a pair of surrogates is no character."""
    alone = next((one for one in text if "\ud800" <= one <= "\udfff"), None)
    if alone is not None:
        raise ValueError(f"{where} has the character U+{ord(alone):04X}, which no file in UTF-8 has")
    return text
