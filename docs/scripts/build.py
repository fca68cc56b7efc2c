"""Build the site: copy the pages, run Zensical, make it complete without a network, write llms.txt, check it.

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

ROOT = Path(__file__).parents[2]
DOCS, STAGED, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "build" / "site"
KEPT = {".md", ".png", ".svg", ".js", ".css"}
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")


def stage() -> None:
    """Copy docs/ to build/docs."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for file in sorted(DOCS.rglob("*")):
        if file.suffix not in KEPT:
            continue
        copy = STAGED / file.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(name_files_outside(file), encoding="utf-8")
        else:
            shutil.copyfile(file, copy)


def name_files_outside(page: Path) -> str:
    """The text of a page; links to files of the repository outside of docs/ become the names of these files."""

    def replace(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        file = (page.parent / target.split("#")[0]).resolve()
        if re.match(r"[a-z]+:|#", target) or file.is_relative_to(DOCS) or not file.exists():
            return match[0]
        name = f"`{file.relative_to(ROOT).as_posix()}`"
        return name if image or text == name else f"{text} ({name})"

    parts = re.split(r"(^```.*?^```)", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def write_settings() -> Path:
    """Copy mkdocs.yml to build/, without the entries of the navigation whose page is not written yet."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": STAGED.name, "site_dir": SITE.name}
    settings["nav"] = [{name: existing(pages)} for part in settings["nav"] for name, pages in part.items()]
    for plugin in settings["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    copy = ROOT / "build" / "mkdocs.yml"
    copy.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return copy


def existing(entries: list[Any]) -> list[Any]:
    """The entries of a section whose page is there; sections inside of it are searched, too."""
    found = []
    for entry in entries:
        name, page = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(page, list):
            found.append({name: existing(page)})
        elif (DOCS / page).is_file():
            found.append(entry)
    return found


def finish() -> None:
    """Take out what a site without a network does not need: a script of another host, the second style of the theme."""
    shutil.rmtree(SITE / "assets" / "stylesheets" / "classic", ignore_errors=True)
    for name in ("sitemap.xml", "404.html"):  # they need the address of the site
        (SITE / name).unlink(missing_ok=True)
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        root = "../" * (len(page.relative_to(SITE).parts) - 1) or "./"
        ours = f'<script src="{root}assets/worker.js"></script>'
        text = re.sub(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>', ours, text)
        page.write_text(text, encoding="utf-8")


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
