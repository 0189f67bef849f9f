"""Gathers the pages of the documentation site: docs/ and the pages at the root, with links for the site.

Links to other files of the repository lead to copies with the suffix `.txt`, which a browser shows without a server.
Fails if a link leads nowhere, or if the navigation lacks a page or names one twice.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = Path("docs/site/mkdocs.yml")
# What the configuration calls `docs_dir`, and files that pages need although no page links to them.
PAGES = "site-pages"
FILES = ("site.css", "iframe-worker.js", "iframe-worker.LICENSE")
# Pages outside docs/; in the site they are in the folder `project`.
ROOT_PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
)
# Files that a browser shows or that a reader downloads; everything else is copied as text.
ASSETS = {".svg", ".png", ".json"}

# The targets in [text](target) and ![text](target) and, in HTML, of src, srcset and href.
LINK = re.compile(
    r'(?<=\]\()[^()\s]+(?=\))|(?<= src=")[^"]+(?=")|(?<= href=")[^"]+(?=")|(?<= srcset=")[^"]+(?=")'
)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK_TO_FOLDER = re.compile(r"\[([^\[\]]+)\]\(FOLDER\)")
ALL_OF_FOLDER = re.compile(r"^( *- )(\S+)/\*$", re.MULTILINE)
# In a cell, GitHub needs a backslash before a bar, also in code; the site's renderer shows it.
TABLE_ROW = re.compile(r"^\|.*", re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]+`")
TABLE_AFTER_COMMENT = re.compile(r"^(<!-- .* -->)\n(?=\|)", re.MULTILINE)


class SiteError(Exception):
    """The site cannot be built; the text has one line for each mistake."""


class Gathering:
    """The pages and files of one build, and the mistakes that were found in them."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.pages = {path.relative_to(root) for path in (root / "docs").rglob("*.md")}
        self.pages |= {Path(name) for name in ROOT_PAGES}
        self.files: set[Path] = set()
        self.mistakes: list[str] = []

    def run(self) -> None:
        """Write the configuration, the pages and the files that they link to; raises SiteError."""
        configuration = self._expand((self.root / CONFIGURATION).read_text())
        self._check_navigation(configuration)
        texts = {page: self._for_site(page, (self.root / page).read_text()) for page in sorted(self.pages)}
        if self.mistakes:
            raise SiteError("\n".join(self.mistakes))
        shutil.rmtree(self.folder / PAGES, ignore_errors=True)
        for page, text in texts.items():
            self._target(place(page)).write_text(text)
        for file in self.files:
            shutil.copyfile(self.root / file, self._target(place(file)))
        for name in FILES:
            shutil.copyfile(self.root / CONFIGURATION.parent / name, self._target(Path(name)))
        (self.folder / "site.yml").write_text(configuration)

    def _target(self, path: Path) -> Path:
        target = self.folder / PAGES / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _expand(self, configuration: str) -> str:
        """Write out the entries `folder/*` of the navigation."""
        named = set(navigation(configuration))

        def expanded(found: re.Match[str]) -> str:
            inside = [str(place(page)) for page in self.pages if str(place(page).parent) == found.group(2)]
            return "\n".join(found.group(1) + name for name in sorted(set(inside) - named))

        return ALL_OF_FOLDER.sub(expanded, configuration)

    def _check_navigation(self, configuration: str) -> None:
        named, existing = navigation(configuration), {str(place(page)) for page in self.pages}
        mistakes = [f"the navigation lacks the page {name}" for name in sorted(existing - set(named))]
        mistakes += [f"there is no page {name}" for name in sorted(set(named) - existing)]
        mistakes += [
            f"the navigation names {name} twice" for name in sorted(set(named)) if named.count(name) > 1
        ]
        self.mistakes += [f"{CONFIGURATION}: {mistake}" for mistake in mistakes]

    def _for_site(self, page: Path, text: str) -> str:
        """Return the text of a page with links for the site. What looks like a link in code stays as it is."""
        text = TABLE_AFTER_COMMENT.sub(r"\1\n\n", text)
        text = TABLE_ROW.sub(
            lambda row: INLINE_CODE.sub(lambda code: code.group().replace("\\|", "|"), row.group()), text
        )
        parts, end = [], 0
        for code in CODE.finditer(text):
            parts += [self._with_links(page, text[end : code.start()]), code.group()]
            end = code.end()
        text = "".join([*parts, self._with_links(page, text[end:])])
        # A browser without a server cannot show a folder: its name stays, without a link.
        return LINK_TO_FOLDER.sub(r"\1", text)

    def _with_links(self, page: Path, text: str) -> str:
        return LINK.sub(lambda found: self._link(page, found.group()), text)

    def _link(self, page: Path, link: str) -> str:
        if re.match(r"[a-z]+:|#", link):
            return link
        name, _, anchor = link.partition("#")
        file = Path(os.path.normpath(page.parent / name))
        if file / "README.md" in self.pages:
            file = file / "README.md"
        if (self.root / file).is_dir():
            return "FOLDER"
        if not (self.root / file).is_file() or (file.suffix == ".md" and file not in self.pages):
            self.mistakes.append(f"{page}: the link {link} does not lead to a page or file of the site")
            return link
        if file.suffix != ".md":
            self.files.add(file)
        return os.path.relpath(place(file), place(page).parent) + (f"#{anchor}" if anchor else "")


def place(path: Path) -> Path:
    """Return where a file of the repository is in the site."""
    if path.parts[0] == "docs":
        inside = Path(*path.parts[1:])
        return inside if path.suffix in ASSETS | {".md"} else Path(f"{inside}.txt")
    return Path("project") / path if str(path) in ROOT_PAGES else Path(f"source/{path}.txt")


def navigation(configuration: str) -> list[str]:
    """Return the pages that the navigation names, in its order, without the entries `folder/*`."""

    def names(part: Any) -> list[str]:
        if isinstance(part, str):
            return [] if part.endswith("/*") else [part]
        inner = part.values() if isinstance(part, dict) else part
        return [name for one in inner for name in names(one)]

    # The navigation is last; what precedes it has tags for Python objects, which a plain loader refuses.
    return names(yaml.safe_load(configuration[configuration.index("\nnav:") :])["nav"])
