"""The README's pictures: drawn by `make pictures` from the data beside them, for light and for dark pages."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"


@pytest.fixture(scope="module")
def drawings():
    found = importlib.util.spec_from_file_location("draw", IMAGES / "draw.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.drawings()


def test_the_pictures_are_those_that_the_command_draws(drawings):
    assert sorted(drawings) == sorted(path.name for path in IMAGES.glob("*.svg"))
    for name, svg in drawings.items():
        assert (IMAGES / name).read_text() == svg, f"{name} is not current: run make pictures"


def test_the_pages_have_every_picture_for_light_and_for_dark_readers():
    shown = set()
    for page in (ROOT / "README.md", ROOT / "docs/prediction.md"):
        text = page.read_text()
        light = re.findall(r'<img src="([^"]+)"', text)
        dark = re.findall(r'media="\(prefers-color-scheme: dark\)" srcset="([^"]+)"', text)
        assert light and dark == [name.replace(".svg", "-dark.svg") for name in light]
        shown |= {(page.parent / name).resolve() for name in [*light, *dark]}
    assert shown == set(IMAGES.glob("*.svg"))
