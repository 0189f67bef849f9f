"""The pages for new users: every command runs, and prints what the page shows."""

import tempfile
from pathlib import Path

import pytest
from console import Session, Step, pattern, steps
from programs import ROOT

PAGES = [
    *(f"start/{name}" for name in ("operator", "performance-engineer", "developer", "lecturer")),
    "any-system",
]


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(name):
    found = steps((ROOT / f"docs/{name}.md").read_text())
    assert len(found) >= (4 if name.startswith("start/") else 2)
    # The user that PostgreSQL runs as must be able to enter the folder, which pytest's own does not allow.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        session = Session(Path(folder))
        try:
            for step in found:
                session.run(step)
        finally:
            session.close()


def test_a_page_that_shows_something_else_fails(tmp_path):
    session = Session(tmp_path)
    try:
        session.run(Step("printf 'a 1\\n  b 2.5 ms\\n'", ["a 7", "b 12us"]))
        session.run(Step("printf 'a\\nb\\nc\\n'", ["a", "..."]))
        with pytest.raises(AssertionError, match="is not as the page shows"):
            session.run(Step("echo a", ["b"]))
        with pytest.raises(AssertionError, match="exit code 1"):
            session.run(Step("false"))
    finally:
        session.close()


def test_numbers_stand_for_numbers_only():
    assert pattern(["took 1.5 ms"]).fullmatch("took 22 s\n")
    assert not pattern(["took 1.5 ms"]).fullmatch("took long\n")
    assert not pattern(["a"]).fullmatch("a\nb\n")
