"""The text of a report, as a reader of the page or of the terminal sees it."""

from html.parser import HTMLParser

from rich.console import Console

from waylab.report import show_run


class Page(HTMLParser):
    """The resources, texts and numbers of a page."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.ids, self.numbers, self.stack, self.styles, self.text = [], [], [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.loads += [named[key] for key in ("src", "href", "data", "srcset", "action") if key in named]
        self.ids += [named["id"]] if "id" in named else []
        self.numbers += [named["value"]] if tag == "data" else []
        self.stack.append(tag)

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop() != tag:
            pass

    def handle_data(self, data):
        inside = self.stack[-1] if self.stack else ""
        if inside == "style":
            self.styles += data
        elif inside != "script":
            self.text += data


def summary(directory, capsys, width=80):
    show_run(directory, Console(width=width, highlight=False))
    return capsys.readouterr().out
