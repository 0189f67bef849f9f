"""Observations: one typed row for each trial, with its settings and what was measured, from a table of aggregates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct, ValidationError, convert

from waylab.bounded import UnreadableError, read_csv
from waylab.errors import LabError
from waylab.runfolder.run import Run

# A row whose throughput times response time differs from its clients by more than this breaks the interactive law.
LAW_DEVIATION_MAX = 0.1
_CONTRADICTION = 0.1
# Trials of a configuration contradict each other if their throughputs differ by more than this; then only those within
# the second ratio of their median count.
_TRIALS_APART = 0.35
_NEAR_MEDIAN = 0.2
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_REFUSING_NOTES = ("do not use", "law>")
_NEEDED = ("experiment", "clients_total")
_NUMBERS_MAX = 1e15
# The closed cycle is solved for each number of clients, so its memory and time grow with them.
CLIENTS_MAX = 20_000
# Spreadsheets write a byte order mark before the first heading.
_BYTE_ORDER_MARK = "\ufeff"


class TableRow(Struct, frozen=True, kw_only=True):
    """A row of a table in the plan of an imported run."""

    file: str
    line: int
    cells: dict[str, str]


@dataclass(frozen=True, order=True)
class CellSettings:
    """The settings of a configuration. `None` means that the table does not have the setting."""

    experiment: str
    workload: str
    servers: int
    middlewares: int
    workers: int
    client_machines: int
    clients: int
    writes_share: float
    multiget_keys: int
    sharded: bool
    value_bytes: int

    @property
    def slots(self) -> int:
        """Workers of all middlewares; 0 without a middleware."""
        return self.workers * self.middlewares

    def as_dict(self) -> dict[str, object]:
        """The settings under the names of the table's columns."""
        return {
            "workload": self.workload,
            "servers": self.servers,
            "middlewares": self.middlewares,
            "workers_per_middleware": self.workers if self.middlewares else None,
            "client_machines": self.client_machines,
            "clients_total": self.clients,
            "writes_share": self.writes_share,
            "multiget_keys": self.multiget_keys or None,
            "sharded": self.sharded if self.multiget_keys else None,
            "value_bytes": self.value_bytes,
        }


@dataclass(frozen=True)
class Observation:
    """What one trial measured, or the mean of several: rates per second, times in seconds. `None`: not measured."""

    dataset: str
    settings: CellSettings
    line: int
    repetition: str
    throughput_clients_per_s: float | None
    throughput_middleware_per_s: float | None
    response_clients_s: float | None
    response_middleware_s: float | None
    response_p95_s: float | None
    queue_s: float | None
    holding_s: float | None
    queue_length: float | None
    cpu_server: float | None
    cpu_middleware: float | None
    refused: str = ""

    @property
    def throughput_per_s(self) -> float | None:
        """Throughput in the clients' view, or in the middlewares' view where the clients' is not in the table."""
        if self.throughput_clients_per_s is not None:
            return self.throughput_clients_per_s
        return self.throughput_middleware_per_s

    @property
    def response_s(self) -> float | None:
        """Mean response time in the same view as the throughput."""
        if self.throughput_clients_per_s is not None:
            return self.response_clients_s
        return self.response_middleware_s

    @property
    def view(self) -> str:
        """Whose measurement throughput and response time are."""
        return "clients" if self.throughput_clients_per_s is not None else "middlewares"


def read_observations(path: Path) -> list[Observation]:
    """Read a table with the columns of the field data, one row for each trial.

    Raises:
        LabError: when there is no such file, it is no CSV table, lacks a column, or has a value that is no number.
    """
    rows = read_rows(path)
    return _without_contradictions([_observation(path, line, row) for line, row in enumerate(rows, start=2)])


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of such a table as they are, the first of which is on line 2.

    Raises:
        LabError: when there is no such file, it is no CSV table, or lacks a column.
    """
    try:
        rows = read_csv(path)
    except FileNotFoundError:
        raise LabError(f"{path}: there is no such file") from None
    except UnreadableError as error:
        raise LabError(f"{path}: {error}") from None
    rows = [{name.removeprefix(_BYTE_ORDER_MARK).strip(): text for name, text in row.items()} for row in rows]
    if not rows:
        raise LabError(f"{path}: has no rows; give a table with one row for each trial")
    missing = [name for name in _NEEDED if name not in rows[0]]
    if not {"throughput_clients_per_s", "throughput_middleware_per_s"} & set(rows[0]):
        missing.append("throughput_clients_per_s")
    if missing:
        hint = "; separate the columns by commas" if len(rows[0]) == 1 else ""
        raise LabError(f"{path}: has no column {' and no column '.join(missing)}{hint}")
    return rows


def observations_of_runs(runs: Sequence[Run]) -> list[Observation]:
    """Return the rows of the tables that runs were imported from; empty for runs that were measured.

    Raises:
        LabError: when a row has a value that is no number.
    """
    found = []
    for run in runs:
        for planned in run.plan:
            row = planned.system.get("row")
            if isinstance(row, dict):
                try:
                    kept = convert(row, TableRow)
                except ValidationError as error:
                    raise LabError(
                        f"{planned.id}: its row of a table is damaged: {error}; import it again"
                    ) from None
                found.append(_observation(Path(kept.file), kept.line, kept.cells))
    return _without_contradictions(found)


def _observation(path: Path, line: int, row: dict[str, str]) -> Observation:
    wrong: list[str] = []

    def number(name: str) -> float | None:
        text = (row.get(name) or "").strip()
        if not text or text.lower() in {"nan", "na", "null", "none"}:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or abs(value) > _NUMBERS_MAX:
            raise LabError(f"{path}:{line}: {name} is {text[:40]!r}; give a number or leave it empty")
        return value

    def positive(name: str, factor: float = 1.0) -> float | None:
        value = number(name)
        judged = name.startswith(("throughput", "response"))
        if judged and value is not None and (value < 0 or (value == 0 and name.startswith("throughput"))):
            wrong.append(f"its {name} is {value:g}")
        return value * factor if value is not None and value > 0 else None

    def whole(name: str, default: int) -> int:
        value = number(name)
        if value is None:
            return default
        if value != int(value) or value < 0:
            raise LabError(f"{path}:{line}: {name} is {row[name][:40]!r}; give a whole number")
        return int(value)

    clients = whole("clients_total", 0)
    if clients < 1:
        raise LabError(
            f"{path}:{line}: clients_total is {row['clients_total'][:40]!r}; give a positive integer"
        )
    if clients > CLIENTS_MAX:
        wrong.append(f"its clients_total is {clients}, and at most {CLIENTS_MAX} clients are modelled")
    workers = whole("workers_per_middleware", 0)
    middlewares = whole("middlewares", 1 if workers else 0)
    workload = (row.get("workload") or "").strip()
    keys = whole("multiget_keys", 0)
    writes_share = number("writes_share")
    if writes_share is not None and not 0 <= writes_share <= 1:
        raise LabError(f"{path}:{line}: writes_share is {writes_share:g}; give a share between 0 and 1")
    sharded = _TRUTHS.get((row.get("sharded") or "").strip().lower())
    observation = Observation(
        dataset=(row.get("repository") or "").strip() or path.stem,
        settings=CellSettings(
            experiment=row["experiment"].strip(),
            workload=workload,
            servers=max(1, whole("servers", 1)),
            middlewares=middlewares if workers else 0,
            workers=workers if middlewares else 0,
            client_machines=whole("client_machines", 1),
            clients=clients,
            writes_share=_writes_share(writes_share, workload),
            multiget_keys=keys,
            sharded=bool(whole("sharded", 0)) if sharded is None else sharded,
            value_bytes=whole("value_bytes", 0),
        ),
        line=line,
        repetition=(row.get("repetition") or "").strip(),
        throughput_clients_per_s=positive("throughput_clients_per_s"),
        throughput_middleware_per_s=positive("throughput_middleware_per_s"),
        response_clients_s=positive("response_clients_ms_mean", 1e-3),
        response_middleware_s=positive("response_middleware_ms_mean", 1e-3),
        response_p95_s=positive("response_middleware_ms_p95", 1e-3),
        queue_s=positive("queue_ms_mean", 1e-3),
        holding_s=positive("worker_ms_mean", 1e-3),
        queue_length=positive("queue_length_mean"),
        cpu_server=positive("cpu_server_mean"),
        cpu_middleware=positive("cpu_middleware_mean"),
    )
    return replace(observation, refused="; ".join(wrong) or _refusal(observation, row.get("note") or ""))


def _without_contradictions(found: list[Observation]) -> list[Observation]:
    """Refuse rows of one configuration with the same repetition and different throughputs."""
    groups: dict[tuple[str, CellSettings, str], list[float]] = {}
    for one in found:
        if one.repetition and one.throughput_per_s is not None:
            groups.setdefault((one.dataset, one.settings, one.repetition), []).append(one.throughput_per_s)
    checked = []
    for one in found:
        rates = groups.get((one.dataset, one.settings, one.repetition), [])
        if not one.refused and rates and max(rates) > (1 + _CONTRADICTION) * min(rates):
            reason = (
                f"rows contradict each other: repetition {one.repetition[:20]} of this configuration has throughputs "
                f"from {min(rates):.6g} to {max(rates):.6g} per s"
            )
            checked.append(replace(one, refused=reason))
        else:
            checked.append(one)
    return checked


def _writes_share(given: float | None, workload: str) -> float:
    """The share of writes, rounded because tables count it; where it is not given, from the name of the workload."""
    if given is not None:
        return round(given, 2)
    return {"read": 0.0, "write": 1.0}.get(workload, 0.5)


def _refusal(one: Observation, note: str) -> str:
    """Why a row can neither be learned from nor judged, or nothing."""
    for text in _REFUSING_NOTES:
        if text in note.lower():
            return f"its note says {note.strip()[:100]!r}"
    if one.throughput_per_s is None:
        return "its throughput is not in the table"
    clients = one.settings.clients
    inside = one.throughput_clients_per_s, one.response_clients_s
    if inside[0] is not None and inside[1] is not None:
        ratio = inside[0] * inside[1] / clients
        if ratio > 1 + LAW_DEVIATION_MAX:
            return (
                f"it breaks the interactive law: throughput x response time is {ratio:.2f} times the clients"
            )
    rate = one.throughput_middleware_per_s or one.throughput_per_s
    if one.response_middleware_s is not None:
        ratio = rate * one.response_middleware_s / clients
        if ratio > 1 + LAW_DEVIATION_MAX:
            return (
                f"it breaks the interactive law: throughput x response time in the middlewares is {ratio:.2f} "
                f"times the clients"
            )
    return ""


@dataclass(frozen=True)
class ObservedCell:
    """The mean of the trials of one configuration that agree, and how much they vary."""

    mean: Observation
    repetitions: int
    # Standard deviation of ln X and of ln R between trials; None for a single trial.
    throughput_spread: float | None
    response_spread: float | None
    # Why the measurement is doubtful, or nothing.
    flag: str = ""

    @property
    def settings(self) -> CellSettings:
        """The configuration."""
        return self.mean.settings

    @property
    def throughput_per_s(self) -> float:
        """Mean throughput."""
        assert self.mean.throughput_per_s is not None
        return self.mean.throughput_per_s


_MEASURES = (
    "throughput_clients_per_s",
    "throughput_middleware_per_s",
    "response_clients_s",
    "response_middleware_s",
    "response_p95_s",
    "queue_s",
    "holding_s",
    "queue_length",
    "cpu_server",
    "cpu_middleware",
)


def cells_of(
    observations: Sequence[Observation],
) -> tuple[list[ObservedCell], list[tuple[Observation, str]]]:
    """Average the trials of each configuration; the second list has configurations without a usable trial."""
    groups: dict[tuple[str, CellSettings], list[Observation]] = {}
    for one in observations:
        groups.setdefault((one.dataset, one.settings), []).append(one)
    cells: list[ObservedCell] = []
    refused: list[tuple[Observation, str]] = []
    for key in sorted(groups):
        group = groups[key]
        used = [one for one in group if not one.refused]
        if any(one.throughput_clients_per_s is not None for one in used):
            # All means of a cell are in one view.
            used = [one for one in used if one.throughput_clients_per_s is not None]
        used, flag = _near_median(used)
        if not used:
            reasons = sorted({one.refused for one in group})
            refused.append((group[0], "; ".join(reasons)))
            continue
        means: dict[str, float | None] = {}
        for name in _MEASURES:
            values = [value for one in used if (value := getattr(one, name)) is not None]
            means[name] = sum(values) / len(values) if values else None
        mean = replace(used[0], **means)  # type: ignore[arg-type]
        cells.append(
            ObservedCell(
                mean,
                len(used),
                _spread([one.throughput_per_s for one in used]),
                _spread([one.response_middleware_s or one.response_s for one in used]),
                flag,
            )
        )
    return cells, refused


def _near_median(trials: list[Observation]) -> tuple[list[Observation], str]:
    """The trials that count, and why the configuration is doubtful."""
    rates = sorted(one.throughput_per_s for one in trials if one.throughput_per_s is not None)
    if not rates or rates[-1] <= (1 + _TRIALS_APART) * rates[0]:
        return trials, ""
    middle = statistics.median(rates)
    near = [one for one in trials if abs((one.throughput_per_s or 0.0) / middle - 1) <= _NEAR_MEDIAN]
    used = near or trials
    return used, (
        f"its {len(rates)} trials have throughputs from {rates[0]:.6g} to {rates[-1]:.6g} per s; "
        f"{len(used)} of them count; repeat it"
    )


def _spread(values: Sequence[float | None]) -> float | None:
    logs = [math.log(value) for value in values if value]
    if len(logs) < 2:
        return None
    centre = sum(logs) / len(logs)
    return math.sqrt(sum((value - centre) ** 2 for value in logs) / (len(logs) - 1))
