"""Builds the documentation site into target/site and checks it: `python docs/site/build_site.py [FOLDER]`.

Prints one line for each mistake and exits with 1 if there is one: a dead link or anchor, a page outside the navigation,
or a page that needs the network. Without FOLDER, builds into target.
"""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from gather_pages import ROOT, Gathering, SiteError


class Page(HTMLParser):
    """The anchors of a built page, the addresses that it links to, and those that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect what the attributes of an element name."""
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        if tag in ("img", "script", "source", "iframe"):
            self.loads |= {found[name] for name in ("src", "srcset") if name in found}
        if tag == "link" and found.get("rel") != "canonical":
            self.loads.add(found["href"])


def check(site: Path) -> list[str]:
    """Return one line for each link, anchor or file of a built site that a reader could not open without a network."""
    built = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    mistakes = []
    for path, page in built.items():
        # The page for missing addresses of a server has absolute links, and nobody opens it from a folder.
        if path == site / "404.html":
            continue
        for address in sorted(page.links | page.loads):
            mistake = _mistake(path, address, built, address in page.loads)
            if mistake:
                mistakes.append(f"{path.relative_to(site)}: {mistake}")
    return mistakes


def _mistake(path: Path, address: str, built: dict[Path, Page], loaded: bool) -> str | None:
    if re.match(r"https?:|//", address):
        return f"{address} is loaded from the network" if loaded else None
    if re.match(r"data:|mailto:", address):
        return None
    name, _, anchor = address.partition("#")
    target = Path(os.path.normpath(path.parent / unquote(name))) if name else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"{address} does not exist"
    if anchor and target in built and unquote(anchor) not in built[target].anchors:
        return f"{address}: the page has no such heading"
    return None


def build(folder: Path) -> None:
    """Gather, build and check the site in `folder`/site; raises SiteError."""
    folder.mkdir(parents=True, exist_ok=True)
    Gathering(ROOT, folder).run()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["--config-file", str(folder / "site.yml")]
    # Without this variable, the theme prints an advertisement of its successor.
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, check=False, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise SiteError((done.stdout + done.stderr).strip())
    mistakes = check(folder / "site")
    if mistakes:
        raise SiteError("\n".join(mistakes))


if __name__ == "__main__":
    try:
        build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target")
    except SiteError as error:
        sys.exit(str(error))
