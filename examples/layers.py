"""Draw docs/layers.svg, the storeys of the package, from its imports: python examples/layers.py [FILE].

Only imports at the top of a file count. Late imports (inside functions, or for types alone) may point upwards.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

import cafexai

PACKAGE = Path(cafexai.__file__).parent
LEFT_OUT = ("__init__", "__main__")
COMMON = ("errors", "_extras", "_files", "_logging", "_processes", "_docstrings", "_cluster", "_torch")
STOREYS = {  # from the bottom to the top; what is not named is what people use
    "what all use": COMMON,
    "the engine": ("_core", "_carriers", "rules", "_inputs", "schema", "explanation", "_engine"),
    "what people use": (),
    "the paper": ("paper", "datasets", "models", "studies"),
}
TOP = ("cli",)  # it imports on first use only, and stands above what it calls
TINT = {"what all use": "#F7F7F7", "the engine": "#EFEFEF", "what people use": "#EAF3FA", "the paper": "#F6F1E4"}
PRIVATE, PUBLIC, EDGE = "#D9D9D9", "#B9D7EE", "#555555"
LABEL, HEIGHT, GAP = 1.3, 1.0, 0.45  # width of the labels, height of a row, space between storeys
Imports = dict[str, set[str]]


def part(file: Path) -> str:
    """The folder of a file, or its own name in the root."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def graph() -> Imports:
    """Every part with those that it imports at the top of its files."""
    found: Imports = {}
    for file in PACKAGE.rglob("*.py"):
        own, depth = part(file), len(file.relative_to(PACKAGE).parts)
        imports = found.setdefault(own, set())
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.level == depth:
                imports |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    kept = set(found) - set(LEFT_OUT)
    return {own: (imports & kept) - {own} for own, imports in found.items() if own in kept}


def storey_of(own: str) -> str:
    """The storey of a part."""
    return next((storey for storey, parts in STOREYS.items() if own in parts), "what people use")


def check(imports: Imports) -> None:
    """Refuse imports that point to a higher storey."""
    order = list(STOREYS)
    for own, direct in imports.items():
        for other in direct:
            if order.index(storey_of(other)) > order.index(storey_of(own)):
                raise SystemExit(f"{own} imports {other}, which is in a higher storey.")


def levels(imports: Imports) -> dict[str, int]:
    """How many parts stand below each; parts of a cycle share a level."""
    found = dict.fromkeys(imports, 0)
    for _ in imports:  # a longest path has no more steps than there are parts
        for own, direct in imports.items():
            behind = (found[other] for other in direct if own not in reaches(other, imports))
            found[own] = max((1 + level for level in behind), default=0)
    return found


def reaches(own: str, imports: Imports) -> set[str]:
    """All that a part imports, directly or not."""
    found: set[str] = set()
    waiting = [own]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def shortest(imports: Imports) -> Imports:
    """Only the imports that do not follow from others."""
    return {
        own: {one for one in direct if not any(one in reaches(other, imports) for other in direct - {one})}
        for own, direct in imports.items()
    }


def within(storey: str, imports: Imports) -> Imports:
    """The imports of a storey from itself."""
    own = {name for name in imports if storey_of(name) == storey}
    return {name: imports[name] & own for name in sorted(own)}


def rows_of(imports: Imports) -> list[list[str]]:
    """The parts of a storey by level, the lowest first, each above what it imports as far as can be."""
    level = levels(imports)
    highest = max(level.values()) + any(name in TOP for name in level)
    rows: list[list[str]] = [[] for _ in range(highest + 1)]
    for name in imports:
        rows[highest if name in TOP else level[name]].append(name)
    column: dict[str, float] = {}
    for row in rows:
        beside = {name: sum(column[other] for other in imports[name]) / max(1, len(imports[name])) for name in row}
        row.sort(key=lambda name: (beside[name], name))
        column |= {name: (number + 0.5) / len(row) for number, name in enumerate(row)}
    return rows


def draw(path: str) -> None:
    """One band per storey, one row of boxes per level, the lowest at the bottom."""
    imports = graph()
    check(imports)
    inside = {storey: within(storey, imports) for storey in STOREYS}
    rows = {storey: rows_of(own) for storey, own in inside.items()}
    widest = max(len(row) for storey in rows.values() for row in storey)
    total = sum(map(len, rows.values())) * HEIGHT + GAP * (len(rows) - 1)
    mpl.rcParams["svg.hashsalt"] = "layers"  # the same bytes in every run
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(1.5 * (widest + LABEL), 0.85 * total), layout="constrained")
    axes = figure.subplots()
    bottom = 0.0
    for number, storey in enumerate(STOREYS):
        height = len(rows[storey]) * HEIGHT
        axes.add_patch(Rectangle((0, bottom), widest + LABEL, height, facecolor=TINT[storey], zorder=0))
        axes.text(0.12, bottom + height / 2, storey, ha="left", va="center", fontsize=12, fontweight="bold")
        places = {
            name: (LABEL + (column + 0.5) * widest / len(row), bottom + (level + 0.5) * HEIGHT)
            for level, row in enumerate(rows[storey])
            for column, name in enumerate(row)
        }
        draw_parts(axes, places, shortest(inside[storey]))
        if number:
            thick = {"arrowstyle": "simple,head_width=1,tail_width=0.4", "color": EDGE, "lw": 0}
            axes.annotate("", (LABEL / 2, bottom - GAP), (LABEL / 2, bottom), arrowprops=thick)
            axes.text(LABEL / 2 + 0.18, bottom - GAP / 2, "may import all below", va="center", fontsize=9, color=EDGE)
        bottom += height + GAP
    axes.set_xlim(0, widest + LABEL)
    axes.set_ylim(0, total)
    axes.axis("off")
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def draw_parts(axes: Axes, places: dict[str, tuple[float, float]], imports: Imports) -> None:
    """The boxes of a storey, and an arrow for each import between them."""
    for own, direct in imports.items():
        for other in sorted(direct):
            (x, y), (to_x, to_y) = places[own], places[other]
            arrow = {"arrowstyle": "-|>", "color": EDGE, "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (to_x, to_y + 0.24), (x, y - 0.24), arrowprops=arrow)
    for name, (x, y) in places.items():
        colour = PRIVATE if name.startswith("_") else PUBLIC
        box = FancyBboxPatch((x - 0.4, y - 0.19), 0.8, 0.38, "round,pad=0.03", facecolor=colour, edgecolor=EDGE, zorder=3)
        axes.add_patch(box)
        shown = f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py"
        axes.text(x, y, shown, ha="center", va="center", fontsize=10, family="monospace", zorder=4)


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent.parent / "docs" / "layers.svg"))
