"""Is it true what the scores say on networks for tables? Infidelity, columns removed one at a time, and Shapley values."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..datasets import Dataset, load, openxai_weights
from ..models import FTTransformer, Recipe, mlp, openxai_mlp, residual_mlp, seeded, train
from .record import Settings, Study, Task, Workplace
from .truth import CANDIDATES, CONSTANTS, DEFAULT, FEATURE, PUBLISHED, RIVAL, TRANSFORMERS, attribute_all, candidate, entry
from .truth_losses import STANDARDISED
from .truth_measures import families, key_of
from .truth_report import report
from .truth_shapley import agreement, exact, subsets
from .variants import OPENXAI

GIVEN = "openxai"  # networks with given weights: one seed
SLOW = ("lstm", "ft-2", "ft-4")  # feature netting, and scores of many perturbed rows, take too long on these


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network, data set and seed."""
    for kind, name in families(settings):
        for seed in settings["seeds"][: 1 if kind == GIVEN else None]:

            def run(kind: str = kind, name: str = name, seed: int = seed) -> Any:
                return measure_network(kind, name, seed, settings, place)

            yield Task(key_of(kind, name, seed), run)


def measure_network(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """All measures of all methods on the same test rows and draws, in float64."""
    table = load(name, folder=place.data)
    table = standardise(table) if kind.startswith(STANDARDISED) else table
    kind = kind.removeprefix(STANDARDISED)
    model = network_for_table(kind, table, seed, settings, place).double().eval().requires_grad_(False)
    table = table.to(torch.float64)
    x = table.x_test[: settings["rows"]]
    target = model(x).argmax(1)
    right = (model(table.x_test[:1000]).argmax(1) == table.y_test[:1000]).double().mean().item()
    netted = kind not in SLOW and x.shape[1] <= settings["feature_columns"]
    scores, notes = attribute_all([one for one in settings["methods"] if netted or one != FEATURE], model, x, target=target)
    found = _effects(model, table, x, target, scores, settings, seed)
    if len(table.layout) <= settings["shapley_features"]:
        some = {name: own[: settings["shapley_rows"]] for name, own in scores.items()}
        found |= _shapley(model, x[: settings["shapley_rows"]], target, table, some)
    if kind not in SLOW:
        found["max_sensitivity"] = _sensitivity(model, x, target, settings, seed)
    return {"rows": len(x), "accuracy": right, **entry(notes, found)}


def _effects(
    model: nn.Module, table: Dataset, x: Tensor, target: Tensor, scores: dict[str, Tensor], settings: Settings, seed: int
) -> dict[str, dict[str, Tensor]]:
    """Do the scores predict what perturbed rows, and rows without a feature, do?"""
    disturb = measure.TabularPerturbation.large(table.x_test, [list(columns) for columns in table.categories.values()])
    draws: dict[str, Any] = {"target": target, "n_samples": settings["samples"], "seed": seed}
    groups: dict[str, Any] = {"target": target, "feature_groups": table.feature_mask[0]}
    return {
        "infidelity": measure.infidelity(model, x, scores, disturb, **draws),
        "infidelity_as_is": measure.infidelity(model, x, scores, disturb, normalize=False, **draws),
        "occlusion_correlation": measure.occlusion_correlation(model, x, scores, **groups),
        "sign_agreement": measure.sign_agreement(model, x, scores, **groups),
    }


def _shapley(
    model: nn.Module, x: Tensor, target: Tensor, table: Dataset, scores: dict[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """How near the scores are to exact Shapley values against zeros; one-hot blocks are one feature."""
    present = subsets(len(table.layout))[:, table.feature_mask[0]]
    truth = torch.stack([exact(model(row * present)[:, label]) for row, label in zip(x, target.tolist(), strict=False)])
    groups = {name: own.new_zeros(len(own), len(table.layout)) for name, own in scores.items()}
    return agreement(truth, {name: groups[name].index_add(1, table.feature_mask[0], own) for name, own in scores.items()})


def _sensitivity(model: nn.Module, x: Tensor, target: Tensor, settings: Settings, seed: int) -> dict[str, Tensor]:
    """The largest change of the scores in a small neighbourhood, for the methods that are compared by it."""
    found = {}
    for name in (DEFAULT, PUBLISHED, RIVAL):
        attribute = functools.partial(candidate(name), model)
        found[name] = measure.max_sensitivity(attribute, x, n_samples=settings["neighbours"], seed=seed, target=target)
    return found


def standardise(table: Dataset) -> Dataset:
    """The same with mean 0 and standard deviation 1 in every column of the train rows; zeros are then the mean row."""
    mean, deviation = table.x_train.double().mean(0), table.x_train.double().std(0)
    deviation = torch.where(deviation == 0, 1, deviation)

    def scale(x: Tensor) -> Tensor:
        return ((x.double() - mean) / deviation).to(x.dtype)

    return dataclasses.replace(table, x_train=scale(table.x_train), x_test=scale(table.x_test), scaler=None, test_scaler=None)


def network_for_table(kind: str, table: Dataset, seed: int, settings: Settings, place: Workplace) -> nn.Module:
    """A network of OpenXAI, or one that is trained."""
    if kind == GIVEN:
        return openxai_mlp(openxai_weights(table.name, folder=place.data))
    single = table.to(torch.float32)
    classes = int(single.y_train.max()) + 1
    rows = torch.randperm(len(single.x_train), generator=torch.Generator().manual_seed(seed))[: settings["train_rows"]]
    model = seeded(seed, lambda: NETWORKS[kind](single, classes, settings["width"]))
    recipe = Recipe(settings["epochs"], 128, seed=seed, shuffle=True)
    x, y = single.x_train[rows], single.y_train[rows].long()
    return train(model, x, y, recipe, folder=place.models, progress=place.show_progress).model


def batchnorm_mlp(*widths: int) -> nn.Sequential:
    """Linear, batch-norm and ReLU for each hidden width."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


class ColumnLSTM(nn.Module):
    """Reads the columns of a row one after the other."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, columns) to (rows, outputs)."""
        states, _ = self.lstm(x[..., None])
        return self.head(states[:, -1])


def _transformer(table: Dataset, classes: int, width: int, blocks: int) -> nn.Module:
    return FTTransformer(table.layout, classes, width=width, heads=4, blocks=blocks)


def _mlp(table: Dataset, classes: int, width: int, layers: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    return mlp(table.x_train.shape[1], *[width] * layers, classes, activation=activation)


NETWORKS: dict[str, Callable[[Dataset, int, int], nn.Module]] = {
    "1 layer": lambda table, classes, width: _mlp(table, classes, width, 1),
    "1 layer gelu": lambda table, classes, width: _mlp(table, classes, width, 1, nn.GELU),
    "2 layers": lambda table, classes, width: _mlp(table, classes, width, 2),
    "2 layers gelu": lambda table, classes, width: _mlp(table, classes, width, 2, nn.GELU),
    "4 layers": lambda table, classes, width: _mlp(table, classes, width, 4),
    "4 layers gelu": lambda table, classes, width: _mlp(table, classes, width, 4, nn.GELU),
    "batch-norm": lambda table, classes, width: batchnorm_mlp(table.x_train.shape[1], *[width] * 4, classes),
    "residual": lambda table, classes, width: residual_mlp(table.x_train.shape[1], width // 2, 6, classes),
    "lstm": lambda table, classes, width: ColumnLSTM(width // 4, classes),
    "ft-2": lambda table, classes, width: _transformer(table, classes, width // 2, 2),
    "ft-4": lambda table, classes, width: _transformer(table, classes, width // 4, 4),
}
FOUR = ["titanic", "heloc", "adult", "covertype"]
SIX = [*FOUR, "compas", "german"]
SHALLOW = {f"{count}{activation}": SIX for count in ("1 layer", "2 layers") for activation in ("", " gelu")}
DEEP = dict.fromkeys(("4 layers", "4 layers gelu", "batch-norm"), FOUR)
PLAIN = {
    GIVEN: list(OPENXAI), **SHALLOW, **DEEP, "residual": FOUR, "lstm": FOUR,
    **{STANDARDISED + kind: names for kind, names in (SHALLOW | DEEP).items()},
}  # fmt: skip
COMMON = {"width": 128, "feature_columns": 30, "shapley_features": 13, "shapley_rows": 20, "samples": 50, "neighbours": 10}
TOY = {"width": 16, "train_rows": 50, "epochs": 1, "rows": 6, "samples": 10, "seeds": [42, 43], "shapley_rows": 3}
TRAINED = {"train_rows": 4000, "epochs": 10, "rows": 60}
ALL_SEEDS = TRAINED | {"seeds": [42, 43, 44, 45, 46]}
METHODS = [DEFAULT, PUBLISHED, *CONSTANTS[:2], RIVAL, "deeplift_rescale"]
TABLES = Study(
    "truth-tables",
    "do the scores say what networks for tables do? Default, published method, variants and rivals (ours)",
    "compas, heloc, adult, german with their networks, titanic, covertype",
    {
        "toy": COMMON | TOY | {"networks": {GIVEN: ["compas"], "1 layer": ["titanic"], "lstm": ["compas"],
                                            "standardised 1 layer": ["titanic"]}, "methods": list(CANDIDATES)},
        "quick": COMMON | TRAINED | {"networks": PLAIN, "methods": list(CANDIDATES), "seeds": [42]},
        "full": COMMON | ALL_SEEDS | {"networks": PLAIN, "methods": METHODS},
    },
    {"toy": "0.2", "quick": "20", "full": "30"},
    tasks,
    report,
)  # fmt: skip
FEWER = {"shapley_rows": 4, "rows": 40}  # FT-Transformers take longest
FT_NETWORKS = dict.fromkeys(("ft-2", "ft-4"), FOUR[:3])
FT = Study(
    "truth-ft",
    "do the scores say what FT-Transformers for tables do? Open and frozen attention and norms, and rivals (ours)",
    "heloc, adult, titanic",
    {
        "toy": COMMON | TOY | {"networks": {"ft-2": ["titanic"]}, "methods": list(TRANSFORMERS)},
        "quick": COMMON | TRAINED | FEWER | {"networks": FT_NETWORKS, "methods": list(TRANSFORMERS), "seeds": [42]},
        "full": COMMON | TRAINED | FEWER | {"networks": FT_NETWORKS, "methods": list(TRANSFORMERS), "seeds": [42, 43, 44]},
    },
    {"toy": "0.2", "quick": "20", "full": "60"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (TABLES, FT)
