"""Tables of trials with the columns of docs/prediction-tables.md, as `waylab validate TABLE.csv` reads them.

The run keeps each row as it is, so that `waylab validate RUN` predicts the same figures as for the table.
"""

from collections.abc import Iterator, Mapping

from waylab.adapters.foreign import ForeignFile, ForeignTimes, ForeignTrial, ReadOptions, WrongFileError
from waylab.errors import LabError
from waylab.fit.table.observations import Observation, read_observations, read_rows
from waylab.runfolder.run import LoadSettings

NAME = "table of trials"
_MS = 1_000_000
_LATENCY = (
    "response times are those of the table's authors, whose clients wait for a reply before the next request "
    "(closed loop)"
)
_OF_MIDDLEWARE = "times in the middleware, because the table has no times of the clients for this trial"


def detect(file: ForeignFile) -> bool:
    """Return whether the heading has the columns that tables of trials need."""
    heading = {name.strip().strip('"') for name in file.text.lstrip("\ufeff").split("\n", 1)[0].split(",")}
    return {"experiment", "clients_total"} <= heading


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return a trial for each row."""
    try:
        found = read_observations(file.path)
    except LabError as error:
        raise WrongFileError(
            str(error).removeprefix(f"{file.path}: ").removeprefix(f"{file.path}:")
        ) from None
    rows = read_rows(file.path)
    several = len({one.dataset for one in found}) > 1
    return [_trial(one, row, several) for one, row in zip(found, rows, strict=True)]


def _trial(one: Observation, row: Mapping[str, str], several: bool) -> ForeignTrial:
    of_clients, settings = one.view == "clients", one.settings
    throughput, response_s = one.throughput_per_s, one.response_s
    text = row.get("seconds_measured") or "0"
    measured_s = float(text) if text.replace(".", "", 1).isdigit() else 0.0
    count = round((throughput or 0.0) * measured_s)
    unknown = {"steady_state": "a table has no seconds", "errors": "the table has no errors"}
    unknown |= {} if measured_s else {"duration": "the table has no seconds_measured"}
    unknown |= (
        {} if of_clients else {"interactive_law": "the table has no times of the clients for this trial"}
    )
    middlewares = {"proxy": settings.middlewares} if settings.slots else {}
    writes = round(100 * settings.writes_share)
    levels = {"repository": one.dataset} if several else {}
    levels |= {"experiment": settings.experiment}
    levels |= {_FACTORS.get(name, name): _label(value) for name, value in settings.as_dict().items()}
    return ForeignTrial(
        tool=NAME,
        latency=_LATENCY if of_clients else _OF_MIDDLEWARE,
        corrected=False,
        loop="closed",
        view="client" if of_clients else "middleware",
        throughput_per_s=throughput or 0.0,
        operations={
            "all": ForeignTimes(
                count, response_s * 1e9 if response_s else None, None, dict(_percentiles(row, of_clients))
            )
        },
        load=LoadSettings(
            clients=settings.clients,
            ratio=f"{writes}:{100 - writes}",
            data_size=settings.value_bytes,
            multi_key_get=max(1, settings.multiget_keys),
        ),
        measured_s=measured_s,
        requests=count,
        unknown=unknown,
        levels=levels,
        block=int(one.repetition) if one.repetition.isascii() and one.repetition.isdigit() else None,
        line=one.line,
        row=row,
        failed=one.refused
        or ("" if throughput and response_s else "the table has no throughput and response time"),
        programs={**middlewares, "backends": settings.servers},
        system={
            "proxy": {
                "count": max(1, settings.middlewares),
                "dispatch": "shared",
                "workers": max(1, settings.workers),
            },
            "backends": {"count": settings.servers},
        },
    )


# The names of settings that the lab itself has.
_FACTORS = {"clients_total": "clients", "workers_per_middleware": "workers"}


def _label(value: object) -> str:
    if value is None:
        return "none"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _percentiles(row: Mapping[str, str], of_clients: bool) -> Iterator[tuple[str, float]]:
    """Yield the percentiles in the view of the throughput; none where the table has means of percentiles."""
    if of_clients and "percentiles" in (row.get("note") or ""):
        return
    for percent in ("50", "90", "95", "99"):
        text = row.get(f"response_{'clients' if of_clients else 'middleware'}_ms_p{percent}") or ""
        try:
            value = float(text)
        except ValueError:
            continue
        if 0 < value < 1e9:
            yield percent, value * _MS
