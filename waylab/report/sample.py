"""A small copy of a report that fits into a repository: Markdown with the main figures, a few hundred kilobytes."""

import shutil
from pathlib import Path
from typing import Any

from waylab.errors import LabError
from waylab.report.content import Content, read_content
from waylab.report.numbers import NONE, rate_text, time_text
from waylab.report.published import unit_of
from waylab.report.write import write_report
from waylab.runfolder import paths

BYTES_MAX = 300_000
# Room for the words beside the figures.
_WORDS_BYTES = 40_000
_FACTS_MAX = 40
# The most telling ones first; what no longer fits is left out.
_FIGURES = (
    "throughput",
    "response-mean",
    "factorial-effects",
    "factorial-variation",
    "response-set-by-*",
    "response-get-by-*",
    "comparisons",
    "stage-times",
    "response-histogram*",
    "throughput-by-*",
    "trace-*",
    "residuals-*",
    "*",
)


def write_sample(directory: Path, target: Path) -> Path:
    """Write `target/NAME/README.md` with figures beside it; return its path.

    Raises:
        LabError: when the run is not analysed, or the folder cannot be written.
    """
    if not (directory / paths.FIGURES).is_dir():
        write_report(directory)
    content = read_content(directory)
    place = target / content.run["name"]
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        figures = _chosen(directory / paths.FIGURES)
        for figure in figures:
            shutil.copyfile(figure, place / figure.name)
        path = place / "README.md"
        path.write_text(_text(content, [figure.name for figure in figures]), encoding="utf-8")
    except OSError as error:
        raise LabError(f"{place}: cannot be written: {error.strerror}") from None
    return path


def _chosen(figures: Path) -> list[Path]:
    found: list[Path] = []
    left = BYTES_MAX - _WORDS_BYTES
    for pattern in _FIGURES:
        for path in sorted(figures.glob(f"{pattern}.svg")):
            size = path.stat().st_size
            if path not in found and size <= left:
                found.append(path)
                left -= size
    return found


def _text(content: Content, figures: list[str]) -> str:
    spec, analysis = content.spec, content.analysis
    lines = [
        f"# {content.run['name']}",
        "",
        f"{_plain(spec['question'])}",
        "",
        f"A sample of a report, run on {content.run['created_utc']} UTC with {_program(content)}.",
        "",
        f"**Hypothesis.** {_plain(spec['hypothesis'])}",
        "",
        f"**Would be refuted by.** {_plain(spec['refuted_by'])}",
        "",
        f"**Gates.** {analysis['trials_used']} of {analysis['trials_total']} trials passed every gate.",
        "",
    ]
    failed = [trial for trial in analysis["trials"] if not trial["used"]]
    lines += [f"- {trial['id']}: {_plain('; '.join(trial['reasons']))}" for trial in failed[:_FACTS_MAX]]
    verdicts = [c for c in analysis["comparisons"] if c.get("verdict_text")]
    lines += _beside(content)
    lines += ["", "## What was found", ""]
    lines += [f"- **{c['verdict']}**: {_plain(c['verdict_text'])}" for c in verdicts]
    lines += [f"- {_plain(fact)}" for fact in content.facts[:_FACTS_MAX]]
    lines += ["", "## Figures", ""]
    for name in figures:
        lines += [f"![{Path(name).stem}]({name})", ""]
    lines += ["## All configurations", "", *_table(content), "", "## How to reproduce", "", "```"]
    lines += [content.run["reproduce"][0], "```", ""]
    return "\n".join(lines)


def _beside(content: Content) -> list[str]:
    """What a study found beside ours, when the specification repeats one."""
    published = content.analysis.get("published")
    if not published:
        return []
    lines = ["", f"## Beside {_plain(published['source'])}", ""]
    lines += ["| finding | theirs | ours | 95 % interval | reproduced |", "|---|---|---|---|---|"]
    for finding in published["findings"]:
        text = unit_of(finding)
        theirs, ours, low, high = (
            NONE if finding[name] is None else text(finding[name])
            for name in ("theirs", "ours", "low", "high")
        )
        interval = NONE if finding["low"] is None else f"{low} to {high}"
        cells = [_plain(finding["text"]), theirs, ours, interval, finding["reproduced"]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _table(content: Content) -> list[str]:
    lines = [
        "| configuration | used | throughput, 1/s | 95 % interval | mean response | p50 | p95 | p99 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in content.analysis["configurations"]:
        everything: dict[str, Any] = c["operations"].get("all", {})
        percentiles = everything.get("percentiles_ns", {})
        rate = c["throughput_per_s"]
        bounds = f"{rate_text(rate['low'])} to {rate_text(rate['high'])}" if rate["low"] is not None else NONE
        mean = time_text(everything["response_mean_ns"]["mean"]) if everything else NONE
        cells = [_plain(c["name"]), f"{c['used']} of {c['trials']}", rate_text(rate["mean"]), bounds, mean]
        cells += [time_text(percentiles.get(percent)) for percent in ("50", "95", "99")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _program(content: Content) -> str:
    environment = content.environment
    program = (environment["programs"].get("waystage") or {}).get("version") or "an unknown version"
    return f"{program} on {environment['cores_usable']} cores ({environment['processor']})"


def _plain(text: str) -> str:
    """Keep what a specification says from being read as markup."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text
