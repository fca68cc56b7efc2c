"""Check a built site: every link leads to a page and a heading, nothing is loaded from another host, and it is small.

python docs/scripts/check.py [FOLDER]
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGEST = 5_000_000  # bytes


class Page(HTMLParser):
    """The links and the anchors of a page, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.links, self.loads, self.anchors = file, list[str](), list[str](), {"", "__top"}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element names and links."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "object"):
            self.loads += [given[name] for name in ("src", "srcset", "data") if name in given]


def check(site: Path) -> tuple[list[str], int]:
    """What is wrong, one line each, and the size of the site in bytes."""
    pages = {file.resolve(): Page(file) for file in sorted(site.rglob("*.html"))}
    faults = [] if pages else [f"{site}: there are no pages"]
    for page in pages.values():
        name = page.file.relative_to(site)
        faults += [f"{name}: loads {address}" for address in page.loads if is_foreign(address)]
        local = [address for address in (*page.links, *page.loads) if not is_foreign(address)]
        faults += [f"{name}: {address} leads nowhere" for address in local if not leads_somewhere(page, address, pages, site)]
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    if size > LARGEST:
        faults.append(f"{site}: {size / 1e6:.2f} MB, more than {LARGEST / 1e6:.0f}")
    return faults, size


def is_foreign(address: str) -> bool:
    """Whether another host is asked; a mail address and data inside the page are not local either."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "mailto")


def leads_somewhere(page: Page, address: str, pages: dict[Path, Page], site: Path) -> bool:
    """Whether the file is there, and its heading."""
    parts = urlsplit(address)
    if parts.scheme:
        return parts.scheme == "data"
    start = site if parts.path.startswith("/") else page.file.parent
    file = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else page.file.resolve()
    if file.is_dir():
        file /= "index.html"
    if file not in pages:
        return file.is_file()
    return unquote(parts.fragment) in pages[file].anchors


if __name__ == "__main__":
    found, _ = check(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site"))
    print(*found, sep="\n")
    sys.exit(bool(found))
