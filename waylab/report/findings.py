"""The findings of a study beside ours: a page of Markdown for each study, a table in the terminal, a list of pages."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.predict import (
    bounds,
    left_out_errors,
    model_differences,
    response_law,
    two_class_medians,
)
from waylab.report.page.content import Content, read_content
from waylab.report.page.numbers import NONE
from waylab.report.page.published import unit_of
from waylab.report.page.reliance import failures
from waylab.report.sample import deciding_figures
from waylab.report.study.configurations import configurations_page, law_sentence
from waylab.report.study.models import models_section, two_class_section
from waylab.report.study.precision import precision_section, precision_sentence
from waylab.runfolder import paths
from waylab.runfolder.analysis import FindingResult, PublishedResults
from waylab.runfolder.files import write_bytes
from waylab.runfolder.words import share_text

VERDICTS = {"yes": "reproduced", "no": "contradicted", "undecided": "undecided", "not run": "not run"}
_HEADINGS = ("finding", "theirs", "ours", "95 % interval", "rule", "verdict", "blocks")
_COUNTED = " findings: "
# The figures of the page with all configurations.
_SHOWN = ("response-histograms", "response-histogram", "both-views", "stage-times")
# With more configurations, the figures have too many lines to be read; the tables have the same numbers.
_DRAWN_MAX = 8
_DESCRIPTION = "description: its own data"


@dataclass(frozen=True)
class ExperimentFindings:
    """One experiment of a study: the folders of its runs, and its findings judged by all of them."""

    name: str
    directories: Sequence[Path]
    published: PublishedResults | None
    # Whether it shows the cause of a finding of another experiment. Its findings are not counted.
    control: bool = False

    @property
    def findings(self) -> Sequence[FindingResult]:
        """The findings in the order of the specification."""
        return self.published.findings if self.published else []


def write_findings(
    experiments: Sequence[ExperimentFindings], page: Path, title: str, command: str, calibrated: str = ""
) -> Path:
    """Write the page of a study, and the deciding figure of each experiment beside it; return the page's path.

    `calibrated` is the sentence about the calibration of a host.
    """
    lines = [f"# {title}", "", f"{counted(experiments)} Written by:", "", "```", command, "```", ""]
    lines += [calibrated, ""] if calibrated else []
    lines += _summary(experiments)
    for one in experiments:
        lines += _experiment(one, page)
    lines += models_section(
        [(one.name, errors) for one in experiments for errors in left_out_errors(one.directories)]
    )
    lines += two_class_section(
        [(one.name, found) for one in experiments for found in two_class_medians(one.directories)]
    )
    lines += precision_section(
        [
            (one.name, _cell(_text(finding, one.findings)), finding)
            for one in experiments
            if not one.control
            for finding in one.findings
        ]
    )
    lines += _undecided(experiments, command)
    write_bytes(page, ("\n".join(lines).rstrip() + "\n").encode())
    return page


def write_list(folder: Path) -> Path:
    """Write the table of all pages of a folder with their counts into its README.md; return its path.

    If the file exists and has the table, the text around it stays.
    """
    verdicts = list(VERDICTS.values())
    table = [
        "| " + " | ".join(("study", "findings", *verdicts)) + " |",
        "|---|---:" + "|---:" * len(verdicts) + "|",
    ]
    for page in sorted(folder.glob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        counts = [line.split(" Written by")[0].rstrip(".") for line in lines if _COUNTED in line]
        if page.name != "README.md" and counts:
            total, _, words = counts[0].partition(_COUNTED)
            found = [word.partition(" ") for word in words.split(", ")]
            by_verdict = {verdict: count for count, _, verdict in found}
            cells = [by_verdict.get(verdict, NONE) for verdict in verdicts]
            title = lines[0].removeprefix("# ")
            table.append("| " + " | ".join((f"[{title}]({page.name})", total, *cells)) + " |")
    path = folder / "README.md"
    text = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    start = text.index(table[0]) if table[0] in text else None
    if start is None:
        text = [
            "# Findings of the published studies",
            "",
            "`waylab study --document` writes these pages.",
            "",
            *table,
        ]
    else:
        end = next((at for at in range(start, len(text)) if not text[at].startswith("|")), len(text))
        text[start:end] = table
    write_bytes(path, ("\n".join(text) + "\n").encode())
    return path


def show_findings(experiments: Sequence[ExperimentFindings], console: Console) -> None:
    """Print the findings without the rules, and the counts."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [index for index, heading in enumerate(_HEADINGS) if heading != "rule"]
    for heading in ("experiment", *(_HEADINGS[index] for index in shown)):
        table.add_column(heading, overflow="fold")
    for one in experiments:
        for finding in one.findings:
            row = _row(finding, one.findings)
            table.add_row(escape(one.name), *(escape(row[index]) for index in shown))
    console.print(table)
    console.print(counted(experiments), soft_wrap=True)
    counting = [finding for one in experiments if not one.control for finding in one.findings]
    if sentence := precision_sentence(counting):
        console.print(sentence, soft_wrap=True)


def counted(experiments: Sequence[ExperimentFindings]) -> str:
    """Return how many findings have each verdict, in one sentence."""
    counts = Counter(
        VERDICTS[finding.reproduced] for one in experiments if not one.control for finding in one.findings
    )
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS.values() if counts[verdict])
    return f"{counts.total()}{_COUNTED}{words or 'none'}."


def _summary(experiments: Sequence[ExperimentFindings]) -> Iterator[str]:
    """Yield a table of the experiments with the number of their findings by verdict."""
    verdicts = list(VERDICTS.values())
    yield from ["| " + " | ".join(("experiment", *verdicts)) + " |", "|---" + "|---:" * len(verdicts) + "|"]
    for one in experiments:
        counts = Counter(VERDICTS[finding.reproduced] for finding in one.findings)
        name = f"[{_heading(one)}](#{_anchor(one)})"
        yield "| " + " | ".join((name, *(str(counts[verdict] or NONE) for verdict in verdicts))) + " |"
    yield ""


def _heading(one: ExperimentFindings) -> str:
    return one.name + (", a control" if one.control else "")


def _anchor(one: ExperimentFindings) -> str:
    """Return the anchor that Markdown gives the heading of an experiment."""
    return _heading(one).lower().replace(",", "").replace(" ", "-")


def _undecided(experiments: Sequence[ExperimentFindings], command: str) -> Iterator[str]:
    """Yield which findings need more blocks, and the command that runs them."""
    found = [(one, finding) for one in experiments if not one.control for finding in one.findings]
    open_ = [(one, finding) for one, finding in found if finding.reproduced == "undecided"]
    if not open_:
        return
    known = sorted(finding.blocks_needed for _, finding in open_ if finding.blocks_needed)
    yield from ["## Findings that more blocks decide", ""]
    yield "If the spread between blocks stays the same, these numbers of blocks decide with a probability of 80 %:"
    yield from ["", "| experiment | finding | blocks | needed |", "|---|---|---:|---:|"]
    for one, finding in open_:
        needed = _needed(finding)
        yield f"| {one.name} | {_cell(_text(finding, one.findings))} | {finding.blocks} | {needed} |"
    yield ""
    if known:
        middle = known[len(known) // 2]
        plain = command.split(" --document", maxsplit=1)[0]
        yield (
            f"`{plain} --blocks {middle}` runs enough blocks to decide more than half of the findings that have a "
            "number here."
        )
        yield ""


def _needed(finding: FindingResult) -> str:
    if finding.blocks_needed:
        return str(finding.blocks_needed)
    if finding.kind in ("plateau", "stage"):
        return "blocks differ"
    return "at least 3" if finding.low is None else "over 1000"


def _experiment(one: ExperimentFindings, page: Path) -> Iterator[str]:
    yield from [f"## {_heading(one)}", ""]
    contents = [read_content(directory) for directory in one.directories]
    if not contents:
        yield from ["Not measured.", ""]
        return
    yield from [_cell(contents[-1].spec.question), ""]
    for content in contents:
        used, total = content.analysis.trials_used, content.analysis.trials_total
        yield f"- {content.run.created_utc} UTC: {used} of {total} trials {content.spec.gates.passed}."
        yield from (f"- {_cell(text)}" for text in failures(content))
    yield ""
    if one.findings:
        yield from ["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|"]
        for finding in one.findings:
            yield "| " + " | ".join(_row(finding, one.findings)) + " |"
        yield ""
    yield from reasons_section(one.findings)
    if sentence := law_sentence(response_law([content.analysis for content in contents])):
        yield from [sentence, ""]
    yield from _models(contents[-1])
    yield from _figure(one, contents[-1], page)
    yield from _configurations(one, contents[-1], page)


def reasons_section(findings: Sequence[FindingResult]) -> Iterator[str]:
    """Yield the reasons of the findings that are not reproduced. A reason that several share stands once."""
    shared: dict[str, list[FindingResult]] = {}
    for finding in findings:
        if finding.reason and finding.reproduced in ("no", "undecided"):
            shared.setdefault(finding.reason, []).append(finding)
    for reason, group in shared.items():
        counts = Counter(VERDICTS[finding.reproduced] for finding in group)
        if len(group) == 1:
            verdicts, texts = next(iter(counts)).capitalize(), [_text(group[0], findings)]
        else:
            verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            texts = list(dict.fromkeys(finding.text for finding in group))
        about = "; ".join(f"“{_cell(text)}”" for text in texts)
        yield from [f"- **{verdicts}:** {about} {_cell(reason)}", ""]


def _configurations(one: ExperimentFindings, content: Content, page: Path) -> Iterator[str]:
    """Write the page with all configurations of an experiment, and yield the link to it."""
    if not content.configurations:
        return
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for stem in _SHOWN if len(content.configurations) <= _DRAWN_MAX else ():
        source = content.directory / paths.FIGURES / f"{stem}.svg"
        if source.is_file():
            name = f"{one.name}-{stem}.svg"
            write_bytes(folder / name, source.read_bytes())
            figures.append((stem, name))
    lines = configurations_page(content, bounds(content.directory), figures)
    write_bytes(folder / f"{one.name}.md", ("\n".join(lines).rstrip() + "\n").encode())
    yield from [
        f"[All configurations]({folder.name}/{one.name}.md): response times, percentiles, bottlenecks.",
        "",
    ]


def _models(content: Content) -> Iterator[str]:
    """Yield how far the models are off; those of the studies, and those that this project adds."""
    differences = model_differences(content.predictions)
    if not differences:
        return
    yield "| model | compared with | throughput, median difference | response time, median difference | largest |"
    yield "|---|---|---:|---:|---:|"
    for one in differences:
        which = _DESCRIPTION if one.description else "held-out configurations"
        numbers = " | ".join(map(_difference, (one.throughput, one.response, one.largest_response)))
        yield f"| {one.model} | {which} ({one.configurations}) | {numbers} |"
    yield ""


def _difference(value: float | None) -> str:
    return NONE if value is None else share_text(value)


def _figure(one: ExperimentFindings, content: Content, page: Path) -> Iterator[str]:
    available = {path.stem: path for path in sorted((content.directory / paths.FIGURES).glob("*.svg"))}
    for stem in deciding_figures(one.findings, list(available))[:1]:
        folder = page.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{one.name}-{stem}.svg"
        write_bytes(folder / name, available[stem].read_bytes())
        yield from [f"![{stem}]({folder.name}/{name})", ""]
        scale = content.run.plan[0].time_scale if content.run.plan else 1.0
        if scale != 1:
            yield (
                "The figure shows rates and times as measured on this machine, where one second of the study took "
                f"{scale:g} s."
            )
            yield ""


def _row(finding: FindingResult, among: Sequence[FindingResult]) -> list[str]:
    text = unit_of(finding)
    theirs, ours, low, high = (
        NONE if number is None else text(number)
        for number in (finding.theirs, finding.ours, finding.low, finding.high)
    )
    interval = NONE if finding.low is None else f"{low} to {high}"
    cells = (_text(finding, among), theirs, ours, interval, finding.rule)
    return [*map(_cell, cells), VERDICTS[finding.reproduced], str(finding.blocks)]


def _text(finding: FindingResult, among: Sequence[FindingResult]) -> str:
    """Return the finding; a point of a series, whose text is that of the whole series, with its levels."""
    if [one.text for one in among].count(finding.text) < 2:
        return finding.text
    levels = [f"{name} {', '.join(labels)}" for name, labels in finding.of.items()]
    return finding.text + (f" ({', '.join(levels)})" if levels else "")


def _cell(text: str) -> str:
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text
