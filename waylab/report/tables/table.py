"""HTML tables, wide ones scroll inside their own frame."""

from html import escape

from waylab.runfolder.words import NONE


def table(headings: list[str], rows: list[list[str]], caption: str = "", classes: str = "") -> str:
    """Build a table from cells that are HTML already; the headings are plain text."""
    if not rows:
        return '<p class="none">Nothing to show.</p>'
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        "<tr>" + f'<th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    parts = f"{words}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="frame"><table class="{classes}">{parts}</table></div>'


def filled(headings: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Leave out the columns in which no row has a value."""
    kept = [place for place in range(len(headings)) if any(row[place] not in ("", NONE) for row in rows)]
    return [headings[place] for place in kept], [[row[place] for place in kept] for row in rows]


def definitions(pairs: list[tuple[str, str]]) -> str:
    """Build a list of terms; the values are HTML already."""
    return (
        '<dl class="facts">'
        + "".join(f"<dt>{escape(term)}</dt><dd>{text}</dd>" for term, text in pairs)
        + "</dl>"
    )
