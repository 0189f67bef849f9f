"""The page: one HTML file that needs no network."""

from html import escape

from waylab.report.figures import Figure, style
from waylab.report.page import diagram, sections
from waylab.report.page.content import Content
from waylab.report.page.database import database_section
from waylab.report.page.offline import Chart, charts_as_json, document
from waylab.report.page.published import published_parts
from waylab.report.tables import difference, prediction, result, trust


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
    verdict = f"{content.analysis.trials_used} of {content.analysis.trials_total} trials {spec.gates.passed}"
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
    text = f'<div class="figures">{drawn}</div><h3>All configurations</h3>{result.results_table(content)}'
    if content.analysis.comparisons:
        text += f"<h3>Comparisons</h3>{difference.comparisons_table(content)}"
    text += difference.change_table(content)
    text += difference.factorial_tables(content)
    text += f"<h3>Operations</h3>{result.operations_table(content)}"
    if any(c.stages for c in content.configurations):
        text += f"<h3>Stages</h3>{result.stages_table(content)}"
    if any(c.proxy_view for c in content.configurations):
        text += f"<h3>Both views</h3>{result.views_table(content)}"
    text += database_section(content)
    if content.predictions.entries:
        text += f"<h3>Models</h3>{prediction.models_summary_table(content)}"
        text += prediction.models_table(content)
    return text


def _checks(content: Content) -> str:
    text = trust.failed_trials(content)
    if content.configurations:
        text += f"<h3>Laws and conditions</h3>{trust.conditions_table(content)}"
        text += trust.laws_table(content)
        text += f"<h3>Inside the runs</h3>{trust.within_table(content)}"
    text += trust.residual_checks(content)
    return text + f"<h3>Gates</h3>{trust.gates_table(content)}"


def _specifications(figures: list[Figure]) -> str:
    charts: dict[str, Chart] = {}
    for figure in figures:
        chart = figure.chart.properties(width="container", height=figure.height).to_dict()
        chart["config"] = style.config("currentColor")
        chart["autosize"] = {"type": "fit-x", "contains": "padding"}
        charts[figure.name] = chart
    return charts_as_json(charts)
