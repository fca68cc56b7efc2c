"""Draws docs/layers.svg, what may import what, from the imports of the package: python examples/layers.py [FILE]."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import cafexai

PACKAGE = Path(cafexai.__file__).parent
LEFT_OUT = ("__init__", "__main__", "errors", "_extras")  # the doors, and what all use
PRIVATE, PUBLIC, EDGE = "#E6E6E6", "#CFE3F2", "#555555"


def part(file: Path) -> str:
    """The folder of a file, or its own name in the root."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def graph() -> dict[str, set[str]]:
    """Every part with those that it imports at the top of its files."""
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        own, depth = part(file), len(file.relative_to(PACKAGE).parts)
        imports = found.setdefault(own, set())
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.level == depth:
                imports |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    kept = set(found) - set(LEFT_OUT)
    return {own: (imports & kept) - {own} for own, imports in found.items() if own in kept}


def level(own: str, imports: dict[str, set[str]]) -> int:
    """How many parts stand below one another under this one."""
    return 1 + max((level(other, imports) for other in imports[own]), default=-1)


def reaches(own: str, imports: dict[str, set[str]]) -> set[str]:
    """All that a part imports, directly or not."""
    return imports[own].union(*(reaches(other, imports) for other in imports[own]))


def shortest(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Only the imports that do not follow from others."""
    return {
        own: {one for one in direct if not any(one in reaches(other, imports) for other in direct - {one})}
        for own, direct in imports.items()
    }


def draw(path: str) -> None:
    """One row of boxes per level, the lowest at the bottom."""
    imports = graph()
    rows: dict[int, list[str]] = {}
    for own in sorted(imports):
        rows.setdefault(level(own, imports), []).append(own)
    widest = max(map(len, rows.values()))
    places: dict[str, tuple[float, int]] = {}
    for height in sorted(rows):  # above what they import, as far as can be
        beside = {name: sum(places[other][0] for other in imports[name]) / max(1, len(imports[name])) for name in rows[height]}
        for number, name in enumerate(sorted(rows[height], key=lambda name: (beside[name], name))):
            places[name] = ((number + 0.5) * widest / len(rows[height]), height)
    mpl.rcParams["svg.hashsalt"] = "layers"  # the same bytes in every run
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(1.9 * widest, 1.05 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for own, direct in shortest(imports).items():
        for other in sorted(direct):
            (x, y), (to_x, to_y) = places[own], places[other]
            arrow = {"arrowstyle": "-|>", "color": EDGE, "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (to_x, to_y + 0.26), (x, y - 0.26), arrowprops=arrow)
    for name, (x, y) in places.items():
        folder = (PACKAGE / name).is_dir()
        colour = PRIVATE if name.startswith("_") else PUBLIC
        axes.add_patch(
            FancyBboxPatch((x - 0.42, y - 0.2), 0.84, 0.4, "round,pad=0.03", facecolor=colour, edgecolor=EDGE, zorder=3)
        )
        axes.text(
            x, y, f"{name}/" if folder else f"{name}.py", ha="center", va="center", fontsize=10, family="monospace", zorder=4
        )
    axes.set_xlim(0, widest)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.axis("off")
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent.parent / "docs" / "layers.svg"))
