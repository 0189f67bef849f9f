"""`waylab validate`: held-out configurations of a table, predicted by every model and compared with the measurement."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from waylab.cli.patience import Patience
from waylab.cli.validate.report import show_table_errors
from waylab.cli.validate.runs import validate_runs
from waylab.errors import LabError
from waylab.fit.table.observations import Observation, observations_of_runs, read_observations
from waylab.predict.table.judge import judge
from waylab.predict.table.rows import row_of
from waylab.runfolder.files import read_run


def validate(arguments: argparse.Namespace) -> int:
    """Hold out cells of a table or the configurations that a specification names, and print the errors."""
    missing = [path for path in arguments.table if not path.exists()]
    if missing:
        raise LabError(f"{missing[0]}: there is no such file or run folder")
    if any(path.is_dir() for path in arguments.table):
        imported = _imported_rows(arguments.table)
        return _validate_table(arguments, imported) if imported else validate_runs(arguments)
    if len(arguments.table) > 1:
        raise LabError("validate: give one table, or run folders")
    return _validate_table(arguments, read_observations(arguments.table[0]))


def _imported_rows(paths: Sequence[Path]) -> list[Observation]:
    """Return the rows of the tables that run folders were imported from."""
    return observations_of_runs([read_run(path) for path in paths if path.is_dir()])


def _validate_table(arguments: argparse.Namespace, observations: list[Observation]) -> int:
    if arguments.split is None:
        raise LabError("validate: a table needs --split pools, clients, servers or levels")
    with Patience("predicting held-out cells", arguments.interrupt) as patience:

        def report(done: int, total: int) -> None:
            patience.check()
            patience.show(f"{done} of {total} hold-outs done")

        try:
            found = judge(observations, arguments.split, report)
        except LabError as error:
            raise LabError(f"{arguments.table[0]}: {error}") from None
    if arguments.json:
        print(json.dumps([row_of(one) for one in found], indent=1, allow_nan=False))
    else:
        show_table_errors(found, arguments.split)
    return 0
