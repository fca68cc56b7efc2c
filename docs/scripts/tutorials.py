"""Fill the tutorial pages: code blocks from the scripts of examples/tutorials, output blocks and pictures from running these.

python docs/scripts/tutorials.py [NAME ...]

A code block is a fence with the words ``py title="NAME.py: FUNCTION"``, the output block has
``text title="Output of NAME.py"``.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "tutorials"
PICTURES = ROOT / "docs" / "pictures"
PAGES = {"credit": "table.md", "digits": "image.md", "words": "text.md"}
CODE = re.compile(r'^```py title="(?P<name>\w+)\.py: (?P<function>\w+)"\n(?P<code>.*?)^```\n', re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r'^```text title="Output of (?P<name>\w+)\.py"\n(?P<output>.*?)^```\n', re.MULTILINE | re.DOTALL)


def page_of(name: str) -> Path:
    """The page of a tutorial."""
    return ROOT / "docs" / "start" / PAGES[name]


def source_of(name: str, function: str) -> str:
    """The code of a function of a tutorial."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    node = next(one for one in ast.parse(text).body if getattr(one, "name", None) == function)
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]) + "\n"


def fill_code(text: str) -> str:
    """A page with the code of today."""
    return CODE.sub(
        lambda one: f'```py title="{one["name"]}.py: {one["function"]}"\n{source_of(one["name"], one["function"])}```\n', text
    )


def fill_output(text: str, said: str) -> str:
    """A page with what the script printed."""
    lines = "".join(line.rstrip() + "\n" for line in said.strip().splitlines())
    return OUTPUT.sub(lambda found: f'```text title="Output of {found["name"]}.py"\n{lines}```\n', text)


def run_script(name: str) -> str:
    """What a tutorial prints in an empty folder. The pictures that pages show are copied to docs/pictures."""
    kept = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, SCRIPTS / f"{name}.py"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder, env=kept).stdout
        for picture in Path(folder).glob("*.png"):
            if (PICTURES / picture.name).exists():
                shutil.copy(picture, PICTURES)
        return said


def main() -> None:
    """Fill the pages that are named, or all."""
    for name in sys.argv[1:] or PAGES:
        page = page_of(name)
        page.write_text(fill_output(fill_code(page.read_text(encoding="utf-8")), run_script(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
