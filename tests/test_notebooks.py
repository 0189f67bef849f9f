"""The page for notebooks: every example runs, on runs that the page itself makes."""

import os
import re
import sys
from pathlib import Path

import pytest
from console import Session, Step
from programs import ROOT

PAGE = ROOT / "docs/notebooks.md"
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Runs each block as a notebook does: the value of the last expression is shown, as text and as HTML.
CELLS = r"""
import ast
names = {}
for cell in open("cells").read().split("\0"):
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if value is not None:
            html = getattr(value, "_repr_html_", None)
            print("SHOWN", type(value).__name__, len(repr(value)), len(html() if html else ""))
"""


def test_every_example_of_the_page_runs(tmp_path):
    blocks = _BLOCK.findall(PAGE.read_text())
    assert sum(kind == "python" for kind, _ in blocks) >= 10
    cells: list[str] = []
    session = Session(tmp_path)
    try:
        # The terminal's commands first: the cells are one program, as a notebook is.
        for kind, text in blocks:
            if kind == "python":
                cells.append(text)
                continue
            command, *expected = text.removeprefix("$ ").splitlines()
            session.run(Step(command, expected or ["..."]))
        (tmp_path / "cells.py").write_text(CELLS)
        (tmp_path / "cells").write_text("\0".join(cells))
        shown = session.run(Step(f'"{sys.executable}" cells.py', ["..."]))
    finally:
        session.close()
    kinds = re.findall(r"SHOWN (\w+)", shown)
    assert kinds == [
        *("OpenedRun", "DataFrame", "DataFrame", "DataFrame", "list", "Series", "dict"),
        *(
            "LayerChart",
            "ComparedRuns",
            "BuiltExperiment",
            "DataFrame",
            "OpenedRun",
            "DataFrame",
            "DataFrame",
        ),
    ], shown
    assert "no figure 'thruput'; did you mean 'throughput'?" in shown
    files = {path.name: path.read_text().splitlines() for path in Path(tmp_path, "numbers").iterdir()}
    assert len(files["trials.csv"]) == 9 and files["trials.csv"][0].startswith("trial,order,block,")


def test_a_notebook_shows_an_error_as_one_line():
    import waylab  # noqa: PLC0415

    with pytest.raises(waylab.LabError, match=r"^nowhere: no such run folder$") as caught:
        waylab.open("nowhere")
    assert caught.value._render_traceback_() == ["waylab: nowhere: no such run folder"]
    with pytest.raises(waylab.LabError, match="nowhere: has no run folder of the experiment x"):
        waylab.runs(os.path.join("nowhere"), "x")
