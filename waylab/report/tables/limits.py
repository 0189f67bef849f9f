"""Table of utilisations: how busy machine, programs and links were."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import NONE, share_text, shown
from waylab.report.tables.table import table


def utilisation_table(content: Content) -> str:
    """How busy every resource was in every configuration; bold from the utilisation on that is called a limit."""
    utilisation = content.analysis.headline.utilisation
    names = list(dict.fromkeys(use.name for uses in utilisation.values() for use in uses))
    rows = []
    for c in content.configurations:
        shares = {use.name: use.share for use in utilisation.get(c.name, [])}
        rows.append(
            [
                escape(content.label(c.name)),
                *(shown(shares.get(name), share_text) if name in shares else NONE for name in names),
            ]
        )
    return table(
        ["configuration", *names],
        rows,
        "Means over trials. The machine includes interrupts, the kernel's network, and other programs.",
    )
