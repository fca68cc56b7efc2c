"""Build the site: copy the pages, write the reference, run Zensical, make it complete offline, write llms.txt, check it.

python docs/scripts/build.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from check import check
from llms import write_llms
from PIL import Image
from reference import write_reference

ROOT = Path(__file__).parents[2]
DOCS, STAGED, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "build" / "site"
TABLES = {"evidence.md", "paper.md", "zoo.md"}  # a search for a word should not find a thousand lines of numbers
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
KEPT = {".md", ".png", ".svg", ".js", ".css"}
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")


def stage() -> None:
    """Copy docs/ to build/docs, pictures with 256 colours and as WebP, a seventh smaller than PNG."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for file in sorted(DOCS.rglob("*")):
        if file.suffix not in KEPT:
            continue
        copy = STAGED / file.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(UNSEARCHED * (file.name in TABLES) + name_files_outside(file), encoding="utf-8")
        elif file.suffix == ".png":
            few = Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE)
            few.convert("RGB").save(copy.with_suffix(".webp"), lossless=True)
        else:
            shutil.copyfile(file, copy)


def name_files_outside(page: Path) -> str:
    """The text of a page: links to files of the repository outside of docs/ become their names, pictures are WebP."""

    def replace(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        file = (page.parent / target.split("#")[0]).resolve()
        if re.match(r"[a-z]+:|#", target) or file.is_relative_to(DOCS) or not file.exists():
            return match[0].replace(".png)", ".webp)") if image else match[0]
        name = f"`{file.relative_to(ROOT).as_posix()}`"
        return name if image or text == name else f"{text} ({name})"

    parts = re.split(r"(^```.*?^```)", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def write_settings() -> Path:
    """Copy mkdocs.yml to build/, with the pages of the reference where the navigation has their folder."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": STAGED.name, "site_dir": SITE.name}
    reference = write_reference(STAGED)
    settings["nav"] = [{name: with_reference(pages, reference)} for part in settings["nav"] for name, pages in part.items()]
    copy = ROOT / "build" / "mkdocs.yml"
    copy.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return copy


def with_reference(entries: list[Any], pages: list[str]) -> list[Any]:
    """The entries of a section, the folder of the reference replaced by its pages."""
    return [
        {name: pages} if page == "reference/" else page if name is None else {name: page} for name, page in map(named, entries)
    ]


def named(entry: Any) -> tuple[str | None, Any]:
    """Name and page of an entry of the navigation."""
    return next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)


def finish() -> None:
    """Take out what a site without a network does not need: a script of another host, the second style of the theme."""
    shutil.rmtree(SITE / "assets" / "stylesheets" / "classic", ignore_errors=True)
    for name in ("sitemap.xml", "404.html", "search.json"):  # these need a server; search.js has the same index
        (SITE / name).unlink(missing_ok=True)
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        root = "../" * (len(page.relative_to(SITE).parts) - 1) or "./"
        ours = f'<script src="{root}assets/worker.js"></script>'
        text = re.sub(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>', ours, text)
        page.write_text(without_indentation(without_plain_tokens(text)), encoding="utf-8")
    index = SITE / "search.js"
    index.write_text(re.sub(r"</?(code|strong|em)>", "", index.read_text(encoding="utf-8")), encoding="utf-8")  # a tenth of it


def without_plain_tokens(text: str) -> str:
    """A page whose names, operators and brackets in code are not each an element of its own; they have the colour of text."""
    return re.sub(r'<span class="(?:n|o|p|w)">([^<]*)</span>', r"\1", text)


def without_indentation(text: str) -> str:
    """A page without the empty lines and the indentation of its templates, a fifth of its size; code stays as it is."""
    parts = re.split(r"(<pre.*?</pre>|<script.*?</script>)", text, flags=re.DOTALL)
    return "".join(part if i % 2 else re.sub(r"\s*\n\s*", "\n", part) for i, part in enumerate(parts))


def main() -> None:
    """Build everything; end with an error where something is wrong."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    settings = write_settings()
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict", "--config-file", settings], check=True, cwd=ROOT)
    finish()
    write_llms(settings, STAGED, SITE)
    faults, size = check(SITE)
    print(*faults, sep="\n", end="\n" * bool(faults))
    print(f"{SITE.relative_to(ROOT)}/index.html: {len(list(SITE.rglob('*.html')))} pages, {size / 1e6:.2f} MB")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
