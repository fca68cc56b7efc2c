"""Recommender systems: deepctr-torch, which takes one matrix of codes and numbers, torch-rechub, which takes a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from specimen import ROWS, Specimen
from torch import Tensor, nn

WORDS, WIDTH, LENGTH = 20, 8, 5
MLP = {"dims": [16, 8], "dropout": 0.0, "activation": "relu"}
CTR = (
    "AFM AFN AutoInt CCPM DCN DCNMix DeepFM DIFM FiBiNET IFM MLR NFM ONN PNN WDL xDeepFM DIN ESMM MMOE PLE SharedBottom".split()
)
HUB = """AFM AutoInt BST DCN DCNv2 DeepFFM FatDeepFFM DeepFM DIEN DIN EDCN FiBiNet WideDeep DSSM FaceBookDSSM GRU4Rec MIND
    ComirecSA ComirecDR NARM STAMP YoutubeDNN AITM ESMM MMOE PLE SharedBottom""".split()


def names() -> Iterator[str]:
    for package, models in (("deepctr-torch", CTR), ("torch-rechub", HUB)):
        for model in models:
            yield f"{package}/{model}"


def build(name: str) -> Specimen:
    package, model = name.split("/")
    specimen = _deepctr(model) if package == "deepctr-torch" else _rechub(model)
    for parameter in specimen.model.parameters():  # begins at 1e-4, where nothing would be seen
        if parameter.ndim > 1 and parameter.std() < 0.01:
            nn.init.normal_(parameter.data, std=0.3)
    return specimen


class Columns(nn.Module):
    """A model whose input is one matrix, as a function of its codes and its numbers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return self.model(torch.cat([codes, numbers], 1))


def _deepctr(name: str) -> Specimen:
    from deepctr_torch import models
    from deepctr_torch.inputs import DenseFeat, SparseFeat, VarLenSparseFeat

    sparse = [SparseFeat(f"c{i}", WORDS, embedding_dim=WIDTH) for i in range(6)]
    dense = [DenseFeat(f"n{i}", 1) for i in range(3)]
    columns = sparse + dense
    codes, numbers = torch.randint(1, WORDS, (ROWS, 6)).float(), torch.randn(ROWS, 3)
    small = {"dnn_hidden_units": (16, 8)}
    if name == "DIN":
        history = VarLenSparseFeat(
            SparseFeat("hist_c0", WORDS, embedding_dim=WIDTH, embedding_name="c0"), LENGTH, length_name="length"
        )
        length = DenseFeat("length", 1)
        model = models.DIN([*columns, history, length], ["c0"], **small)
        past = torch.randint(1, WORDS, (ROWS, LENGTH)).float()
        return Specimen(model, {0: torch.cat([codes, numbers, past, torch.full((ROWS, 1), 3.0)], 1)})
    if name in ("ESMM", "MMOE", "PLE", "SharedBottom"):
        model = getattr(models, name)(columns, task_types=["binary", "binary"], task_names=["a", "b"])
    elif name == "PNN":
        model = models.PNN(columns, **small)
    elif name == "MLR":
        model = models.MLR(columns)
    else:
        model = getattr(models, name)(columns, sparse if name in ("AFM", "CCPM") else columns)
    return Specimen(model, {0: torch.cat([codes, numbers], 1)})


class Named(nn.Module):
    """A model whose input is a dictionary, as a function of keywords."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **given: Tensor) -> Any:
        return self.model(given)


def _rechub(name: str) -> Specimen:
    from torch_rechub.basic.features import DenseFeature, SequenceFeature, SparseFeature
    from torch_rechub.models import matching, ranking
    from torch_rechub.models import multi_task as tasks

    def sparse(word: str) -> Any:
        return SparseFeature(word, WORDS, embed_dim=WIDTH)

    def history(word: str, pooling: str = "concat", like: str = "item") -> Any:
        return SequenceFeature(word, WORDS, embed_dim=WIDTH, pooling=pooling, shared_with=like)

    users, items = [sparse("user"), sparse("city")], [sparse("item")]
    dense = [DenseFeature("age"), DenseFeature("income")]
    past, unlike = [history("past")], [history("unlike")]
    flat = [*users, *items, *dense]
    one = torch.randint(1, WORDS, (ROWS,))
    given: dict[str, Tensor] = {"user": one, "city": one.flip(0), "item": (one + 3) % WORDS}
    numbers = {"age": torch.randn(ROWS), "income": torch.randn(ROWS)}
    pasts = {"past": torch.randint(1, WORDS, (ROWS, LENGTH))}
    unlikes = {"unlike": torch.randint(1, WORDS, (ROWS, LENGTH))}
    towers, kinds = [dict(MLP), dict(MLP)], ["classification", "classification"]
    makers: dict[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = {
        "AFM": lambda: (ranking.AFM([*users, *items], WIDTH), given),
        "AutoInt": lambda: (ranking.AutoInt([*users, *items], dense, mlp_params=MLP), {**given, **numbers}),
        "BST": lambda: (ranking.BST([*users], past, items, MLP, nhead=2), {**given, **pasts}),
        "DCN": lambda: (ranking.DCN(flat, 2, MLP), {**given, **numbers}),
        "DCNv2": lambda: (ranking.DCNv2(flat, 2, MLP), {**given, **numbers}),
        "DeepFFM": lambda: (ranking.DeepFFM([*users, *items], _crossed(sparse), WIDTH, MLP), given),
        "FatDeepFFM": lambda: (ranking.FatDeepFFM([*users, *items], _crossed(sparse), WIDTH, 1, MLP), given),
        "DeepFM": lambda: (ranking.DeepFM(flat, [*users, *items], MLP), {**given, **numbers}),
        "DIEN": lambda: (ranking.DIEN([*users], past, unlike, items, {"dims": [16]}), {**given, **pasts, **unlikes}),
        "DIN": lambda: (ranking.DIN([*users], past, items, {"dims": [16]}, {"dims": [8]}), {**given, **pasts}),
        "EDCN": lambda: (ranking.EDCN([*users, *items], 2, MLP), given),
        "FiBiNet": lambda: (ranking.FiBiNet([*users, *items], MLP), given),
        "WideDeep": lambda: (ranking.WideDeep(dense, [*users, *items], MLP), {**given, **numbers}),
        "DSSM": lambda: (matching.DSSM(users, items, MLP, MLP), given),
        "FaceBookDSSM": lambda: (matching.FaceBookDSSM(users, items, [sparse("other")], MLP, MLP), {**given, "other": one}),
        "GRU4Rec": lambda: (
            matching.GRU4Rec(users, past, items, unlike, {"dims": [3 * WIDTH, 16, WIDTH]}),
            {**given, **pasts, **unlikes},
        ),
        "MIND": lambda: (matching.MIND(users, past, items, unlike, LENGTH), {**given, **pasts, **unlikes}),
        "ComirecSA": lambda: (matching.ComirecSA(users, past, items, unlike), {**given, **pasts, **unlikes}),
        "ComirecDR": lambda: (matching.ComirecDR(users, past, items, unlike, LENGTH), {**given, **pasts, **unlikes}),
        "NARM": lambda: (matching.NARM(history("past", like=None), WIDTH, 0.0, 0.0), pasts),
        "STAMP": lambda: (matching.STAMP(history("past", like=None), 0.1, 0.1), pasts),
        "YoutubeDNN": lambda: (matching.YoutubeDNN(users, items, unlike, {"dims": [16, WIDTH]}), {**given, **unlikes}),
        "AITM": lambda: (tasks.AITM([*users, *items], 2, {"dims": [16]}, [{"dims": [8]}, {"dims": [8]}]), given),
        "ESMM": lambda: (tasks.ESMM(users, items, {"dims": [8]}, {"dims": [8]}), given),
        "MMOE": lambda: (tasks.MMOE(flat, kinds, 2, {"dims": [16]}, towers), {**given, **numbers}),
        "PLE": lambda: (tasks.PLE(flat, kinds, 2, 1, 1, {"dims": [16]}, towers), {**given, **numbers}),
        "SharedBottom": lambda: (tasks.SharedBottom(flat, kinds, {"dims": [16]}, towers), {**given, **numbers}),
    }  # fmt: skip
    model, inputs = makers[name]()
    return Specimen(Named(model), inputs)


def _crossed(sparse: Callable[[str], Any]) -> list[Any]:
    return [sparse("user"), sparse("city"), sparse("item")]
