"""The findings of several runs beside those of a study, as one table; every number is in a run's analysis.json."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.report.page.content import read_content
from waylab.report.page.numbers import NONE
from waylab.report.page.published import unit_of
from waylab.runfolder.analysis import FindingResult
from waylab.runfolder.files import write_bytes

VERDICTS = {"yes": "reproduced", "no": "contradicted", "undecided": "undecided", "not run": "not run"}
_HEADINGS = ("experiment", "finding", "theirs", "ours", "95 % interval", "rule", "verdict", "blocks")


def write_findings(directories: Sequence[Path], page: Path, title: str) -> Path:
    """Write one Markdown page with a row for every finding; return its path."""
    rows = list(_rows(directories))
    lines = [f"# {title}", "", counted(rows), "", *_used(directories), ""]
    lines += ["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    write_bytes(page, "\n".join([*lines, ""]).encode())
    return page


def show_findings(directories: Sequence[Path], console: Console) -> None:
    """Print the same rows without the rules, and the counts."""
    rows = list(_rows(directories))
    shown = [index for index, heading in enumerate(_HEADINGS) if heading != "rule"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index in shown:
        table.add_column(_HEADINGS[index], overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[index]) for index in shown))
    console.print(table)
    console.print(counted(rows), soft_wrap=True)


def counted(rows: Sequence[Sequence[str]]) -> str:
    """Return how many findings have each verdict, in one sentence."""
    counts = Counter(row[_HEADINGS.index("verdict")] for row in rows)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS.values() if counts[verdict])
    return f"{len(rows)} findings: {words or 'none'}."


def _used(directories: Sequence[Path]) -> Iterator[str]:
    for directory in directories:
        content = read_content(directory)
        used, total = content.analysis.trials_used, content.analysis.trials_total
        yield f"- {content.run.name}: {used} of {total} trials {content.spec.gates.passed}."


def _rows(directories: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    for directory in directories:
        content = read_content(directory)
        published = content.analysis.published
        for finding in published.findings if published else []:
            yield _row(content.run.name, finding)


def _row(name: str, finding: FindingResult) -> tuple[str, ...]:
    text = unit_of(finding)
    theirs, ours, low, high = (
        NONE if number is None else text(number)
        for number in (finding.theirs, finding.ours, finding.low, finding.high)
    )
    interval = NONE if finding.low is None else f"{low} to {high}"
    verdict = VERDICTS[finding.reproduced]
    return (name, finding.text, theirs, ours, interval, finding.rule, verdict, str(finding.blocks))
