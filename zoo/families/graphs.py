"""Graph networks of torch_geometric: a graph is one row, its nodes are the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch_geometric.nn as geometric
from specimen import Specimen
from torch import Tensor, nn

ONE_WAY = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
EDGES = torch.cat([ONE_WAY, ONE_WAY.flip(0)], 1)
NODES, WIDTH = 6, 4
LAYERS = """GCNConv ChebConv SAGEConv GraphConv GatedGraphConv ResGatedGraphConv GATConv GATv2Conv TransformerConv
    AGNNConv TAGConv ARMAConv SGConv SSGConv APPNP MFConv GINConv EdgeConv FeaStConv LEConv ClusterGCNConv
    GENConv FiLMConv SuperGATConv EGConv GeneralConv AntiSymmetricConv MixHopConv LGConv SimpleConv""".split()
MODELS = "GCN GraphSAGE GIN GAT PNA EdgeCNN".split()
ARGUMENTS: dict[str, Any] = {"ChebConv": {"K": 2}, "GatedGraphConv": {"num_layers": 2}}


class Graph(nn.Module):
    """Two layers of messages and a mean over the nodes, for one graph."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x[0], EDGES)), EDGES).mean(0, keepdim=True)


class Whole(nn.Module):
    """A whole network on one graph."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x[0], EDGES).mean(0, keepdim=True)


def names() -> Iterator[str]:
    for name in [*LAYERS, *MODELS]:
        yield f"torch-geometric/{name}"


def _layer(name: str) -> nn.Module:
    kind = getattr(geometric, name)
    if name in ("GINConv", "EdgeConv"):
        return kind(nn.Linear(WIDTH if name == "GINConv" else 2 * WIDTH, WIDTH))
    if name == "GatedGraphConv":
        return kind(WIDTH, 2)
    if name in ("AGNNConv", "LGConv", "SimpleConv"):
        return kind()
    if name == "APPNP":
        return kind(3, 0.1)
    if name == "SSGConv":
        return kind(WIDTH, WIDTH, 0.1)
    if name == "ClusterGCNConv":
        return kind(WIDTH, WIDTH)
    if name == "EGConv":
        return kind(WIDTH, WIDTH, num_heads=2)
    if name == "AntiSymmetricConv":
        return kind(WIDTH)
    if name == "MixHopConv":
        return nn.Sequential()
    return kind(WIDTH, WIDTH, **ARGUMENTS.get(name, {}))


def build(name: str) -> Specimen:
    name = name.split("/")[1]
    rows = {0: torch.randn(1, NODES, WIDTH)}
    if name in MODELS:
        words = (
            {"aggregators": ["mean", "max", "std"], "scalers": ["identity"], "deg": torch.tensor([0, 0, 2, 4])}
            if name == "PNA"
            else {}
        )
        return Specimen(Whole(getattr(geometric, name)(WIDTH, 8, 2, 3, **words)), rows)
    if name == "MixHopConv":
        first, second = geometric.MixHopConv(WIDTH, WIDTH), geometric.MixHopConv(3 * WIDTH, WIDTH)
        return Specimen(Graph(first, second), rows)
    return Specimen(Graph(_layer(name), _layer(name)), rows)
