"""Several explanations of one row: all classes side by side, or what c changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..explanation import Explanation
from .dispatch import view
from .figures import add_heading, cell_text, figure, heatmap, light
from .image_details import draw_map
from .labels import class_name, labels
from .looks import points
from .palette import CONFLICT, NET, SERIES
from .pixels import maps, reach
from .rounding import Shown, in_digits
from .row_lines import Line, bias_line, number, strongest_first

if TYPE_CHECKING:
    from .picture import Picture

COLUMNS = 12  # explanations that are shown side by side


def several(by: tuple[str, ...], entries: Mapping[Any, Explanation], most: int = 8, order: str = "net") -> Picture:
    """One row of each: lines over c, maps of images, or a table of nets with a column for each."""
    if by == ("c",) and len(entries) > 1 and view(next(iter(entries.values()))) != "image":
        return sweep(entries, most, order)
    kept = dict(list(entries.items())[:COLUMNS])
    more = f" ({len(entries) - len(kept)} more not shown)" if len(entries) > len(kept) else ""
    heads = {key: _head(by, key, one) for key, one in kept.items()}
    if view(next(iter(kept.values()))) == "image":
        return _maps(kept, heads, more)
    return _nets(kept, heads, most, more, order)


def columns(entries: Mapping[Any, Explanation], most: int, order: str = "net") -> dict[Any, Shown]:
    """The same lines for each: the strongest features over all of them, others, the biases."""
    first = next(iter(entries.values()))
    names = [name for name in first.names() if name]
    kept = [i for i, name in enumerate(first.names()) if name]
    scores = {
        key: np.stack([one.flat(part)[0].double().cpu().numpy()[kept] for part in (one.positive, one.negative, one.combined)])
        for key, one in entries.items()
    }
    whole = [sum(np.abs(three[side]) for three in scores.values()) for side in range(3)]
    places = strongest_first(order, *map(torch.as_tensor, whole))
    found = {}
    for key, one in entries.items():
        lines = [_line(names[i], scores[key][:, i], True) for i in places[:most]]
        if len(places) > most:
            others = f"{len(places) - most} other{'s' * (len(places) - most > 1)}"
            lines.append(_line(others, scores[key][:, places[most:]].sum(1), False))
        start, end = one.baseline_output.item(), one.output.item()
        found[key] = in_digits([*lines, bias_line(one)], start, end, 3)
    return found


def _line(name: str, scores: np.ndarray, single: bool) -> Line:
    up, down, net = scores.tolist()
    return Line(name, "", up, down, net, single)


def _head(by: tuple[str, ...], key: Any, one: Explanation) -> str:
    parts = key if len(by) > 1 else (key,)
    words = []
    for what, value in zip(by, parts, strict=True):
        words.append((class_name(one) or f"output {value}") if what == "target" else f"{what} = {value}")
    return "\n".join(words)


def _nets(entries: Mapping[Any, Explanation], heads: Mapping[Any, str], most: int, more: str, order: str) -> Picture:
    """Cells with the nets; every column adds up from the baseline output to the output."""
    rows = columns(entries, most, order)
    lines = next(iter(rows.values())).lines
    names = ["baseline output", *labels([line.name for line in lines], 34), "output"]
    cells = np.array([[0.0, *(line.exact.net for line in row.lines), 0.0] for row in rows.values()]).T
    drawn = figure(3.2 + 0.95 * len(rows), 1.5 + 0.34 * len(names))
    axes = drawn.subplots()
    end = float(np.abs(cells).max()) or 1.0
    heatmap(axes, cells, end)
    for x, row in enumerate(rows.values()):
        for y, text in enumerate([row.start, *(line.net for line in row.lines), row.end]):
            cell_text(axes, x, y, text, abs(cells[y, x]) > 0.7 * end)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xticks(range(len(rows)), [f"{heads[key]}\n{row.times}".strip() for key, row in rows.items()], parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for line in (0.5, len(names) - 1.5):
        axes.axhline(line, color="0.4", linewidth=0.8)
    add_heading(drawn, f"Net scores of one row{more}")
    return drawn


def _maps(entries: Mapping[Any, Explanation], heads: Mapping[Any, str], more: str) -> Picture:
    """For each, what pushed up, what down and the net; one scale for all of a kind."""
    found = {key: maps(one) for key, one in entries.items()}
    sides = ("positive", "negative", "net")
    ends = {side: max(reach(one[side]) for one in found.values()) for side in sides}
    ends["positive"] = ends["negative"] = max(ends["positive"], ends["negative"])
    drawn = figure(2.0 * len(found) + 0.5, 2.35 * len(sides) + 0.7)
    grid = drawn.subplots(len(sides), len(found), squeeze=False)
    for x, (key, one) in enumerate(found.items()):
        for y, side in enumerate(sides):
            draw_map(grid[y][x], one[side], side, ends[side])
        grid[0][x].set_title(f"{heads[key]}\n{number(entries[key].output.item())}", fontsize=points(10), parse_math=False)
    for y, side in enumerate(sides):
        grid[y][0].set_ylabel(side)
    add_heading(drawn, f"One image: what pushed each output up, what down, and the net{more}")
    return drawn


def sweep(entries: Mapping[Any, Explanation], most: int = 8, order: str = "net") -> Picture:
    """What c changes: positive and negative scores of the strongest features, their nets, and the conflict."""
    most = min(most, len(SERIES))
    rows = columns(entries, most, order)
    c = [float(key) for key in entries]
    along = np.argsort(c)
    drawn = figure(12.5, 5.2)
    axes = drawn.subplots(1, 3)
    singles = [line.name for line in next(iter(rows.values())).lines if line.exact.single]
    handles = []
    for i, name in enumerate(labels(singles, 26)):
        exact = [row.lines[i].exact for row in rows.values()]
        looks: dict[str, Any] = {"color": SERIES[i], "marker": "o", "markersize": 4}
        handles += _curve(axes[0], c, [line.positive for line in exact], along, looks | {"label": name})
        _curve(axes[0], c, [-line.negative for line in exact], along, looks | {"linestyle": "--"})
        _curve(axes[1], c, [line.net for line in exact], along, looks)
    nets = {"conflict": ([one.conflict.item() for one in entries.values()], CONFLICT)}
    nets["output"] = ([one.output.item() for one in entries.values()], NET)
    for label, (values, colour) in nets.items():
        _curve(axes[2], c, values, along, {"color": colour, "marker": "o", "label": label})
    axes[2].legend(frameon=False)
    titles = ("positive (above 0) and negative (dashed, below)", "net", "conflict and output")
    for one, title in zip(axes, titles, strict=True):
        light(one, "y")
        one.axhline(0, color="0.4", linewidth=0.8)
        one.set_title(title, fontsize=points(11))
        one.set_xlabel("c: share of cancelled influence that counts")
    add_heading(drawn, "What c changes in one row", "", handles, columns=4)
    return drawn


def _curve(axes: Any, c: list[float], values: list[float], order: np.ndarray, looks: dict[str, Any]) -> list[Any]:
    found: list[Any] = axes.plot([c[i] for i in order], [values[i] for i in order], **looks)
    return found
