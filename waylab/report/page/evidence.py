"""The evidence, folded and grouped by question: how fast, where the time goes, what limits, what models say, trust."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from waylab.report.figures import Figure
from waylab.report.page import sections
from waylab.report.page.charts import figure_html
from waylab.report.page.content import Content
from waylab.report.page.database import database_section
from waylab.report.page.published import published_section
from waylab.report.tables import difference, limits, prediction, result, trust


@dataclass(frozen=True)
class Group:
    """One question with its evidence as HTML; an empty one is left out."""

    name: str
    title: str
    summary: str
    body: str


def evidence(content: Content, figures: Sequence[Figure]) -> list[Group]:
    """Return the groups in the order of the page; `figures` are those that the first screen does not show."""
    groups = (
        Group("speed", "How fast?", "throughput, response times, percentiles", _speed(content, figures)),
        Group("time", "Where does the time go?", "stages, both ends' views", _time(content, figures)),
        Group(
            "limits", "What limits?", "utilisation, knees, effects of the factors", _limits(content, figures)
        ),
        Group(
            "models", "What do the models say?", "predictions beside measurements", _models(content, figures)
        ),
        Group("beside", "What did others find?", "findings of a published study", published_section(content)),
        Group(
            "trust",
            "Can I trust it?",
            "gates, laws, steady state, residuals, threats",
            _trust(content, figures),
        ),
        Group(
            "unseen",
            "Did the prediction come true?",
            "configurations that no model had seen",
            prediction.held_out_table(content),
        ),
    )
    return [group for group in groups if group.body]


def group_html(group: Group) -> str:
    """Return a group as a fold with a one-line summary."""
    return (
        f'<details class="group" id="{group.name}"><summary><h2>{escape(group.title)}</h2>'
        f'<span class="soft">{escape(group.summary)}</span></summary>{group.body}</details>'
    )


def _figures(figures: Sequence[Figure], group: str) -> str:
    drawn = "".join(figure_html(figure) for figure in figures if figure.group == group)
    return f'<div class="figures">{drawn}</div>' if drawn else ""


def _facts(facts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    return f"<h3>Further results in sentences</h3><ul>{items}</ul>" if items else ""


def _speed(content: Content, figures: Sequence[Figure]) -> str:
    if not content.configurations:
        return ""
    text = f"{_figures(figures, 'speed')}<h3>All configurations</h3>{result.results_table(content)}"
    if len(content.operations) > 1:
        text += f"<h3>Operations</h3>{result.operations_table(content)}"
    if content.analysis.comparisons:
        text += f"<h3>Comparisons</h3>{difference.comparisons_table(content)}"
    return text + difference.change_table(content) + _facts(content.analysis.facts)


def _time(content: Content, figures: Sequence[Figure]) -> str:
    text = _figures(figures, "time")
    if any(c.stages for c in content.configurations):
        text += f"<h3>Stages</h3>{result.stages_table(content)}"
    if any(c.proxy_view for c in content.configurations):
        text += f"<h3>Both views</h3>{result.views_table(content)}"
    return text


def _limits(content: Content, figures: Sequence[Figure]) -> str:
    if not content.configurations:
        return ""
    text = f"{_figures(figures, 'limits')}<h3>Utilisation</h3>{limits.utilisation_table(content)}"
    return text + difference.factorial_tables(content) + database_section(content)


def _models(content: Content, figures: Sequence[Figure]) -> str:
    if not content.predictions.entries:
        return ""
    text = _figures(figures, "models") + _facts(content.predictions.facts)
    text += f"<h3>Errors</h3>{prediction.models_summary_table(content)}"
    return text + f"<h3>Every prediction</h3>{prediction.models_table(content)}"


def _trust(content: Content, figures: Sequence[Figure]) -> str:
    text = trust.failed_trials(content) + f"<h3>Gates</h3>{trust.gate_limits_table(content)}"
    text += f"<h3>Threats</h3>{sections.threats(content)}"
    if content.configurations:
        text += f"<h3>Laws and conditions</h3>{trust.conditions_table(content)}"
        text += trust.laws_table(content)
        text += f"<h3>Inside the runs</h3>{trust.within_table(content)}"
    text += trust.residual_checks(content) + _figures(figures, "trust")
    return text + f"<h3>Every gate of every trial</h3>{trust.gates_table(content)}"
