"""The pages lead to each other: links and anchors of the Markdown, and of the site that is made of it."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "results").rglob("*.md"))


def without_code(page):
    """The prose of a page: signs in code are no links and no headings."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors of the headings of a page, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = without_code(page)
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_word_of_the_glossary_is_linked_and_all_links_are_words():
    glossary = ROOT / "docs/glossary.md"
    words = {re.sub(" ", "-", word) for word in re.findall(r"^### (.*)$", glossary.read_text(), flags=re.MULTILINE)}
    linked = {word for page in PAGES for word in re.findall(r"glossary\.md#([\w-]+)", page.read_text())}
    assert len(words) > 30
    assert words == linked


class Links(HTMLParser):
    """What a page of the site links to, what it shows, and its anchors."""

    def __init__(self, page):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, but for what the tutorials print and draw: tests/test_tutorials.py runs them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "-D", "nb_execution_mode=off"]
    command += ["-d", folder / "doctrees", ROOT, folder / "site"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_site_leads_nowhere_wrong_and_fetches_nothing(site):
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 40
    wrong = []
    for page, found in pages.items():
        for link in found.links:
            url = urlparse(link)
            if url.scheme in ("https", "http", "mailto", "data"):
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (url.fragment and target in pages and url.fragment not in pages[target].anchors):
                wrong.append(f"{page.relative_to(site)}: {link}")
        text = page.read_text()
        assert not re.search(r'<(script|img|link rel="(stylesheet|preload)")[^>]*(src|href)="(https?:)?//', text), page
    assert not wrong, wrong
    assert not [style for style in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", style.read_text())]


@pytest.mark.slow
def test_every_public_object_is_in_the_reference(site):
    shown = {anchor for page in (site / "docs/api").glob("*.html") for anchor in Links(page).anchors}
    names = (ROOT / "tests/public_names.txt").read_text().split()
    modules = [name for name in names if any((ROOT / (name.replace(".", "/") + end)).exists() for end in ("", ".py"))]
    aliases = {"tfp_flowify.FlowDistribution": "tfp_flowify.distributions.FlowDistribution"}
    missing = [name for name in names if name not in modules and aliases.get(name, name) not in shown]
    assert missing == ["tfp_flowify.__version__"]
