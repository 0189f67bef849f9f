"""Tests that the examples of the pages about messages run, and that docs/messages.md has every problem type."""

import re

from programs import ROOT

PAGE = (ROOT / "docs/messages.md").read_text()
PROBLEM_TYPES = (ROOT / "crates/messages/src/interface/problem_types.rs").read_text()


def test_the_example_runs(url, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "http://127.0.0.1:8080" in example
    exec(compile(example.replace("http://127.0.0.1:8080", url), "docs/messages.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("['orders'] Message(id=")
    assert [line.split(" ", 1)[1] for line in lines[1:4]] == [
        "alice b'two apples'",
        "alice b'for anyone'",
        "alice b'\\x00\\xff'",
    ]
    assert float(lines[4]) >= 0 and lines[5:] == ["unknown-queue 404"]


def test_the_consumer_of_the_migration_runs(url, capsys):
    page = (ROOT / "docs/migration-from-pgmq-and-sqs.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "http://127.0.0.1:8080" in example
    exec(compile(example.replace("http://127.0.0.1:8080", url), "the consumer", "exec"), {})
    assert capsys.readouterr().out == "1 b'two apples'\n"


def test_every_problem_is_in_the_table():
    for name, status in re.findall(r'\bproblem_type\("([a-z-]+)", (\d+)', PROBLEM_TYPES):
        rows = [line for line in PAGE.splitlines() if line.startswith("| `") and f"`{name}`" in line]
        assert any(f"| {status} |" in row for row in rows), f"{name} {status}"
