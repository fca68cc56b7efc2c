"""Run the Python blocks of a page in their order, and write what they print into the output blocks behind them.

python docs/scripts/blocks.py [PAGE.md ...]     without pages: all that have output blocks; make pages calls this

An output block is a fence with the words ``text title="Output"`` right behind a Python block.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(
    r'^```python\n(?P<code>.*?)^```\n(?:\n?^```text title="Output"\n(?P<output>.*?)^```\n)?', re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


def run_blocks(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Each Python block of a page with what it printed; errors name the line of the page."""
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text[: block.start("code")].count("\n")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * line + block["code"], str(page), "exec"), names)
        yield block, "".join(part.rstrip() + "\n" for part in said.getvalue().rstrip().splitlines())


def same_text(found: str, expected: str, tolerance: float = 0.05) -> bool:
    """Whether two texts are the same but for spaces and for small differences of numbers."""
    parts = [[NUMBER.sub(" # ", text).split(), [float(one) for one in NUMBER.findall(text)]] for text in (found, expected)]
    (words, numbers), (other_words, others) = parts
    near = (abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) for a, b in zip(numbers, others, strict=False))
    return words == other_words and len(numbers) == len(others) and all(near)


def refresh(page: Path) -> None:
    """Write the outputs of today into the output blocks of a page."""
    text, pieces, end = page.read_text(encoding="utf-8"), [], 0
    for block, said in run_blocks(page):
        if block["output"] is not None:
            pieces += [text[end : block.start("output")], said]
            end = block.end("output")
    page.write_text("".join([*pieces, text[end:]]), encoding="utf-8")


def pages_with_outputs() -> list[Path]:
    """The pages that show what their code prints."""
    pages = sorted(Path(__file__).parents[1].rglob("*.md"))
    return [
        page for page in pages if any(found["output"] is not None for found in BLOCK.finditer(page.read_text(encoding="utf-8")))
    ]


if __name__ == "__main__":
    for page in map(Path.absolute, map(Path, sys.argv[1:] or pages_with_outputs())):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # pages write files
            refresh(page)
