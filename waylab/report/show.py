"""The run in the terminal: the answer, its figures as text, every verdict, trust, and where the report is.

At most `LINES_MAX` lines, so that the answer is still on the screen when the run has ended.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from waylab.report.page import rules
from waylab.report.page.content import Content, read_content
from waylab.report.page.numbers import rate_text, time_text
from waylab.report.page.reliance import reliance
from waylab.runfolder import paths
from waylab.runfolder.analysis import Configuration, Operation

LINES_MAX = 25
"""Lines of a summary."""
# Lines of each part, at most.
_QUESTION, _WARNING, _SENTENCE, _RULES, _BARS, _TRUST = 2, 2, 5, 4, 8, 4
_BAR_WIDTH = 14
_NAME_WIDTH = 34
# A line with its style.
Line = tuple[str, str]

_STYLES = {"refuted": "bold red", "not refuted": "green", "bad": "red", "good": "green", "note": "yellow"}


def show_run(directory: Path, console: Console) -> None:
    """Print the summary of a run that has been analysed."""
    content = read_content(directory)
    width = console.width
    answer = _wrapped(f"{content.run.name}: {content.spec.question}", width, _QUESTION)
    question = len(answer)
    for warning in content.analysis.headline.warnings:
        answer += _wrapped(f"! {warning}", width, _WARNING, "  ")
    sentences = content.analysis.headline.sentences or ["No trial passed its gates, so there is no result."]
    for sentence in sentences:
        answer += _wrapped(sentence, width, _SENTENCE)
    decided, trusted = _verdicts(content, width), _trust(content, width)
    # The chart has the room that is left, because the verdicts are shorter than any table.
    bars = _bars(content, width, LINES_MAX - 1 - len(answer) - len(decided) - len(trusted))
    _print(console, [("bold" if index < question else "", line) for index, line in enumerate(answer)])
    _print(console, [("", line) for line in bars])
    _print(console, [*decided, *trusted])
    report = directory / paths.REPORT
    console.print(
        f"report: {report if report.is_file() else f'none yet; waylab report {directory}'}", soft_wrap=True
    )


def _print(console: Console, lines: Sequence[Line]) -> None:
    for style, line in lines:
        console.print(escape(line), style=style or None, soft_wrap=True)


def _wrapped(text: str, width: int, lines_max: int, indent: str = "") -> list[str]:
    """Break a text into at most `lines_max` lines. A single line ends after a sentence if one fits.

    Otherwise, a text that is too long ends with an ellipsis.
    """
    sentences = re.split(r"(?<=[.]) ", text)
    whole = (" ".join(sentences[:count]) for count in range(len(sentences), 0, -1))
    if lines_max == 1:
        text = next((part for part in whole if len(part) <= width), text)
    return textwrap.wrap(text, width, max_lines=max(1, lines_max), placeholder=" …", subsequent_indent=indent)


def _verdicts(content: Content, width: int) -> list[Line]:
    """Return the verdict of every rule, then the announced comparisons, as far as there is room."""
    decided = [*rules.rules(content), *rules.comparisons(content)]
    found = [(one.verdict, f"{one.mark} {one.said}") for one in decided]
    if not found:
        return [("", "• No rule and no comparison decides the hypothesis.")]
    each = 2 if 2 * len(found) <= _RULES else 1
    shown = found if len(found) <= _RULES else found[: _RULES - 1]
    lines = [
        (_STYLES.get(kind, ""), line) for kind, text in shown for line in _wrapped(text, width, each, "  ")
    ]
    if len(shown) < len(found):
        lines.append(("", f"  … and {len(found) - len(shown)} more verdicts in the report"))
    return lines


def _trust(content: Content, width: int) -> list[Line]:
    """Return the lines against the data and, if there is room, those for them."""
    lines: list[Line] = []
    for one in sorted(reliance(content), key=lambda one: ("bad", "note", "good").index(one.kind)):
        lines += [(_STYLES[one.kind], line) for line in _wrapped(f"{one.mark} {one.text}", width, 1)]
    return lines[:_TRUST]


def _bars(content: Content, width: int, room: int) -> list[str]:
    """A bar of throughput for each configuration, with mean, median and 99th percentile of the response time."""
    known = content.configurations
    if not known:
        return []
    highest = max(c.throughput_per_s.known_mean() for c in known)
    shown, room = known, min(_BARS, room - 1)
    if len(known) > room:
        ranked = sorted(known, key=lambda c: -c.throughput_per_s.known_mean())[: room - 1]
        shown = [c for c in known if c in ranked]
    names = [content.label(c.name) for c in shown]
    name_width = min(_NAME_WIDTH, max(map(len, names)), max(12, width - _BAR_WIDTH - 40))
    head = f"{'':{name_width}}  {'requests/s':>{_BAR_WIDTH + 9}}  {'mean':>8} {'p50':>8} {'p99':>8}"
    lines = [head, *(_bar(c, content.label(c.name), highest, name_width) for c in shown)]
    if len(shown) < len(known):
        lines.append(f"… the {len(shown)} fastest of {len(known)} configurations")
    return lines


def _percentile(operation: Operation | None, percent: str) -> str:
    """Return a percentile; `~` before it if it has no interval."""
    value = operation.percentiles_ns.get(percent) if operation else None
    if operation is None or value is None:
        return time_text(None)
    found = operation.percentile_intervals_ns.get(percent)
    return time_text(found.mean) if found and found.low is not None else f"~{time_text(value)}"


def _bar(configuration: Configuration, name: str, highest: float, name_width: int) -> str:
    mean = configuration.throughput_per_s.known_mean()
    bar = "█" * round(_BAR_WIDTH * mean / highest) if highest else ""
    everything = configuration.operations.get("all")
    response = time_text(everything.response_mean_ns.mean if everything else None)
    median, slow = (_percentile(everything, percent) for percent in ("50", "99"))
    name = name if len(name) <= name_width else f"{name[: name_width - 1]}…"
    times = f"{response:>8} {median:>8} {slow:>8}"
    return f"{name:{name_width}}  {bar or '▏':<{_BAR_WIDTH}}{rate_text(mean):>9}  {times}"
