"""The results as a picture: ratios to forward + backward, and growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cafexai.plotting.figures import figure as empty
from cafexai.plotting.palette import DOWN, NET, PALE_DOWN, PALE_UP, QUIET, SERIES, UP
from ways import COMPILED, DEEPLIFT

SHOWN = {
    "gradient x input (Captum)": QUIET,
    DEEPLIFT: SERIES[4],
    "attribute": PALE_UP,
    "attribute" + COMPILED: UP,
    "explain": PALE_DOWN,
    "explain" + COMPILED: DOWN,
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars of every case, and one curve per size that grows."""
    figure = empty(12, 9)
    above, below = figure.subfigures(2, 1)
    top, curves = above.subplots(), below.subplots(1, 3)
    names = list(results["cases"])
    for place, (way, colour) in enumerate(SHOWN.items()):
        for column, name in enumerate(names):
            case = results["cases"][name]
            ratio = case["ways"].get(way, {}).get("ratio")
            if ratio is None:
                continue
            wrong = way == DEEPLIFT and case["deeplift"] != "right"
            label = way if column == 0 else None
            top.bar(column + place / 7, ratio, 1 / 8, color="white" if wrong else colour, edgecolor=colour, label=label)
    labels = [name.replace(", ", "\n", 1).replace(" with", "\nwith") for name in names]
    top.set_xticks([column + 2.5 / 7 for column in range(len(names))], labels, fontsize=7)
    top.set_yscale("log")
    top.set_ylabel("time / forward + backward")
    top.set_title("Time of one call (hollow: DeepLIFT is wrong there)", fontsize=10)
    top.legend(fontsize=8)
    for axes, (what, lines) in zip(curves, results.get("growth", {}).items(), strict=False):
        for way in lines[0]["seconds"]:
            seconds = [line["seconds"][way] for line in lines]
            axes.loglog(
                [line["size"] for line in lines],
                seconds,
                "o-",
                label=way,
                color={**SHOWN, "input gradient": QUIET}.get(way, NET),
            )
        sizes = [line["size"] for line in lines]
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.xaxis.minorticks_off()
        axes.set_xlabel(what)
        axes.set_ylabel("seconds")
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
