"""Several experiments on one page: question, what was found, main figure, gates, and the way to each report.

Works offline: styles and figures are within the page. Links are relative to where it is written.
"""

import base64
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from waylab.errors import LabError
from waylab.report.page.content import Content, read_content
from waylab.report.page.first import verdict_box
from waylab.report.page.numbers import shown
from waylab.report.page.offline import document
from waylab.report.tables.table import table
from waylab.runfolder import paths
from waylab.runfolder.files import write_bytes
from waylab.runfolder.gate_words import gate_name

# The main figure of a run: the first of these that it has.
_MAIN = ("throughput", "response-mean", "factorial-effects", "trace-throughput", "comparisons")
_FACTS_MAX = 12


@dataclass(frozen=True)
class _Part:
    """One experiment: its content, or why there is none."""

    directory: Path
    content: Content | None
    problem: str = ""

    @property
    def name(self) -> str:
        return self.content.run.name if self.content else self.directory.name


def find_runs(given: list[Path]) -> list[Path]:
    """Return the run folders: each path is one, or contains some.

    Raises:
        LabError: if a path neither is nor contains a run folder.
    """
    found: list[Path] = []
    for path in given:
        runs = (
            [path] if (path / paths.RUN).is_file() else sorted(p.parent for p in path.glob(f"*/{paths.RUN}"))
        )
        if not runs:
            raise LabError(f"{path}: neither is nor contains a run folder")
        found += [run for run in runs if run not in found]
    return found


def write_campaign(directories: list[Path], path: Path, title: str) -> Path:
    """Write the page over these runs, in their order; what is not analysed is on it with the reason."""
    parts = [_read(directory) for directory in directories]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}") from None
    write_bytes(path, _page(parts, path.parent, title).encode())
    return path


def _read(directory: Path) -> _Part:
    try:
        return _Part(directory, read_content(directory))
    except LabError as error:
        return _Part(directory, None, str(error))


def _page(parts: list[_Part], base: Path, title: str) -> str:
    rows = [_row(part, number) for number, part in enumerate(parts)]
    overview = table(["experiment", "question", "trials used", "announced comparisons"], rows)
    body = "".join(_section(part, number, base) for number, part in enumerate(parts))
    return document(title, "", f'<section id="overview"><h2>Overview</h2>{overview}</section>{body}')


def _row(part: _Part, number: int) -> list[str]:
    link = f'<a href="#run-{number}">{escape(part.name)}</a>'
    if part.content is None:
        return [link, "", "", f'<span class="fail">{escape(part.problem)}</span>']
    analysis = part.content.analysis
    used = f"{shown(analysis.trials_used)} of {shown(analysis.trials_total)}"
    all_used = analysis.trials_used == analysis.trials_total
    verdicts = [comparison.verdict for comparison in analysis.comparisons]
    return [
        link,
        escape(part.content.spec.question),
        f'<span class="{"pass" if all_used else "fail"}">{used}</span>',
        escape(", ".join(verdicts) or "none"),
    ]


def _section(part: _Part, number: int, base: Path) -> str:
    head = f'<section id="run-{number}"><h2>{escape(part.name)}</h2>'
    if part.content is None:
        return f'{head}<div class="bad"><p>{escape(part.problem)}</p></div></section>'
    content = part.content
    facts = content.facts
    items = "".join(f"<li>{escape(fact)}</li>" for fact in facts[:_FACTS_MAX])
    if len(facts) > _FACTS_MAX:
        items += "<li>… and more in its report.</li>"
    failed = [trial for trial in content.analysis.trials if not trial.used]
    reasons = list(
        dict.fromkeys(gate_name(reason.partition(":")[0]) for trial in failed for reason in trial.reasons)
    )
    gates = (
        f'<p class="fail">Trials that are not used failed: {escape(", ".join(reasons))}.</p>'
        if failed
        else f'<p class="good">Every trial {escape(content.spec.gates.passed)}.</p>'
    )
    said = content.analysis.headline
    answer = "".join(f"<p>{escape(sentence)}</p>" for sentence in [*said.warnings, *said.sentences])
    return (
        f'{head}<p class="lead">{escape(content.spec.question)}</p>'
        f"{answer}{gates}{verdict_box(content)}"
        f"{_figure(part.directory)}<ul>{items}</ul>{_link(part.directory, base)}</section>"
    )


def _figure(directory: Path) -> str:
    for name in _MAIN:
        path = directory / paths.FIGURES / f"{name}.svg"
        if path.is_file():
            # As an image of its own: drawings within one page would share the names of their parts.
            data = base64.b64encode(path.read_bytes()).decode()
            return f'<img class="main" alt="{name.replace("-", " ")}" src="data:image/svg+xml;base64,{data}">'
    return ""


def _link(directory: Path, base: Path) -> str:
    report = directory / paths.REPORT
    if not report.is_file():
        return f'<p class="soft">No report yet: waylab report {escape(str(directory))}</p>'
    target = os.path.relpath(report.resolve(), base.resolve())
    return f'<p><a href="{escape(Path(target).as_posix())}">The whole report</a></p>'
