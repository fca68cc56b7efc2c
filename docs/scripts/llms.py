"""Write llms.txt: the pages of the site, by section, with one sentence each, and the written pages as Markdown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LARGE = 40_000  # characters of a page that is not copied


def write_llms(config: Path, staged: Path, site: Path) -> None:
    """Write llms.txt and copy the Markdown of every page in the navigation beside its HTML."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}", ""]
    for section, entries in (next(iter(part.items())) for part in settings["nav"]):
        lines += [f"## {section}", ""]
        for file in pages(entries):
            text = (staged / file).read_text(encoding="utf-8")
            if file.startswith("reference/") or len(text) > LARGE:  # the HTML is as easy to read
                lines.append(f"- [{title(text)}]({file.removesuffix('.md')}.html): {first_sentence(text)}")
                continue
            lines.append(f"- [{title(text)}]({file}): {first_sentence(text)}")
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / file, site / file)
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def pages(entries: Any) -> Iterator[str]:
    """The files of a part of the navigation, in their order."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for part in entries.values():
            yield from pages(part)
    else:
        for part in entries:
            yield from pages(part)


def title(text: str) -> str:
    """The first heading of a page."""
    return re.search(r"^# (.+)$", text, re.MULTILINE)[1]  # type: ignore[index]


def first_sentence(text: str) -> str:
    """The first sentence below the title that is no code, table, picture or note."""
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.MULTILINE | re.DOTALL)
    body = re.sub(r"^(```.*?^```|<[^\n]*|\||!|#|:::)[^\n]*$", "", text.split("\n", 1)[1], flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", body):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
        if words and words[0] not in "|!#<":
            return re.split(r"(?<=[.:?]) ", words, maxsplit=1)[0]
    return ""
