"""What ``CAFE(model)`` chooses: as published for shallow models, bit for bit, and one other way for all others."""

import copy
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE, UnsupportedOperation, compare
from cafexai._engine.variant import DEEP, Way
from cafexai.methods import METHODS
from cafexai.models import FTTransformer, mlp, small_cnn

FIELDS = ("positive", "negative", "combined", "bias", "output", "baseline_output", "completeness_error")


class Functional(nn.Module):
    """The same network with a forward of its own."""

    def __init__(self, layers, end=None):
        super().__init__()
        self.layers, self.end = layers, end

    def forward(self, x):
        x = self.layers(x)
        return x if self.end is None else self.end(x)


class Counted(nn.Module):
    """A chain of so many nonlinear operations, by name."""

    def __init__(self, *names):
        super().__init__()
        self.names = names
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        for name in self.names:
            x = {
                "relu": lambda v: F.relu(self.linear(v)),
                "product": lambda v: v * self.linear(v),
                "square": lambda v: v * v,
                "pool": lambda v: F.max_pool1d(self.linear(v)[:, None], 3, 1, 1)[:, 0],
                "largest": lambda v: self.linear(v) + v.amax(-1, keepdim=True),
                "residual": lambda v: v + F.gelu(self.linear(v)),
                "beside": lambda v: torch.relu(v) + torch.tanh(v),
                "linear": lambda v: self.linear(v).flip(1).reshape(-1, 2, 2).flatten(1).mean(0, keepdim=True).expand(1, 4) + v,
                "mean": lambda v: v - v.mean(-1, keepdim=True),
            }[name](x)
        return self.linear(x)


def deep(width=4, **options):
    torch.manual_seed(0)
    return mlp(width, 8, 8, 8, 2, **options)


def way(model, x=None, **options):
    cafe = CAFE(model)
    cafe.explain(torch.randn(1, 4) if x is None else x, **options)
    return cafe.way


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh, nn.Hardtanh])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 8)])
@pytest.mark.parametrize("end", [None, torch.sigmoid, lambda v: v.softmax(1), lambda v: v.log_softmax(1)])
@pytest.mark.parametrize("baselines", [None, 0.3])
def test_shallow_models_have_the_published_scores_bit_for_bit(activation, hidden, end, baselines):
    torch.manual_seed(0)
    model, x = Functional(mlp(4, *hidden, 3, activation=activation), end), torch.randn(5, 4)
    for one in (model, model.layers) if end is None else (model,):
        found, paper = (cafe.explain(x, baselines, target=1) for cafe in (CAFE(one), CAFE.published(one)))
        assert all(torch.equal(getattr(found, name), getattr(paper, name)) for name in FIELDS)
        assert found.settings["chosen"] == f"{len(hidden)} nonlinear operations in a row"


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (("relu",), 1),
        (("relu", "linear", "mean", "relu"), 2),
        (("relu", "product"), 2),
        (("square", "square"), 2),
        (("beside", "beside"), 2),
        (("residual", "residual"), 2),
        (("pool", "relu"), 2),
        (("largest", "relu"), 2),
        (("relu", "relu", "relu"), 3),
        (("residual", "product", "pool"), 3),
        (("largest", "square", "beside", "relu"), 4),
    ],
)
def test_nonlinear_operations_in_a_row_are_counted(names, count):
    found = way(Counted(*names), target=0)
    assert found.reason == f"{count} nonlinear operations in a row"
    assert (found.netting, found.flows) == (("path", "peak") if count <= 2 else ("unit", "mean"))


def test_attention_and_normalisation_make_a_model_deep():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    for model in (nn.LayerNorm(4), nn.GroupNorm(1, 3), nn.InstanceNorm1d(3), lambda v: attention(v, v, v)[0]):
        found = way(model, x, target=(0, 0))
        assert found.reason.endswith("and attention or normalisation")
        assert (found.netting, found.flows, found.biases, found.norms) == ("unit", "mean", "reference", "open")
    batch_norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
    assert way(batch_norm).netting == "path"  # in use it is a linear map
    assert way(FTTransformer([1, 1, 1, 1], 2, width=8, heads=2, blocks=1).eval()).netting == "unit"
    assert way(small_cnn(1, 8, 3, (4, 4)).eval(), torch.randn(1, 1, 8, 8)).netting == "unit"
    lstm = nn.LSTM(4, 5, batch_first=True)
    assert way(lambda v: lstm(v)[0][:, -1], x, target=0).reason.startswith(
        "12 "
    )  # gate, product, tanh, product: four for each of three steps


def test_deep_models_take_the_other_way_and_say_so():
    model, x = deep(), torch.randn(3, 4)
    found = CAFE(model).explain(x)
    named = CAFE(model, variant="published", netting="unit", flows="mean", biases="reference", norms="open").explain(x)
    assert all(torch.equal(getattr(found, name), getattr(named, name)) for name in FIELDS)
    assert {key: found.settings[key] for key in ("netting", "flows", "biases", "norms")} == {
        "netting": "unit", "flows": "mean", "biases": "reference", "norms": "open"
    }  # fmt: skip
    assert found.settings["chosen"] == "3 nonlinear operations in a row"
    assert "netting by unit" in found.ledger(0)
    assert "3 nonlinear operations in a row" in found.ledger(0)
    assert torch.equal(METHODS["cafe"](model, x, target=0), CAFE(model).attribute(x, target=0))
    assert torch.equal(METHODS["cafe_published"](model, x, target=0, c=1.0), CAFE.published(model, 1.0).attribute(x, target=0))


def test_naming_one_option_gives_the_published_value_of_the_others():
    model = deep()
    for options, expected in (
        ({"netting": "feature"}, Way("feature")),
        ({"netting": "path"}, Way()),
        ({"flows": "mean"}, Way(flows="mean")),
        ({"flows": "peak"}, Way()),
        ({"biases": "reference"}, Way(biases="reference")),
        ({"norm_mean": "linear"}, Way()),
        ({"norm_mean": "bias"}, Way()),
        ({"biases": "reference", "norms": "open"}, Way(biases="reference", norms="open")),
    ):
        cafe = CAFE(model, **options)
        assert cafe.way == expected
        cafe.explain(torch.randn(1, 4))
        assert cafe.way == expected
    assert CAFE.published(model).way == Way()


class Sometimes(nn.Module):
    """Deep or shallow, by a switch."""

    def __init__(self):
        super().__init__()
        self.first, self.rest, self.switch = mlp(4, 8, 4), deep(), False

    def forward(self, x):
        return self.rest(self.first(x)) if self.switch else self.first(x)


def test_it_is_decided_once_and_kept():
    model, x = Sometimes(), torch.randn(2, 4)
    cafe = CAFE(model)
    assert cafe.way is None
    cafe.explain(x, target=0)
    shallow = cafe.way
    assert shallow.netting == "path"
    model.switch = True
    cafe.explain(x, target=0)
    assert cafe.way is shallow
    assert CAFE(model).way is None
    for other in (copy.deepcopy(cafe), pickle.loads(pickle.dumps(cafe))):
        assert other.way == shallow
        assert other.explain(x, target=0).settings["netting"] == "path"


def test_layers_rows_and_chunks_do_not_change_it():
    model, x = Functional(deep()), torch.randn(6, 4)
    expected = way(model, x)
    assert expected.netting == "unit"
    assert way(model, x, target_layer="layers.0", target=1) == expected
    assert way(model, x, layer="layers.4") == expected
    assert way(model, x[:1] * 0) == expected
    assert way(model, x, batch_size=2) == expected
    found, chunked = CAFE(model).explain(x), CAFE(model).explain(x, batch_size=2)
    assert torch.allclose(found.combined, chunked.combined, atol=1e-6)


def test_threads_agree():
    model, x = Functional(deep()), torch.randn(3, 4)
    cafe, expected, found = CAFE(model), CAFE(model).attribute(x, target=0), []
    threads = [threading.Thread(target=lambda: found.append(cafe.attribute(x, target=0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, expected) for one in found)


def test_the_model_is_asked_once_more_and_left_as_it_was():
    calls = []
    model = Functional(deep(), lambda v: calls.append(len(v)) or v)
    cafe = CAFE(model)
    cafe.explain(torch.randn(3, 4))
    first = len(calls)
    calls.clear()
    cafe.explain(torch.randn(3, 4))
    assert len(calls) == first - 1


def test_compare_lists_both_only_where_they_differ():
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    quick = {"metrics": ["complexity"], "show_progress": False}
    assert "cafe_published" not in compare(mlp(4, 8, 2), x, **quick).values
    both = compare(deep(), x, **quick).values
    assert {"cafe c=0.5", "cafe_published"} <= set(both)
    assert set(compare(mlp(4, 8, 2), x, methods=["cafe", "cafe_published"], **quick).values) == {"cafe", "cafe_published"}


def test_what_cannot_be_explained_says_so_as_before():
    with pytest.raises(UnsupportedOperation, match="bessel_j0"):
        CAFE(torch.special.bessel_j0).explain(torch.rand(2, 4))


def test_the_choice_is_one_of_two():
    assert (DEEP.netting, DEEP.flows, DEEP.biases, DEEP.norms) == ("unit", "mean", "reference", "open")
    assert Way() == Way("path", "peak", "scores", "frozen")
