"""What the report says of a set-up that it does not know, because the results were imported."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import shown


def set_up(content: Content) -> list[tuple[str, str]]:
    """Return the terms and descriptions: whose results they are, and the settings that are known."""
    trials = [one for one in content.analysis.trials if one.numbers and one.numbers.source]
    sources = [one.numbers.source for one in trials if one.numbers and one.numbers.source]
    tools = ", ".join(dict.fromkeys(source.tool for source in sources))
    files = len({source.sha256 for source in sources})
    lengths = sorted({one.load.test_time_s for one in content.run.plan if one.load.test_time_s})
    ends = list(dict.fromkeys([*lengths[:1], *lengths[-1:]]))
    clients = sorted({one.load.clients for one in content.run.plan if one.load.clients})
    rates = sorted({one.load.rate for one in content.run.plan if one.load.rate})
    blocks = content.spec.design.blocks
    return [
        ("results of", f"{escape(tools)}, {shown(files)} {'file' if files == 1 else 'files'}"),
        ("system", "unknown, because the results were imported"),
        ("clients", ", ".join(shown(one) for one in clients) or "unknown"),
        ("rate per second", ", ".join(shown(one) for one in rates) or "none: closed loop"),
        ("trial", f"{' to '.join(shown(one) for one in ends) or 'an unknown number of'} s measured"),
        (
            "design",
            f"{shown(blocks)} {'block' if blocks == 1 else 'blocks'}: trials with the same levels, "
            f"{escape(content.spec.design.order)}; {shown(content.analysis.trials_total)} trials",
        ),
    ]
