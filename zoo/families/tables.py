"""Tables: transformers, TabNet and embeddings of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from specimen import ROWS, Specimen
from torch import nn

COLUMNS, CATEGORIES = 6, (5, 4, 3)


def numbers() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS)


def categories() -> torch.Tensor:
    return torch.stack([torch.randint(0, count, (ROWS,)) for count in CATEGORIES], 1)


def _tab_transformer(name: str) -> Specimen:
    import tab_transformer_pytorch

    small: dict[str, Any] = {"dim": 16, "depth": 2, "heads": 2, "dim_head": 8, "dim_out": 2}
    if name == "TabTransformer":
        small["mlp_act"] = nn.ReLU()
    kind = getattr(tab_transformer_pytorch, name)
    return Specimen(kind(categories=CATEGORIES, num_continuous=COLUMNS, **small), {0: categories(), 1: numbers()})


def _tabnet(name: str) -> Specimen:
    from pytorch_tabnet import tab_network

    model = getattr(tab_network, name)(COLUMNS, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(COLUMNS))
    return Specimen(model, {0: numbers()})


def _rtdl(name: str) -> Specimen:
    import rtdl_revisiting_models as rtdl

    if name == "MLP":
        return Specimen(rtdl.MLP(d_in=COLUMNS, d_out=3, n_blocks=2, d_block=16, dropout=0.1), {0: numbers()})
    if name == "ResNet":
        words: dict[str, Any] = {"d_hidden": None, "d_hidden_multiplier": 2.0, "dropout1": 0.1, "dropout2": 0.0}
        return Specimen(rtdl.ResNet(d_in=COLUMNS, d_out=3, n_blocks=2, d_block=16, **words), {0: numbers()})
    words = {**rtdl.FTTransformer.get_default_kwargs(2), "d_block": 16, "attention_n_heads": 4}
    model = rtdl.FTTransformer(n_cont_features=COLUMNS, cat_cardinalities=list(CATEGORIES), d_out=3, **words)
    return Specimen(model, {0: numbers(), 1: categories()})


def _embeddings(name: str) -> Specimen:
    import rtdl_num_embeddings as rtdl

    bins = [torch.linspace(-2, 2, 6)] * COLUMNS
    made: dict[str, Callable[[], nn.Module]] = {
        "LinearReLUEmbeddings": lambda: rtdl.LinearReLUEmbeddings(COLUMNS, 8),
        "PeriodicEmbeddings": lambda: rtdl.PeriodicEmbeddings(COLUMNS, 8, lite=False),
        "PiecewiseLinearEmbeddings": lambda: rtdl.PiecewiseLinearEmbeddings(bins, 8, activation=True, version="B"),
    }
    head = [nn.Flatten(), nn.Linear(8 * COLUMNS, 16), nn.ReLU(), nn.Linear(16, 3)]
    return Specimen(nn.Sequential(made[name](), *head), {0: numbers()})


PACKAGES: dict[str, tuple[Callable[[str], Specimen], list[str]]] = {
    "tab-transformer-pytorch": (_tab_transformer, ["TabTransformer", "FTTransformer"]),
    "pytorch-tabnet": (_tabnet, ["TabNet", "TabNetNoEmbeddings"]),
    "rtdl_revisiting_models": (_rtdl, ["MLP", "ResNet", "FTTransformer"]),
    "rtdl_num_embeddings": (_embeddings, ["LinearReLUEmbeddings", "PeriodicEmbeddings", "PiecewiseLinearEmbeddings"]),
}


def names() -> Iterator[str]:
    for package, (_, models) in PACKAGES.items():
        for model in models:
            yield f"{package}/{model}"


def build(name: str) -> Specimen:
    package, model = name.split("/")
    return PACKAGES[package][0](model)
