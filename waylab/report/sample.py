"""Samples of reports that fit into a repository: one Markdown page for several runs, with the deciding figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from waylab.errors import LabError
from waylab.report.figures.figure import slug
from waylab.report.page import rules
from waylab.report.page.content import Content, read_content
from waylab.report.page.numbers import NONE
from waylab.report.page.published import unit_of
from waylab.report.page.reliance import reliance
from waylab.report.tables.result import RESULTS_NOTE, result_columns
from waylab.report.write import write_report
from waylab.runfolder import paths
from waylab.runfolder.analysis import FindingResult
from waylab.runfolder.files import write_bytes
from waylab.runfolder.gate_words import reasons_words

FIGURES_MAX = 4
"""At most this many figures of one run: those on which most of its findings are decided."""
_FACTS_MAX = 40
# The figure of a run without findings: the first of these that it has.
_USUAL = ("trace-throughput", "throughput-by-*", "throughput", "*")


def write_sample(directories: Sequence[Path], page: Path) -> Path:
    """Write `page` with one section for each run, and its figures into the folder of that name; return `page`.

    Raises:
        LabError: when a run is not analysed, or the page cannot be written.
    """
    figures_folder = page.with_suffix("")
    sections = []
    for directory in directories:
        if not (directory / paths.FIGURES).is_dir():
            write_report(directory)
        content = read_content(directory)
        available = sorted((directory / paths.FIGURES).glob("*.svg"))
        findings = content.analysis.published.findings if content.analysis.published else []
        chosen = deciding_figures(findings, [path.stem for path in available])
        name = content.run.name
        try:
            figures_folder.mkdir(parents=True, exist_ok=True)
            for path in available:
                if path.stem in chosen:
                    write_bytes(figures_folder / f"{name}-{path.name}", path.read_bytes())
        except OSError as error:
            raise LabError(f"{figures_folder}: cannot be written: {error.strerror}") from None
        sections += _section(content, {stem: f"{page.stem}/{name}-{stem}.svg" for stem in chosen})
    write_bytes(page, "\n".join([f"# Samples of reports: {page.stem}", "", *sections]).encode())
    return page


def deciding_figures(findings: Sequence[FindingResult], available: Sequence[str]) -> list[str]:
    """Choose the figures that show what the findings are decided on, the one with most findings first."""
    shown = (next((stem for stem in _figures_of(finding) if stem in available), None) for finding in findings)
    counts = Counter(stem for stem in shown if stem)
    if counts:
        return [stem for stem, _ in counts.most_common(FIGURES_MAX)]
    usual = (stem for pattern in _USUAL for stem in available if Path(stem).match(pattern))
    return [stem for stem in usual][:1]


def _figures_of(finding: FindingResult) -> list[str]:
    """Figures that show the quantity of a finding, the most exact one first."""
    fixed = {"stage": "stage-times", "effect": "factorial-variation"}
    if finding.kind in fixed:
        return [fixed[finding.kind]]
    operation, _, quantity = finding.metric.rpartition(".")
    is_response = quantity.startswith("response_")
    of, to = finding.of, finding.to
    factor = next((name for name in of if name in to and of[name] != to[name]), None)
    figures = []
    if factor:
        along = f"by-{slug(factor)}"
        figures += (
            [f"response-{along}-{operation}", f"response-{along}"] if is_response else [f"throughput-{along}"]
        )
    return [*figures, "response-mean" if is_response else "throughput"]


def _section(content: Content, figures: Mapping[str, str]) -> list[str]:
    spec, analysis = content.spec, content.analysis
    decided = [*rules.rules(content), *rules.comparisons(content)]
    lines = [
        f"## {content.run.name}",
        "",
        f"{_plain(spec.question)}",
        "",
        f"Run on {content.run.created_utc} UTC with {_program(content)}:",
        "",
        "```",
        content.run.reproduce[0],
        "```",
        "",
        *(f"**Note.** {_plain(warning)}\n" for warning in analysis.headline.warnings),
        f"**Answer.** {_plain(' '.join(analysis.headline.sentences) or 'No trial passed its gates.')}",
        "",
        f"**Hypothesis: {rules.hypothesis_verdict(content)}.** {_plain(spec.hypothesis)}",
        "",
        *(f"- {one.mark} {_plain(one.said)}" for one in decided),
        *([] if decided or not spec.refutation else [f"- It would be refuted by: {_plain(spec.refutation)}"]),
        "",
        "**Trust.**",
        "",
        *(f"- {one.mark} {_plain(one.text)}" for one in reliance(content)),
        "",
    ]
    failed = [trial for trial in analysis.trials if not trial.used]
    if failed:
        lines += [f"- {trial.id}: {_plain(reasons_words(trial.reasons))}" for trial in failed[:_FACTS_MAX]]
        lines.append("")
    for stem, path in figures.items():
        lines += [f"![{stem}]({path})", ""]
    lines += _beside(content)
    lines += ["### Further results", ""]
    lines += [f"- {_plain(fact)}" for fact in content.facts[:_FACTS_MAX]]
    return [*lines, "", "### All configurations", "", *_table(content), ""]


def _beside(content: Content) -> list[str]:
    """What a study found beside ours, when the specification repeats one."""
    published = content.analysis.published
    if not published:
        return []
    lines = [f"### Beside {_plain(published.source)}", ""]
    lines += ["| finding | theirs | ours | 95 % interval | reproduced |", "|---|---|---|---|---|"]
    for finding in published.findings:
        text = unit_of(finding)
        theirs, ours, low, high = (
            NONE if number is None else text(number)
            for number in (finding.theirs, finding.ours, finding.low, finding.high)
        )
        interval = NONE if finding.low is None else f"{low} to {high}"
        cells = [_plain(finding.text), theirs, ours, interval, finding.reproduced]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _table(content: Content) -> list[str]:
    """Return the table of results with every column of the report's."""
    headings, rows = result_columns(content)
    lines = [
        f"| configuration | trials used | {' | '.join(headings)} |",
        "|---" * (len(headings) + 2) + "|",
    ]
    for c, row in zip(content.analysis.configurations, rows, strict=False):
        cells = [
            _plain(content.label(c.name)),
            f"{c.used} of {c.trials}",
            *(_plain(cell.plain()) for cell in row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", RESULTS_NOTE]


def _program(content: Content) -> str:
    environment = content.environment
    if content.spec.gates.imported:
        return "other tools (imported), on unknown machines"
    program = environment.programs.get("waystage")
    version = (program.version if program else None) or "an unknown version"
    return f"{version} on {environment.cores_usable} cores ({environment.processor})"


def _plain(text: str) -> str:
    """Keep what a specification says from being read as markup."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text
