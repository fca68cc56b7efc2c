"""Is it true what the scores say on networks for images? Cells of the image are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..datasets import Dataset, load
from ..models import Recipe, ViT, residual_cnn, seeded, small_cnn, train
from .photos import PACKAGES, is_installed, network, pictures
from .record import Settings, Study, Task, Workplace
from .truth import BLOCKS, CHEAP, EVALUATING, FINALISTS, MISSING, REFINED, TRANSFORMERS, attribute_all, entry, evaluating
from .truth_measures import families, key_of
from .truth_report import report
from .truth_shapley import agreement, estimate_by_pairs

CELLS = {"photos": 32}  # pixels on a side; 4 elsewhere
NETWORKS: dict[str, Callable[[Dataset, int], nn.Module]] = {
    "residual": lambda data, width: residual_cnn(data.x_train.shape[1], 10, width),
    "cnn": lambda data, width: small_cnn(data.x_train.shape[1], data.x_train.shape[-1], 10, (width, 2 * width, 4 * width)),
    "vit": lambda data, width: ViT(data.x_train.shape[1], data.x_train.shape[-1], 10, width=width),
}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network, data set and seed; networks whose package is not installed are left out."""
    for kind, name in families(settings):
        if not is_installed(*PACKAGES.get(kind, ())):
            continue
        for seed in settings["seeds"][: 1 if kind in PACKAGES else None]:

            def run(kind: str = kind, name: str = name, seed: int = seed) -> Any:
                return measure_network(kind, name, seed, settings, place)

            yield Task(key_of(kind, name, seed), run)


def measure_network(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """All measures of all methods on test images, for the predicted class."""
    if kind in PACKAGES:
        model, x, right = network(kind), pictures(settings["photos"], place.data), None
    else:
        model, x, right = _train(kind, name, seed, settings, place)
    model = model.eval().requires_grad_(False)
    parts = [_of_images(model, some, settings, CELLS.get(name, 4)) for some in x.split(settings["at_once"])]
    scores = {key: torch.cat([part[0][key] for part in parts]) for key in parts[0][0]}
    found = {metric: {key: torch.cat([part[2][metric][key] for part in parts]) for key in scores} for metric in parts[0][2]}
    notes = {key: {"seconds": sum(part[1][key]["seconds"] for part in parts)} if key in scores else note
             for key, note in parts[0][1].items()}  # fmt: skip
    return {"rows": len(x), "accuracy": right, **entry(notes, found)}


def _of_images(
    model: nn.Module, x: Tensor, settings: Settings, side: int
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Scores, seconds and measures of some images."""
    target = model(x).argmax(1)
    groups = measure.cells(x, side)
    options: dict[str, Any] = {"target": target, "feature_groups": groups}
    passing, rest = ([name for name in settings["methods"] if (name in EVALUATING) is there] for there in (False, True))
    scores, notes = attribute_all(passing, model, x, target=target)
    more, seconds = evaluating(rest, model, x, target, groups)
    scores, notes = scores | more, notes | seconds
    steps = {"steps": settings["steps"]}
    shapley = _shapley(model, x, target, groups, scores, settings["pairs"]) if "pairs" in settings else {}
    return scores, notes, {
        "occlusion_correlation": measure.occlusion_correlation(model, x, scores, **options),
        "sign_agreement": measure.sign_agreement(model, x, scores, **options),
        "deletion": measure.deletion(model, x, scores, **options, **steps),
        "insertion": measure.insertion(model, x, scores, **options, **steps),
        "deletion_as_is": measure.deletion(model, x, scores, **options, **steps, normalize=False),
        "insertion_as_is": measure.insertion(model, x, scores, **options, **steps, normalize=False),
        "comprehensiveness": measure.comprehensiveness(model, x, scores, **options),
        "sufficiency": measure.sufficiency(model, x, scores, **options),
        **shapley,
    }  # fmt: skip


def _shapley(
    model: nn.Module, x: Tensor, target: Tensor, cells: Tensor, scores: dict[str, Tensor], pairs: int
) -> dict[str, dict[str, Tensor]]:
    """How near the scores are to the Shapley values of the cells against zeros, from so many pairs of orders."""
    count = int(cells.max()) + 1
    truth = torch.stack([_of_cells(model, *row, cells, pairs) for row in zip(x, target.tolist(), strict=True)])
    flat = {name: own.new_zeros(len(own), count).index_add(1, cells.flatten(), own.flatten(1)) for name, own in scores.items()}
    return agreement(truth, flat)


def _of_cells(model: nn.Module, image: Tensor, label: int, cells: Tensor, pairs: int) -> Tensor:
    def value(present: Tensor) -> Tensor:
        with torch.no_grad():
            return model(image * present[:, cells])[:, label]

    return estimate_by_pairs(value, int(cells.max()) + 1, pairs)


def _train(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> tuple[nn.Module, Tensor, float]:
    """A network trained by us, test images in float64, and its accuracy on a thousand of them."""
    data = load(name, folder=place.data, rows=settings["train_rows"])
    model = seeded(seed, lambda: NETWORKS[kind](data, settings["width"]))
    recipe = Recipe(settings["epochs"], 64, 2e-3, seed=seed, shuffle=True)
    model = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress).model
    with torch.no_grad():
        right = (model(data.x_test[:1000]).argmax(1) == data.y_test[:1000]).double().mean().item()
    return model.double(), data.x_test[: settings["rows"]].double(), right


OURS = ["cifar10", "fashion_mnist"]
COMMON = {
    "networks": {"residual": OURS, "cnn": OURS, **{name: ["photos"] for name in PACKAGES}},
    "methods": list(CHEAP), "width": 16, "steps": 16, "at_once": 20,
}  # fmt: skip
IMAGES = Study(
    "truth-images",
    "do the scores say what networks for images do? Cells removed, on networks trained here and on photographs (ours)",
    "cifar10, fashion_mnist; for photographs the extra `truth`, and dtd",
    {
        "toy": COMMON | {"networks": {"residual": ["cifar10"], "cnn": ["fashion_mnist"], "mobilenet-v2": ["photos"]},
                         "width": 4, "train_rows": 20, "epochs": 1, "rows": 3, "photos": 1, "steps": 4, "seeds": [42],
                         "methods": [*CHEAP, REFINED]},
        "quick": COMMON | {"width": 8, "train_rows": 5000, "epochs": 5, "rows": 24, "photos": 3, "steps": 8, "seeds": [42]},
        "full": COMMON | {"methods": [*FINALISTS, REFINED], "width": 8, "train_rows": 5000, "epochs": 5, "rows": 24,
                          "photos": 8, "steps": 8, "seeds": [42, 43, 44, 45, 46]},
    },
    {"toy": "0.2", "quick": "30", "full": "60"},
    tasks,
    report,
)  # fmt: skip
VISION = {
    "networks": {"vit": OURS}, "methods": [*TRANSFORMERS, REFINED, BLOCKS, MISSING], "width": 48, "steps": 8, "at_once": 12,
    "pairs": 20, "train_rows": 5000, "epochs": 8, "rows": 12,
}  # fmt: skip
VIT = Study(
    "truth-vit",
    "do the scores say what a vision transformer does? Cells removed, and Shapley values of the cells (ours)",
    "cifar10, fashion_mnist",
    {
        "toy": VISION | {"networks": {"vit": ["fashion_mnist"]}, "width": 8, "train_rows": 20, "epochs": 1, "rows": 3,
                         "steps": 4, "pairs": 2, "seeds": [42]},
        "quick": VISION | {"seeds": [42]},
        "full": VISION | {"seeds": [42, 43, 44]},
    },
    {"toy": "0.2", "quick": "15", "full": "60"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (IMAGES, VIT)
