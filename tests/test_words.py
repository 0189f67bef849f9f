"""The words of pages and help texts: each rule of docs/site/words.toml fires, and no page breaks one."""

import argparse
import re
import subprocess
from collections.abc import Iterator

import pytest
from check_words import main, mistakes, pages, prose, words
from programs import ROOT, WAYSTAGE

from waylab.cli.main import _parser

RULES = words().rules


def alternatives(pattern: str) -> list[str]:
    """Return the parts of a regular expression between the "|" outside all brackets."""
    parts, depth = [""], 0
    for character in pattern:
        depth += (character in "([") - (character in ")]")
        parts = [*parts, ""] if character == "|" and depth == 0 else [*parts[:-1], parts[-1] + character]
    return parts


@pytest.mark.parametrize("rule", RULES, ids=[rule.write for rule in RULES])
def test_a_rule_finds_its_sample_and_not_what_is_right(rule):
    assert rule.avoid.search(rule.sample), "a rule that never fires"
    assert f"write {rule.write}" in " ".join(mistake for _, mistake in mistakes(rule.sample))
    for alternative in alternatives(rule.avoid.pattern.removeprefix(r"(?<!\w)(?:").removesuffix(r")(?!\w)")):
        assert re.search(rf"(?<!\w)(?:{alternative})(?!\w)", rule.sample, re.IGNORECASE), alternative
    assert list(mistakes(rule.fine)) == []


def test_a_long_sentence_is_found():
    longest = words().longest_sentence
    sentence = "Word " * longest
    assert list(mistakes(sentence.strip() + ".")) == []
    ((line, mistake),) = mistakes("Short.\n" + sentence + "more.")
    assert line == 2 and f"more than {longest} words" in mistake
    # Two sentences, cells of a table, and what follows a colon or a semicolon.
    for between in (". ", " | ", ": ", "; ", ".) ", ".** "):
        assert list(mistakes(sentence.strip() + between + sentence)) == [], between


def test_code_addresses_and_tags_are_no_words():
    page = """Set `color` of [the page](colors.md), see https://colors.example/via.
```
waystage simply
```
<img alt="colors">
  ~~~toml
  color = "behavior"
  ~~~
<!-- utilize
this -->
The color."""
    assert list(mistakes(prose(page))) == [
        (11, '"color": write British spelling: behaviour, colour, analyse')
    ]


def test_titles_of_others_keep_their_spelling():
    assert words().titles and all(list(mistakes(f"In {title}.")) == [] for title in words().titles)
    text = " ".join(path.read_text() for path in pages())
    assert all(title in text for title in words().titles), "a title that no page has"
    assert list(mistakes("Probabilistic synchronization.")) != []


def test_the_check_prints_the_place_and_fails(tmp_path, capsys):
    (tmp_path / "docs/field-results").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Right\n")
    (tmp_path / "docs/field-results/written-by-the-lab.md").write_text("In order to.\n")
    assert main(tmp_path) == 0 and capsys.readouterr().out == ""
    (tmp_path / "docs/page.md").write_text("# Page\n\nIn order to reload.\n")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == 'docs/page.md:3: "In order to": write to\n'


def test_every_page_has_the_right_words(capsys):
    assert main() == 0, capsys.readouterr().out
    assert "docs/site/check_words.py" in (ROOT / "Makefile").read_text(), "make lint checks them, too"


def unwrapped(text: str) -> str:
    """Return a help text with each paragraph and each entry of a list in one line, so that sentences are whole."""
    lines: list[str] = []
    above = 0
    for line in text.splitlines():
        words_of_line, indent = line.strip(), len(line) - len(line.lstrip())
        # Columns, an option, or a line that begins further left.
        begins = re.match(r" *-|(waylab|waystage) |.*\S {2,}\S", words_of_line) or indent < above
        if lines and lines[-1] and words_of_line and not begins:
            lines[-1] += " " + words_of_line
        else:
            lines.append(words_of_line)
        above = indent
    return "\n".join(lines)


def help_of_the_program() -> Iterator[tuple[str, str]]:
    waiting: list[list[str]] = [[]]
    while waiting:
        command = waiting.pop()
        done = subprocess.run([WAYSTAGE, *command, "--help"], capture_output=True, text=True, check=True)
        yield " ".join(["waystage", *command]), done.stdout
        listed = done.stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
        names = re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE)
        waiting += [[*command, name] for name in names if name != "help"]


def help_of_the_lab(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from help_of_the_lab(part)


def test_every_help_text_has_the_right_words():
    texts = dict(help_of_the_program()) | dict(help_of_the_lab(_parser()))
    assert {"waystage proxy convert", "waystage load agent", "waylab demo", "waylab model mm1"} <= set(texts)
    found = [(name, mistake) for name, text in texts.items() for _, mistake in mistakes(unwrapped(text))]
    assert found == []
    # argparse replaces %% in the help of an argument, but not in a description.
    assert [name for name, text in texts.items() if "%%" in text] == []
    assert "Show which features this machine supports" in texts["waylab doctor"]
    # A paragraph over several lines is one line; an option and an entry of a list begin another.
    assert unwrapped("Two\nlines.\n\n  --a  In order\n       to.\n  b    C\n  d    E") == (
        "Two lines.\n\n--a  In order to.\nb    C\nd    E"
    )
    assert [mistake for _, mistake in mistakes(unwrapped("  --a  In order\n       to."))] != []
