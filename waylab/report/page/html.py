"""The page: one HTML file that needs no network. It begins with the answer; the evidence is folded below."""

from html import escape

from waylab.report.figures import Figure
from waylab.report.page import diagram, sections
from waylab.report.page.charts import specifications
from waylab.report.page.content import Content
from waylab.report.page.evidence import Group, evidence, group_html
from waylab.report.page.first import KEY_HEIGHT, first_screen, key_figures
from waylab.report.page.offline import document


def page(content: Content, figures: list[Figure]) -> str:
    """Return the whole page."""
    key = key_figures(figures)
    rest = [figure for figure in figures if figure not in key]
    groups = [
        *evidence(content, rest),
        Group(
            "set-up",
            "How was it measured?",
            "set-up, machine, commands that repeat it",
            f"<h3>Set-up</h3>{diagram.diagram(content)}{sections.setup(content)}"
            f'<h3 id="environment">Environment</h3>{sections.environment(content)}'
            f'<h3 id="reproduce">How to reproduce</h3>{sections.reproduce(content)}',
        ),
    ]
    links = "".join(f'<a href="#{group.name}">{escape(group.title)}</a>' for group in groups)
    title = f"{content.run.name} – {content.run.created_utc} UTC"
    body = (
        first_screen(content, figures)
        + f'<nav aria-label="evidence">{links}</nav>'
        + "".join(group_html(group) for group in groups)
    )
    heights = {figure.name: min(KEY_HEIGHT, figure.height) for figure in key}
    return document(title, "", body, specifications(figures, heights))
