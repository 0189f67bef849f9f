"""The README's terminal: its script runs, and the committed picture shows what the programs print today."""

import dataclasses
import html
import importlib.util
import re
import sys
from xml.etree import ElementTree

import pytest
from programs import ROOT, free_ports

FOLDER = ROOT / "docs/images/terminal"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def recording():
    found = importlib.util.spec_from_file_location("record", FOLDER / "record.py")
    module = importlib.util.module_from_spec(found)
    # Dataclasses look their module up.
    sys.modules["record"] = module
    found.loader.exec_module(module)
    yield module
    del sys.modules["record"]


def scenes(svg):
    """The lines of each scene: first those of the command, then those that it printed."""
    return [
        [(line.get("class"), line.text or "") for line in group.iter(f"{SVG}text")]
        for group in ElementTree.fromstring(svg).iter(f"{SVG}g")
    ]


def typed(scene):
    return " ".join(text for kind, text in scene if kind == "p").removeprefix("$ ")


def printed(scene):
    return [text for kind, text in scene if kind == "o"]


def test_the_picture_shows_the_commands_of_the_script(recording):
    shown = scenes(recording.PICTURE.read_text())
    assert [typed(scene) for scene in shown] == [scene.command for scene in recording.SESSION]
    text = (ROOT / "README.md").read_text()
    assert str(recording.PICTURE.relative_to(ROOT)) in text


def test_the_commands_still_print_what_the_picture_shows(recording):
    ports = dict(zip(("11221", "11222", "11311"), map(str, free_ports(3)), strict=True))
    session = [dataclasses.replace(scene, command=moved(scene.command, ports)) for scene in recording.SESSION]
    outputs = recording.record(session, [moved(command, ports) for command in recording.SERVERS])
    back = {new: old for old, new in ports.items()}
    proxy, load, stages, model = scenes(recording.PICTURE.read_text())
    loops = re.compile(r"\d+ loops")
    now = [loops.sub("N loops", moved(line, back)) for line in outputs[0]]
    assert now == [loops.sub("N loops", line) for line in printed(proxy)]
    for line in ("VALID", "operation ", "verified "):
        assert any(text.startswith(line) for text in outputs[1]) and any(
            text.startswith(line) for text in printed(load)
        )
    first = [line.split()[0] for line in outputs[2]]
    assert first == [line.split()[0] for line in printed(stages)] and "backend" in first
    assert outputs[3] == printed(model)


def moved(text, ports):
    return re.sub(r"\b\d{4,5}\b", lambda found: ports.get(found.group(), found.group()), text)


def test_a_drawing_has_every_line_once_and_escapes_it(recording):
    scene = recording.Scene("printf '<&>'", 1.0)
    svg = recording.draw((scene, scene), [["<&>", "", "b"], ["c"]])
    assert [printed(shown) for shown in scenes(svg)] == [["<&>", "", "b"], ["c"]]
    assert html.escape("$ printf '<&>'") in svg
    # The last scene is what a reader without animations sees.
    assert re.findall(r'<g id="(\w+)"( opacity="0")?>', svg) == [("s0", ' opacity="0"'), ("s1", "")]


def test_a_command_that_fails_makes_no_picture(recording, tmp_path):
    with pytest.raises(RuntimeError, match="failed"):
        recording.record((recording.Scene("waystage load --no-such-flag", 1.0),), ())


def test_lines_are_wrapped_at_words_and_have_no_escape_codes(recording):
    long = "a" * 100 + " " + "b" * 30
    assert recording.lines_of(f"\r\n\x1b[1mx\x1b[0m\r\n{long}\r\nold\rnew\r\n\r\n") == [
        "x",
        "a" * 100,
        "b" * 30,
        "new",
    ]
