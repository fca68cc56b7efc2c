"""Explained images: CAFE beside DeepLIFT Rescale on small convolutional networks, as heatmaps.

Pictures of data sets are not ours to pass on: without ``show_data`` only maps and classes are kept, and pictures that we drew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ... import metrics as measure
from ...cafe import CAFE
from ..datasets import Dataset, load
from ..models import Recipe, small_cnn, train
from ..models.networks import seeded
from .drawing import bare, figure, heatmap
from .infidelity import mean_and_error
from .methods import CAFES, method
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

BESIDE = "deeplift_rescale"
METHODS = (BESIDE, *CAFES)
SIDES = ("positive", "negative", "combined")
CHANGE = "CAFE (c = 1) minus CAFE (c = 0)"
OURS = "none"  # the terms of shapes on generated textures, which are drawn by us
CLEAR = 0.1  # a pixel is clearly negative below -0.1 times the largest score of its image


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One network per data set."""
    for name in settings["data"]:

        def run(name: str = name) -> Any:
            return explain_image(name, settings, place)

        yield Task(name, run)


def explain_image(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Train, choose the image as the paper did, keep its maps, and measure the maps of the first test images."""
    data = load(name, folder=place.data, **settings["options"].get(name, {}))
    images, labels = data.x_train[: settings["train_rows"]], data.y_train[: settings["train_rows"]]
    channels, size = images.shape[1], images.shape[2]
    model = seeded(settings["seed"], lambda: small_cnn(channels, size, len(data.class_names)).float())
    recipe = Recipe(settings["epochs"].get(name, 10), 64, 1e-3, seed=settings["seed"], shuffle=True)
    model = train(model, images, labels, recipe, folder=place.models, progress=place.show_progress).model
    x, y = data.x_test[: settings["test_rows"]], data.y_test[: settings["test_rows"]]
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(1) for part in x.split(250)])
    row, found = _choose_image(data, predicted, y, settings["wanted"].get(name))
    model = model.double()
    shown = settings["show_data"] or data.terms == OURS
    return {
        "train rows": len(images),
        "test rows": len(x),
        "accuracy": float((predicted == y).double().mean()),
        "notes": list(data.notes),
        "row": row,
        "as wanted": found,
        "label": data.class_names[int(y[row])],
        "prediction": data.class_names[int(predicted[row])],
        "picture": _picture_of(data, x[row]) if shown else None,
        "maps": {key: _maps(key, model, x[row : row + 1].double()) for key in METHODS},
        "measured": _measure(model, x[: settings["measured"]].double()),
    }


def _picture_of(data: Dataset, image: Tensor) -> list[list[str]]:
    """Its channels as they were before scaling, 0 to 1."""
    original = image if data.scaler is None else data.scaler.inverse(image)
    return [_pack(channel.clamp(0, 1), 3) for channel in original]


def _choose_image(data: Dataset, predicted: Tensor, y: Tensor, wanted: list[str] | None) -> tuple[int, bool]:
    """The first test image of this label and prediction, or else the first image."""
    if wanted is None:
        return 0, True
    label, prediction = (data.class_names.index(name) for name in wanted)
    rows = ((y == label) & (predicted == prediction)).nonzero()
    return (int(rows[0]), True) if len(rows) else (0, False)


def _pack(values: Tensor, digits: int = 4) -> list[str]:
    """A line of text per line of pixels: JSON would give each number a line."""
    return [" ".join(f"{value:.{digits}g}" for value in line) for line in values.tolist()]


def _unpack(lines: list[str]) -> list[list[float]]:
    return [[float(value) for value in line.split()] for line in lines]


def _maps(key: str, model: Any, x: Tensor) -> dict[str, list[str]]:
    """Scores of one image, summed over its channels."""
    if key not in CAFES:
        return {"combined": _pack(method(key)(model, x)[0].sum(0))}
    e = CAFE.published(model, float(key.removeprefix("cafe c="))).explain(x)
    return {side: _pack(getattr(e, side)[0].sum(0)) for side in SIDES}


def _measure(model: Any, x: Tensor) -> dict[str, dict[str, list[float]]]:
    """Mean and standard error over images: of each method, and of CAFE 1 minus CAFE 0."""
    maps = {key: torch.cat([method(key)(model, part).sum(1).flatten(1) for part in x.split(10)]) for key in METHODS}
    each = {}
    for key, scores in maps.items():
        scaled = scores / scores.abs().amax(1, keepdim=True).clamp_min(1e-30)
        both = torch.stack([scores, maps[BESIDE]])
        centred = both - both.mean(2, keepdim=True)
        each[key] = {
            "negative pixels": (scaled < -CLEAR).double().mean(1),
            "positive pixels": (scaled > CLEAR).double().mean(1),
            "complexity": measure.complexity(scores).double(),
            "correlation with DeepLIFT": (centred[0] * centred[1]).sum(1) / centred.norm(dim=2).prod(0).clamp_min(1e-30),
        }
    low, high = each[CAFES[0]], each[CAFES[-1]]
    each[CHANGE] = {kind: high[kind] - low[kind] for kind in low}
    return {key: {kind: mean_and_error(values) for kind, values in kinds.items()} for key, kinds in each.items()}


def report(settings: Settings, results: Results) -> Report:
    """Heatmaps per data set, what they measure, and the paper's remarks about them."""
    tables = [_networks(settings, results)]
    findings: list[Finding] = []
    figures = {}
    for name in settings["data"]:
        found = results[name]
        tables.append(_measures(name, found, settings))
        figures[f"examples-{name}"] = _picture(name, found)
        findings += _findings(name, found, settings)
    return Report(tables, findings, figures)


def _networks(settings: Settings, results: Results) -> Table:
    rows = []
    for name in settings["data"]:
        found = results[name]
        shown = f"test image {found['row']}, {found['label']} taken for {found['prediction']}"
        asked = "" if found["as wanted"] else f" (no {settings['wanted'][name][0]} taken for {settings['wanted'][name][1]})"
        notes = "; ".join(found["notes"])
        trained = f"{found['train rows']} images, {settings['epochs'][name]} epochs"
        rows.append([name, trained, f"{found['accuracy']:.1%}", found["test rows"], shown + asked, notes])
    columns = ["data", "training", "accuracy", "on test images", "shown", "data notes"]
    note = "Convolutions with batch-norm, ReLU and max-pooling, widths 16, 32, 64; the reference is 0, the mean colour."
    note += " Positive and negative scores count every path, so they are far larger than the combined ones."
    return Table("networks", "The explained networks", columns, rows, note)


def _measures(name: str, found: Any, settings: Settings) -> Table:
    kinds = list(found["measured"][BESIDE])
    rows = []
    for key in (*METHODS, CHANGE):
        numbers = (found["measured"][key][kind] for kind in kinds)
        rows.append([METHOD_TITLES.get(key, key), *(f"{mean:.4g} ± {error:.1g}" for mean, error in numbers)])
    note = f"Mean ± standard error, {settings['measured']} images; clearly negative: below -{CLEAR} of the largest."
    return Table(f"maps-{name}", f"Attribution maps of {name}", ["method", *kinds], rows, note)


def _picture(name: str, found: Any) -> Any:
    """The image, and a line of maps per method; each map has its own scale, written above it."""
    drawn = figure(11, 2.5 * len(METHODS) + 0.6)
    grid = drawn.subplots(len(METHODS), 1 + len(SIDES))
    for line, key in enumerate(METHODS):
        bare(grid[line][0])
        if line == 0:
            if found["picture"] is not None:
                grid[0][0].imshow(_image(found["picture"]), cmap="gray", vmin=0, vmax=1)
            else:
                grid[0][0].text(0.5, 0.5, "not shown\n(show_data=true)", ha="center", va="center", color="0.4")
            grid[0][0].set_title(f"{found['label']}, taken for {found['prediction']}", fontsize=10)
        grid[line][1].set_ylabel(METHOD_TITLES[key], fontsize=11)
        for axes, side in zip(grid[line][1:], SIDES, strict=True):
            bare(axes)
            if side not in found["maps"][key]:
                continue
            values = _unpack(found["maps"][key][side])
            sign = -1 if side == "negative" else 1
            reach = max(abs(value) for row in values for value in row) or 1.0
            heatmap(axes, [[sign * value for value in row] for row in values], reach).axes.set_aspect("equal")
            axes.set_title(f"{side}, up to {reach:.2g}", fontsize=10)
    drawn.suptitle(f"{name}, accuracy {found['accuracy']:.1%}: blue pushes the output up, orange down", fontweight="bold")
    return drawn


def _image(picture: list[list[str]]) -> Any:
    """Lines of grey pixels, or of triples of colours."""
    channels = [_unpack(channel) for channel in picture]
    return [list(zip(*lines, strict=True)) for lines in zip(*channels, strict=True)] if len(channels) > 1 else channels[0]


def _findings(name: str, found: Any, settings: Settings) -> Iterable[Finding]:
    """What the paper remarks about single images, here on many; changes below two standard errors decide nothing."""
    claims = {
        "negative pixels": f"{name}: CAFE 1 marks more pixels as clearly negative than CAFE 0",
        "complexity": f"{name}: maps of CAFE 1 spread over more of the image than those of CAFE 0 (complexity)",
    }
    for kind, claim in claims.items():
        change, error = found["measured"][CHANGE][kind]
        high, low = found["measured"][CAFES[-1]][kind][0], found["measured"][CAFES[0]][kind][0]
        holds = None if abs(change) <= 2 * error else change > 0
        numbers = f"{high:.4g} against {low:.4g}, difference {change:+.2g} ± {error:.1g} over {settings['measured']} images."
        yield Finding(claim, holds, numbers)


COMMON = {
    "seed": 42,
    "show_data": False,
    "data": ["mnist", "cifar10", "shapes"],
    "wanted": {"mnist": ["2", "2"], "cifar10": ["ship", "truck"], "shapes": ["pentagon", "pentagon"]},
}
EXAMPLES = Study(
    "examples-images",
    "explained images: MNIST, CIFAR-10 and shapes, beside DeepLIFT Rescale",
    'mnist, cifar10 (all of it or a subset); shapes need nothing, or dtd with options={"shapes": {"textures": "dtd"}, ...}',
    {
        "toy": COMMON | {"data": ["shapes"], "options": {"shapes": {"train": 60, "test": 12, "size": 24}}, "train_rows": None,
                         "test_rows": 12, "epochs": {"shapes": 1}, "measured": 4},
        "quick": COMMON | {"options": {"mnist": {"rows": 6000}, "cifar10": {}, "shapes": {"train": 10000, "size": 32}},
                           "train_rows": 10000, "test_rows": 1000, "epochs": {"mnist": 3, "cifar10": 10, "shapes": 12},
                           "measured": 100},
        "full": COMMON | {"options": {"mnist": {}, "cifar10": {}, "shapes": {"train": 12000, "test": 1200, "textures": "dtd"}},
                          "train_rows": None, "test_rows": None, "epochs": {"mnist": 10, "cifar10": 30, "shapes": 30},
                          "measured": 200},
    },
    {"toy": "0.1", "quick": "2", "full": "20"},
    tasks,
    report,
)  # fmt: skip
