"""How a score is distributed over several sets of rows, and how far these distributions lie apart."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...plotting.figures import figure
from ...plotting.palette import DOWN, SERIES, UP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 50
WIDTH = 42  # letters below a panel, beside which others stand
COLORS = ("#4D4D4D", DOWN, UP, SERIES[2])  # the data as they were, and their shifts


def jensen_shannon(p: Any, q: Any) -> float:
    """Jensen-Shannon distance of two histograms, the root of the divergence in nats: 0 to 0.83."""
    p, q = (np.asarray(counts, float) / np.sum(counts) for counts in (p, q))
    middle = (p + q) / 2
    halves = [np.sum(side[side > 0] * np.log(side[side > 0] / middle[side > 0])) for side in (p, q)]
    return float(np.sqrt(max(sum(halves) / 2, 0.0)))


def auroc(low: Tensor, high: Tensor) -> float:
    """The probability that a value of ``high`` is above one of ``low``; ties count half."""
    ordered = np.sort(low.double().numpy())
    values = high.double().numpy()
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return float((below + up_to).mean() / (2 * len(ordered)))


def compare_sets(scores: Mapping[str, Tensor], base: str) -> dict[str, Any]:
    """Means and histograms over a common range; distance and AUROC of every other set against ``base``."""
    values = {name: score.detach().double().cpu() for name, score in scores.items()}
    low, high = min(v.min().item() for v in values.values()), max(v.max().item() for v in values.values())
    counts = {name: np.histogram(v.numpy(), BINS, (low, high))[0].tolist() for name, v in values.items()}
    others = [name for name in values if name != base]
    return {
        "mean": {name: v.mean().item() for name, v in values.items()},
        "distance": {name: jensen_shannon(counts[base], counts[name]) for name in others},
        "auroc": {name: auroc(values[base], values[name]) for name in others},
        "range": [low, high],
        "counts": counts,
    }


def tell_apart(sets: Mapping[str, Tensor], neighbours: int = 25) -> dict[str, float]:
    """How often rows are given to the set they come from, by a vote of the nearest known rows, for each set.

    ``sets``: the scores (rows, scores) of each; the first half of the rows is known, the second asked for. Scores are scaled to
    the same spread.
    """
    known = [rows[: len(rows) // 2].double() for rows in sets.values()]
    together = torch.cat(known)
    scale = together.std(0).clamp_min(torch.finfo(torch.float64).tiny)
    labels = torch.repeat_interleave(torch.arange(len(known)), torch.tensor([len(rows) for rows in known]))
    right = {}
    for i, (name, rows) in enumerate(sets.items()):
        hits = []
        for part in rows[len(rows) // 2 :].double().split(500):
            nearest = torch.cdist(part / scale, together / scale).topk(min(neighbours, len(together)), largest=False).indices
            hits.append(labels[nearest].mode(1).values == i)
        right[name] = torch.cat(hits).double().mean().item()
    return right


Panel = tuple[str, Mapping[str, Any], Mapping[str, float]]  # title, a result of compared, distances to write beside it


def histograms(rows: Sequence[tuple[str, Sequence[Panel]]], names: Mapping[str, str]) -> Figure:
    """A panel for each network, a row for each score; ``names`` says which sets are shown, and how they are called."""
    across = max(len(panels) for _, panels in rows)
    drawn = figure(3.4 * across, 0.7 + 2.7 * len(rows))
    grid = drawn.subplots(len(rows), across, squeeze=False)
    for line, (score, panels) in zip(grid, rows, strict=True):
        line[0].set_ylabel("rows")
        for axes, panel in zip(line, panels, strict=False):
            _histogram(axes, panel, names)
            axes.set_xlabel(textwrap.fill(score, WIDTH))
        for axes in line[len(panels) :]:
            axes.set_axis_off()
    handles, labels = grid[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return drawn


def _histogram(axes: Axes, panel: Panel, names: Mapping[str, str]) -> None:
    title, found, distances = panel
    edges = np.linspace(found["range"][0], found["range"][1], BINS + 1)
    notes = 0
    for color, (name, shown) in zip(COLORS, names.items(), strict=False):
        axes.stairs(found["counts"][name], edges, fill=True, alpha=0.45, color=color, label=shown)
        if name in distances:
            place: dict[str, Any] = {"ha": "right", "va": "top", "transform": axes.transAxes, "fontsize": 9}
            axes.text(0.98, 0.97 - 0.09 * notes, f"JS distance {distances[name]:.2f}", color=color, **place)
            notes += 1
    axes.set_title(title, fontsize=11)
    axes.spines[["right", "top"]].set_visible(False)
