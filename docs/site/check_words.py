"""Checks the words of the pages against words.toml: `python docs/site/check_words.py`.

Prints one line for each place with a word to avoid or a sentence that is too long, and exits with 1 if there is one.
`tests/test_words.py` checks the help texts in the same way.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gather_pages import ROOT

# The lab writes these pages from measurements.
GENERATED = "docs/field-results/"
_BLOCK = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"``.+?``|`[^`\n]*`")
_LINK, _ADDRESS, _TAG = re.compile(r"\]\([^)\n]*\)"), re.compile(r"https?://\S+"), re.compile(r"<[^>\n]*>")
# A cell of a table and an entry after "·" begin a sentence, too.
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?:;])[)\"”*]*\s+|\s*[|·]\s*")


@dataclass(frozen=True)
class Rule:
    """Words to avoid, what to write instead, and the sentences that test the rule."""

    avoid: re.Pattern[str]
    write: str
    sample: str
    fine: str


@dataclass(frozen=True)
class Words:
    """All of words.toml."""

    rules: list[Rule]
    longest_sentence: int
    titles: list[str]


@cache
def words() -> Words:
    """Read words.toml."""
    found = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
    rules = [
        Rule(_whole_words(one["avoid"]), one["write"], one["sample"], one.get("fine", ""))
        for one in found["rule"]
    ]
    return Words(rules, found["longest_sentence"], found["titles"])


def _whole_words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)


def prose(page: str) -> str:
    """Return a page of Markdown without code, addresses and tags, with the same lines."""
    text = _BLOCK.sub(lambda code: "\n" * code.group().count("\n"), page)
    # A word instead of each, so that the sentence keeps its form and its length.
    text = _LINK.sub("]", _INLINE.sub("code", text))
    return _TAG.sub("", _ADDRESS.sub("address", text))


def mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the mistake of each word to avoid, and of each sentence that is too long."""
    checked = words()
    for title in checked.titles:
        text = text.replace(title, "title")
    for number, line in enumerate(text.splitlines(), 1):
        for rule in checked.rules:
            for found in rule.avoid.finditer(line):
                yield number, f'"{found.group()}": write {rule.write}'
        for sentence in _BETWEEN_SENTENCES.split(line):
            if len(sentence.split()) > checked.longest_sentence:
                start = " ".join(sentence.split()[:6])
                yield number, f'"{start} ...": a sentence of more than {checked.longest_sentence} words'


def pages(root: Path = ROOT) -> list[Path]:
    """Return every page that people write."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return sorted(path for path in found if not str(path.relative_to(root)).startswith(GENERATED))


def main(root: Path = ROOT) -> int:
    """Check all pages of a tree."""
    found = [
        f"{path.relative_to(root)}:{line}: {mistake}"
        for path in pages(root)
        for line, mistake in mistakes(prose(path.read_text()))
    ]
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
