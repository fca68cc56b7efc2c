"""Graph networks: a graph is one row, its nodes are the features; one output per node or for the whole graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from architectures import adds_up
from cafexai import CAFE

geometric = pytest.importorskip("torch_geometric.nn")
ONE_WAY = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
EDGES = torch.cat([ONE_WAY, ONE_WAY.flip(0)], 1)


class Two(nn.Module):
    """Two layers of messages."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


LAYERS = {
    "GCN": lambda: Two(geometric.GCNConv(4, 8), geometric.GCNConv(8, 3)),
    "GAT": lambda: Two(geometric.GATConv(4, 8), geometric.GATConv(8, 3)),
    "GATv2": lambda: Two(geometric.GATv2Conv(4, 8, heads=2), geometric.GATv2Conv(16, 3)),
    "SAGE": lambda: Two(geometric.SAGEConv(4, 8), geometric.SAGEConv(8, 3)),
    "SAGE, largest": lambda: Two(geometric.SAGEConv(4, 8, aggr="max"), geometric.SAGEConv(8, 3, aggr="max")),
    "products": lambda: Two(geometric.SimpleConv(aggr="mul"), geometric.GCNConv(4, 3)),
    "deviations": lambda: Two(geometric.SimpleConv(aggr="std"), geometric.GCNConv(4, 3)),
    "GIN": lambda: Two(geometric.GINConv(nn.Linear(4, 8)), geometric.GINConv(nn.Linear(8, 3))),
    "attention": lambda: Two(geometric.TransformerConv(4, 8), geometric.TransformerConv(8, 3)),
    "edges": lambda: Two(geometric.EdgeConv(nn.Linear(8, 8)), geometric.GCNConv(8, 3)),
    "gates": lambda: Two(geometric.GatedGraphConv(4, 2), geometric.GCNConv(4, 3)),
}


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_is_one_row(name, netting):
    torch.manual_seed(0)
    nodes, start = torch.randn(1, 6, 4), torch.randn(1, 6, 4)
    start[:, 2] = nodes[:, 2]
    for dtype in (torch.float64, torch.float32):
        model = LAYERS[name]().to(dtype).eval()
        cafe = CAFE(lambda x, model=model: model(x[0], EDGES)[None], variant="published", netting=netting)
        for reference in (None, start):
            e = cafe.explain(nodes.to(dtype), None if reference is None else reference.to(dtype), target=(0, 1))
            adds_up(e)
        assert (e.positive[:, 2] == 0).all()
        whole = CAFE(lambda x, model=model: model(x[0], EDGES).mean(0, keepdim=True), variant="published", netting=netting)
        adds_up(whole.explain(nodes.to(dtype), target=1))


def test_sums_over_edges_are_a_matrix():
    """GCN with the normalised matrix of neighbours written out has the same scores, by every carrier."""
    torch.manual_seed(0)
    model = Two(geometric.GCNConv(4, 8), geometric.GCNConv(8, 3)).double()
    own = torch.eye(6).index_put((EDGES[1], EDGES[0]), torch.ones(16))
    near = own / (own.sum(1)[:, None] * own.sum(0)).sqrt()

    def written(x):
        h = torch.relu(near @ (x[0] @ model.first.lin.weight.T) + model.first.bias)
        return (near @ (h @ model.second.lin.weight.T) + model.second.bias)[None]

    nodes = torch.randn(1, 6, 4)
    for netting in ("path", "feature", "unit"):
        e, f = (
            CAFE(m, variant="published", netting=netting).explain(nodes, target=(3, 2))
            for m in (lambda x: model(x[0], EDGES)[None], written)
        )
        torch.testing.assert_close(e.combined, f.combined)
        torch.testing.assert_close(e.bias, f.bias)
        torch.testing.assert_close(e.output, f.output)


def test_nodes_as_rows_are_refused_with_the_way_out():
    model, nodes = LAYERS["GCN"]().double(), torch.randn(6, 4)
    with pytest.raises(ValueError, match="A graph, whose nodes"):
        CAFE(model).explain(nodes, target=1, additional_forward_args=(EDGES,))
    with pytest.raises(ValueError, match="A graph is one row"):
        CAFE(lambda x: model(x, EDGES).mean(0, keepdim=True)).explain(nodes, target=1)
