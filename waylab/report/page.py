"""The page: one HTML file that needs no network."""

from html import escape

from waylab.report import (
    diagram,
    difference_tables,
    prediction_tables,
    result_tables,
    sections,
    trust_tables,
)
from waylab.report.content import Content
from waylab.report.database import database_section
from waylab.report.figures import Figure, style
from waylab.report.offline import Chart, charts_as_json, document
from waylab.report.published import published_parts


def page(content: Content, figures: list[Figure]) -> str:
    """Return the whole page."""
    spec = content.spec
    parts = [
        ("question", "Question", f'<p class="lead">{escape(spec.question)}</p>'),
        (
            "hypothesis",
            "Hypothesis",
            f'<p>{escape(spec.hypothesis)}</p><p class="soft">Would be refuted by: {escape(spec.refuted_by)}</p>',
        ),
        ("set-up", "Set-up", diagram.diagram(content) + sections.setup(content)),
        ("results", "Results", _results(content, figures)),
        *published_parts(content),
        ("checks", "Checks", _checks(content)),
        ("answer", "Answer", sections.answer(content)),
        ("threats", "Threats", sections.threats(content)),
        ("environment", "Environment", sections.environment(content)),
        ("reproduce", "How to reproduce", sections.reproduce(content)),
    ]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in parts)
    body = "".join(f'<section id="{name}"><h2>{title}</h2>{text}</section>' for name, title, text in parts)
    title = f"{content.run.name} – {content.run.created_utc} UTC"
    verdict = f"{content.analysis.trials_used} of {content.analysis.trials_total} trials passed every gate"
    header = f'<p class="soft">{escape(verdict)}</p><nav>{links}</nav>'
    return document(title, header, body, _specifications(figures))


def _results(content: Content, figures: list[Figure]) -> str:
    if not content.configurations:
        why = "<b>No trial passed its gates, so there is no result.</b> The section “Checks” says why."
        return f'<div class="bad"><p>{why}</p></div>'
    drawn = "".join(
        f'<figure id="figure-{f.name}"><h3>{escape(f.title)}</h3>'
        f'<div class="chart" id="chart-{f.name}" role="img" aria-label="{escape(f.title)}"></div>'
        f"<figcaption>{escape(f.caption)}</figcaption></figure>"
        for f in figures
    )
    text = (
        f'<div class="figures">{drawn}</div><h3>All configurations</h3>{result_tables.results_table(content)}'
    )
    if content.analysis.comparisons:
        text += f"<h3>Comparisons</h3>{difference_tables.comparisons_table(content)}"
    text += difference_tables.change_table(content)
    text += difference_tables.factorial_tables(content)
    text += f"<h3>Operations</h3>{result_tables.operations_table(content)}"
    if any(c.stages for c in content.configurations):
        text += f"<h3>Stages</h3>{result_tables.stages_table(content)}"
    if any(c.proxy_view for c in content.configurations):
        text += f"<h3>Both views</h3>{result_tables.views_table(content)}"
    text += database_section(content)
    if content.predictions.entries:
        text += f"<h3>Models</h3>{prediction_tables.models_summary_table(content)}"
        text += prediction_tables.models_table(content)
    return text


def _checks(content: Content) -> str:
    text = trust_tables.failed_trials(content)
    if content.configurations:
        text += f"<h3>Laws and conditions</h3>{trust_tables.conditions_table(content)}"
        text += trust_tables.laws_table(content)
        text += f"<h3>Inside the runs</h3>{trust_tables.within_table(content)}"
    text += trust_tables.residual_checks(content)
    return text + f"<h3>Gates</h3>{trust_tables.gates_table(content)}"


def _specifications(figures: list[Figure]) -> str:
    charts: dict[str, Chart] = {}
    for figure in figures:
        chart = figure.chart.properties(width="container", height=figure.height).to_dict()
        chart["config"] = style.config("currentColor")
        chart["autosize"] = {"type": "fit-x", "contains": "padding"}
        charts[figure.name] = chart
    return charts_as_json(charts)
