"""The first screen of the page: question, answer, main figures, verdict of every rule, and trust in the data."""

from collections.abc import Sequence
from html import escape

from waylab.report.figures import Figure
from waylab.report.page import rules
from waylab.report.page.charts import figure_html
from waylab.report.page.content import Content
from waylab.report.page.reliance import reliance
from waylab.report.page.summary import summary_table

# The main figures in order of preference: throughput, response time, time per stage.
_KEY = (
    ("throughput", "trace-throughput"),
    ("response-mean", "response-percentiles"),
    ("stage-shares", "cpu-time", "factorial-variation"),
)
_STAGES = (
    "Stages of a request: parse, route (choose its servers), admit (into the queue, or refuse), queue (wait for a "
    "slot), send, backend (wait for the server\u2019s reply), reply."
)
KEY_HEIGHT = 150
"""Height of the figures of the first screen, in pixels."""


def key_figures(figures: Sequence[Figure]) -> list[Figure]:
    """Return the two or three figures of the first screen."""
    known = {figure.name: figure for figure in figures}
    chosen = (next((known[name] for name in names if name in known), None) for names in _KEY)
    return [figure for figure in chosen if figure is not None]


def first_screen(content: Content, figures: Sequence[Figure]) -> str:
    """Return the section that answers."""
    drawn = "".join(figure_html(figure, caption=False) for figure in key_figures(figures))
    return (
        f'<section id="answer"><p class="lead" id="question">{escape(content.spec.question)}</p>'
        f"{_warnings(content)}{_answer(content)}"
        f'<div class="key">{drawn}</div>{_reading(content)}{summary_table(content)}'
        f'<div class="two">{verdict_box(content)}{_trust(content)}</div></section>'
    )


def _warnings(content: Content) -> str:
    """Return the warnings that precede the answer, each as a line."""
    return "".join(f'<p class="warning">{_text(line)}</p>' for line in content.analysis.headline.warnings)


def _reading(content: Content) -> str:
    """Define trials, blocks and the lines in the figures."""
    drawn = [
        words
        for words, bends in (
            (
                "smallest load with 90\u00a0% of the best throughput (dashed, \u201cknee\u201d)",
                [curve.knee for curve in content.analysis.curves],
            ),
            (
                "first load whose 95th percentile has doubled (dotted)",
                [curve.first_slow for curve in content.analysis.curves],
            ),
        )
        if any(bend and bend.load is not None for bend in bends)
    ]
    words = "A trial measures one configuration once; a block is one trial of every configuration. "
    words += f"This run has {_blocks(content)}. "
    words += "Thin lines through the marks: 95\u00a0% confidence intervals of the means across blocks."
    words += f" Vertical lines: {', '.join(drawn)}." if drawn else ""
    if any("all" in c.stages for c in content.configurations):
        words += f" {_STAGES}"
    return f'<p class="soft small">{words}</p>' if content.configurations else ""


def _blocks(content: Content) -> str:
    count = len({trial.block for trial in content.analysis.trials})
    return f"{count} {'block' if count == 1 else 'blocks'} of {len(content.analysis.configurations)} trials"


def _answer(content: Content) -> str:
    sentences = content.analysis.headline.sentences
    if not sentences:
        why = "<b>No trial passed its gates, so there is no result.</b> The reasons are below."
        return f'<div class="bad" id="sentences"><p>{why}</p></div>'
    text = "".join(f"<p>{_text(sentence)}</p>" for sentence in sentences)
    return f'<div class="answer" id="sentences">{text}</div>'


def verdict_box(content: Content) -> str:
    """Return the verdict of every rule; the announced comparisons where there is no rule."""
    spec = content.spec
    verdict = rules.hypothesis_verdict(content)
    decisions = rules.rules(content)
    lines = [
        f'<li class="{_CLASSES.get(one.verdict, "")}"><b>{one.mark}</b> {_text(one.said)}</li>'
        for one in [*decisions, *rules.comparisons(content)]
    ]
    if not decisions and spec.refutation:
        lines.insert(0, f"<li>It would be refuted by: {escape(spec.refutation)}</li>")
    items = "".join(lines)
    tested = "<p>It makes these claims, and is refuted if any of them is refuted:</p>" if decisions else ""
    return (
        f'<div class="verdict {_CLASSES.get(verdict, "")}" id="rules"><h2>Hypothesis: {escape(verdict)}</h2>'
        f'<p class="soft">{escape(spec.hypothesis)}</p>{tested}<ul class="marks">{items}</ul></div>'
    )


def _trust(content: Content) -> str:
    lines = reliance(content)
    worst = next(
        (kind for kind in ("bad", "note", "good") if any(line.kind == kind for line in lines)), "good"
    )
    words = {
        "good": "Yes",
        "note": "With these reservations",
        "bad": "Not all of them" if content.analysis.trials_used else "No",
    }
    items = "".join(
        f'<li class="{line.kind}-line"><b>{line.mark}</b> {_text(line.text)}</li>' for line in lines
    )
    return (
        f'<div class="verdict {worst}-box" id="trusted"><h2>Can the data be trusted? {words[worst]}</h2>'
        f'<ul class="marks">{items}</ul></div>'
    )


def _text(text: str) -> str:
    """Escape a sentence, and keep numbers with their percent sign."""
    return escape(text).replace(" %", "\u00a0%")


_CLASSES = {"refuted": "bad-box", "not refuted": "good-box", "undecided": "note-box"}
