"""The pages of the site: links lead somewhere, and all are in the navigation. test_readme.py runs their code."""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "scripts"))
import blocks  # noqa: E402

PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, *sorted(ROOT.glob("*.md"))]
LINK = re.compile(r"\[(?:[^][]|\[[^]]*\])*\]\(([^)\s]+)\)")


def prose(file):
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(file):
    """The anchors of the headings of a page, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower())) for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    lost = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            lost.append(target)
    assert lost == []


FOREIGN = re.compile(r"https://[a-z0-9.-]+\.[a-z]{2,}(/[\w./~%+?=&@:,()-]*)?(#[\w./-]+)?")
HOSTS = """arxiv.org doi.org github.com openreview.net en.wikipedia.org pytorch.org download.pytorch.org archive.ics.uci.edu
api.openml.org www.openml.org scikit-learn.org""".split()


def test_addresses_of_other_hosts_are_well_formed():
    """Only their form is checked: tests run offline, so whether a page is still there is not known."""
    targets = {target for page in DOCUMENTS for target in LINK.findall(prose(page)) if re.match(r"[a-z]+:", target)}
    assert {target for target in targets if not FOREIGN.fullmatch(target)} == set()
    assert {urlsplit(target).netloc for target in targets} <= set(HOSTS)
    for target in targets:
        if "arxiv.org/" in target:
            assert re.search(r"arxiv\.org/(abs|pdf)/(\d{4}\.\d{4,5}|[a-z-]+/\d{7})", target), target
        if "doi.org/" in target:
            assert re.search(r"doi\.org/10\.\d{4,}/\S+$", target), target
        if "github.com/" in target:
            assert re.search(r"github\.com/[\w.-]+/[\w.-]+(/(issues|pull|blob|tree)/\S+)?$", target), target


def test_no_page_installs_a_package_that_is_not_on_pypi():
    """``pip install cafexai`` finds nothing: pages install from a clone. docs/versions.md says how it will be."""
    pages = [page for page in [ROOT / "README.md", *PAGES] if page.name != "versions.md"]
    assert [page.name for page in pages if re.search(r"pip\s+install\s+'?cafexai", page.read_text(encoding="utf-8"))] == []


def test_every_page_is_in_the_navigation():
    yaml = pytest.importorskip("yaml")

    def files(entry):
        if isinstance(entry, str):
            return [entry]
        return [file for part in (entry.values() if isinstance(entry, dict) else entry) for file in files(part)]

    listed = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(listed) == len(set(listed))
    assert {page.relative_to(DOCS).as_posix() for page in PAGES} == set(listed) - {"reference/"}


def test_the_comparison_of_outputs_looks():
    assert blocks.same_text("a 1.00 b -2e-3", "a  1.01 b 0.001")
    assert not blocks.same_text("a 1.00", "a 1.20")
    assert not blocks.same_text("a 1.00", "b 1.00")
    assert not blocks.same_text("a 1 2", "a 1")
