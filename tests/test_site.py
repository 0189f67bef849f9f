"""The documentation site: strict about links and navigation, and readable in a browser without a server."""

import os
import shutil
from pathlib import Path

import build_site
import pytest
from browser import Browser, program
from gather_pages import CONFIGURATION, FILES, ROOT, ROOT_PAGES, Gathering, SiteError

# The home page, wide tables, code, figures in a table, and a page at the root.
SHOWN = ["index.html", "messages.html", "comparison.html", "field-results/a16.html", "project/index.html"]
# What reaches beyond the screen, outside frames that scroll by themselves and the menu, which slides in.
BEYOND = """[...document.querySelectorAll('.md-content *')].filter(part =>
  !part.closest('.md-typeset__scrollwrap, pre, .highlight')
  && part.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(part => part.outerHTML.slice(0, 80))"""
# The contrast of the text and of the first link with the page, by the formula of WCAG 2.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d');
  const light = colour => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(part => {
      part /= 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const page = light(getComputedStyle(document.body).backgroundColor);
  return ['p', 'h1', 'article a:not(.headerlink)'].map(part => {
    const text = light(getComputedStyle(document.querySelector('.md-content ' + part)).color);
    return (Math.max(page, text) + 0.05) / (Math.min(page, text) + 0.05); });
})()"""
SEARCH = """(() => {
  const field = document.querySelector('[data-md-component=search-query]');
  field.focus(); field.value = 'hedged'; field.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
})()"""
FOUND = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href.split('/').pop())"


def small(root: Path, page: str = "", navigation: str = "", extra: str = "") -> Gathering:
    """Make a small repository with one page that has this text, and return its gathering."""
    (root / CONFIGURATION.parent).mkdir(parents=True)
    for name in FILES:
        (root / CONFIGURATION.parent / name).write_text("")
    for name in ROOT_PAGES:
        (root / name).write_text(f"# {name}\n")
    entries = ["page.md", *(f"project/{name}" for name in ROOT_PAGES)]
    listed = "".join(f"  - {entry}\n" for entry in entries)
    (root / CONFIGURATION).write_text(f"site_name: x\n\nnav:\n{listed}{navigation}")
    (root / "docs/page.md").write_text(page)
    (root / "code.rs").write_text("fn main() {}")
    if extra:
        (root / extra).parent.mkdir(parents=True, exist_ok=True)
        (root / extra).write_text("# Extra\n")
    return Gathering(root, root / "target")


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"page": "[a](b.md)"}, "docs/page.md: the link b.md does not lead to a page or file of the site"),
        ({"page": "![a](b.svg)"}, "docs/page.md: the link b.svg"),
        ({"page": '<img src="b.svg">'}, "docs/page.md: the link b.svg"),
        ({"page": "[a](../../outside.md)"}, "docs/page.md: the link ../../outside.md"),
        ({"extra": "docs/lost.md"}, "the navigation lacks the page lost.md"),
        ({"navigation": "  - nowhere.md\n"}, "there is no page nowhere.md"),
        ({"navigation": "  - page.md\n"}, "the navigation names page.md twice"),
    ],
)
def test_a_mistake_is_an_error(tmp_path, changes, mistake):
    with pytest.raises(SiteError, match=mistake.replace(".", r"\.")):
        small(tmp_path, **changes).run()
    assert not (tmp_path / "target").exists()


def test_links_lead_to_pages_and_copies(tmp_path):
    text = "[a](../README.md#x) [b](../code.rs) [c](site) `[d](e.md)`\n```\n[f](g.md)\n```\n| `a\\|b` |\n"
    small(tmp_path, text, "  - more/*\n", "docs/more/extra.md").run()
    pages = tmp_path / "target/site-pages"
    assert (pages / "page.md").read_text() == (
        "[a](project/README.md#x) [b](source/code.rs.txt) c `[d](e.md)`\n```\n[f](g.md)\n```\n| `a|b` |\n"
    )
    assert (pages / "source/code.rs.txt").read_text() == "fn main() {}"
    assert "  - more/extra.md" in (tmp_path / "target/site.yml").read_text()


def test_a_built_page_needs_its_anchors_and_no_network(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="x"></h1><a href="#x"></a><a href="b.html#y"></a><a href="c.html"></a>'
    )
    (tmp_path / "b.html").write_text(
        '<script src="https://cdn.example/x.js"></script><a href="https://example"></a>'
    )
    assert build_site.check(tmp_path) == [
        "a.html: b.html#y: the page has no such heading",
        "a.html: c.html does not exist",
        "b.html: https://cdn.example/x.js is loaded from the network",
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the real site: every link, anchor and entry of the navigation is right, or this fails."""
    folder = tmp_path_factory.mktemp("site")
    build_site.build(folder)
    yield folder / "site"
    shutil.rmtree(folder)


def test_the_site_has_every_page(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    # MkDocs makes the index of a folder from its README.
    pages = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


@pytest.fixture(scope="module")
def browser():
    if program() is None:
        assert "WAYSTAGE_REQUIRE_PEERS" not in os.environ, "chromium is required here"
        pytest.skip("no browser")
    with Browser() as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("page", SHOWN)
def test_a_page_is_readable_from_a_folder(site, browser, page, width, dark):
    browser.open(site / page, width, dark, "document.querySelector('.md-content h1')")
    assert browser.errors == []
    assert all(address.startswith(("file:", "data:")) for address in browser.requests)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(BEYOND) == []
    text, heading, link = browser.value(CONTRAST)
    # WCAG 2, level AA: 4.5 for text, 3 for large text such as headings.
    assert text >= 4.5 and heading >= 3 and link >= 4.5, (text, heading, link)


def test_the_search_works_without_a_server(site, browser):
    browser.open(
        site / "index.html", 1300, ready="document.querySelector('[data-md-component=search-query]')"
    )
    browser.value(SEARCH)
    deadline = 600
    while not (found := browser.value(FOUND)) and deadline:
        deadline -= 1
        browser.value("new Promise(done => setTimeout(done, 50))")
    assert any(name.startswith("consistency.html") for name in found), found
    assert browser.errors == []
