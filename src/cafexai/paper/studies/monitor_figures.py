"""Figures of the study of the monitor: alarm against harm, and strength of a decorrelated pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...plotting.palette import SERIES
from .drawing import figure
from .monitor_shifts import STRENGTHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = tuple[str, str, str, Mapping[str, Any]]
MARKS = "osD^vPX*"
HARMLESS = 0.005  # a loss of accuracy that is none
SHOWN = ("monitor, all", "monitor, scores", "monitor, correlations", "exact KS of inputs", "monitor, s_conf")


def draw_alarm_against_harm(cells: Iterable[Cell]) -> Figure:
    """Every shift of every task: the loss of accuracy, and the shares of windows with an alarm and with an alert."""
    drawn = figure(9.0, 4.2)
    known = [cell for cell in cells if cell[3]["harm"] is not None]
    tasks = list(dict.fromkeys(key for key, _, _, _ in known))
    axes = drawn.subplots(1, 2, sharex=True, sharey=True)
    for axis, name in zip(axes, ("alarms", "alerts"), strict=True):
        for place, task in enumerate(tasks):
            own = [found for key, _, _, found in known if key == task]
            axis.scatter([found["harm"] for found in own], [found[name] for found in own], s=34, alpha=0.75,
                         marker=MARKS[place % len(MARKS)], color=SERIES[place % len(SERIES)], label=task)  # fmt: skip
        axis.axvspan(axis.get_xlim()[0], HARMLESS, color="#808080", alpha=0.12, linewidth=0)
        axis.set_xlabel("loss of accuracy")
        axis.set_title(f"{name}: share of windows", fontsize=10)
        axis.set_ylim(-0.05, 1.05)
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    return drawn


def draw_strengths(cells: Iterable[Cell]) -> Figure | None:
    """AUROC by the share of rows in which a pair of columns is decorrelated, mean over the default variant."""
    drawn, found = figure(6.0, 4.0), list(cells)
    axis, some = drawn.subplots(), False
    for place, name in enumerate(SHOWN):
        values = {
            strength: [
                cell["auroc"][name]
                for key, shift, _, cell in found
                if shift == f"pair {strength:g}" and key.endswith("-default") and name in cell["auroc"]
            ]
            for strength in STRENGTHS
        }
        points = [(strength, statistics.fmean(part)) for strength, part in values.items() if part]
        some = some or bool(points)
        if points:
            x, y = zip(*points, strict=True)
            axis.plot(x, y, marker=MARKS[place], color=SERIES[place % len(SERIES)], label=name)
    axis.axhline(0.5, color="#808080", linewidth=0.8, linestyle=":")
    axis.set_xlabel("share of rows in which two columns no longer belong together")
    axis.set_ylabel("AUROC")
    axis.legend(frameon=False)
    return drawn if some else None
