"""Is it true what the scores say on networks for tables? Infidelity in both forms, and features removed one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..datasets import Dataset, load, openxai_weights
from ..models import FTTransformer, Recipe, mlp, openxai_mlp, residual_mlp, seeded, train
from .record import Settings, Study, Task, Workplace
from .truth import CANDIDATES, DEEP, FEATURE, FINALISTS, attributed, entry
from .truth_report import families, key_of, report
from .variants import OPENXAI

GIVEN = "openxai"  # networks with given weights: one seed
FEATURE_NETTED = (GIVEN, "two layers", "relu", "gelu", "residual")  # feature netting takes too long on the others


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network, data set and seed."""
    for kind, name in families(settings):
        for seed in settings["seeds"][: 1 if kind == GIVEN else None]:

            def run(kind: str = kind, name: str = name, seed: int = seed) -> Any:
                return measured(kind, name, seed, settings, place)

            yield Task(key_of(kind, name, seed), run)


def measured(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """All measures of all methods on the same test rows and draws, in float64."""
    table = load(name, folder=place.data)
    model = _model(kind, table, seed, settings, place).double().eval().requires_grad_(False)
    exact = table.to(torch.float64)
    x = exact.x_test[: settings["rows"]]
    target = model(x).argmax(1)
    right = (model(exact.x_test[:1000]).argmax(1) == exact.y_test[:1000]).double().mean().item()
    netted = kind in FEATURE_NETTED and x.shape[1] <= settings["feature_columns"]
    names = [one for one in settings["methods"] if netted or one != FEATURE]
    scores, notes = attributed(names, model, x, target=target)
    disturb = measure.TabularPerturbation.large(exact.x_test, [list(columns) for columns in table.categories.values()])
    draws: dict[str, Any] = {"target": target, "n_samples": settings["samples"], "seed": seed}
    groups: dict[str, Any] = {"target": target, "feature_groups": table.feature_mask[0]}
    found = {
        "infidelity": measure.infidelity(model, x, scores, disturb, **draws),
        "infidelity_as_is": measure.infidelity(model, x, scores, disturb, normalize=False, **draws),
        "occlusion_correlation": measure.occlusion_correlation(model, x, scores, **groups),
        "sign_agreement": measure.sign_agreement(model, x, scores, **groups),
    }
    return {"rows": len(x), "accuracy": right, "way": DEEP, **entry(scores, notes, found)}


def _model(kind: str, table: Dataset, seed: int, settings: Settings, place: Workplace) -> nn.Module:
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
    "two layers": lambda table, classes, width: _mlp(table, classes, width, 2),
    "relu": lambda table, classes, width: _mlp(table, classes, width, 4),
    "gelu": lambda table, classes, width: _mlp(table, classes, width, 4, nn.GELU),
    "batch-norm": lambda table, classes, width: batchnorm_mlp(table.x_train.shape[1], *[width] * 4, classes),
    "residual": lambda table, classes, width: residual_mlp(table.x_train.shape[1], width // 2, 6, classes),
    "lstm": lambda table, classes, width: ColumnLSTM(width // 4, classes),
    "ft-2": lambda table, classes, width: _transformer(table, classes, width // 2, 2),
    "ft-4": lambda table, classes, width: _transformer(table, classes, width // 4, 4),
}
ALL = {GIVEN: list(OPENXAI), **{kind: ["titanic", "heloc", "adult", "covertype"] for kind in NETWORKS}}
COMMON = {"networks": ALL, "width": 128, "methods": list(CANDIDATES), "feature_columns": 30, "samples": 50}
TABLES = Study(
    "truth-tables",
    "do the scores say what networks for tables do? Default, published method, variants and rivals (ours)",
    "compas, heloc, adult, german with their networks, titanic, covertype",
    {
        "toy": COMMON | {"networks": {GIVEN: ["compas"], "relu": ["compas"], "lstm": ["compas"], "ft-2": ["titanic"]},
                         "width": 16, "train_rows": 50, "epochs": 1, "rows": 6, "samples": 10, "seeds": [42, 43]},
        "quick": COMMON | {"train_rows": 4000, "epochs": 10, "rows": 60, "seeds": [42, 43]},
        "full": COMMON | {"methods": list(FINALISTS), "train_rows": 4000, "epochs": 10, "rows": 60,
                          "seeds": [42, 43, 44, 45, 46]},
    },
    {"toy": "0.2", "quick": "20", "full": "30"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (TABLES,)
