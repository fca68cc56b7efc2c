"""What a model does that its scores might not say: features cut off, codes of its own, and the output at the baseline."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cafexai import CAFE, Explanation

X = torch.tensor([[3.0, 0.5, -1.0], [5.0, 1.0, 2.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
NETTINGS = ["path", "feature"]


class Categories(nn.Module):
    """A table of floats of which the first column is a category, as tabular libraries have it."""

    def __init__(self, codes=lambda x: x[:, 0].long()):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.body, self.head = nn.Embedding(12, 4), nn.Linear(6, 8), nn.Linear(8, 1)
        self.codes = codes

    def forward(self, x):
        return self.embedded(self.table(self.codes(x)), x[:, 1:])

    def embedded(self, embedding, rest):
        return self.head(torch.relu(self.body(torch.cat([embedding, rest], 1))))


WAYS = {
    "select": lambda x: x[:, 0].long(),
    "slice": lambda x: x[:, 0:1].long().squeeze(1),
    "int": lambda x: x[..., 0].int(),
    "split": lambda x: x.split([1, 2], 1)[0].flatten().to(torch.int64),
    "scaled": lambda x: (x[:, 0] * 2 + 1).long(),
    "buckets": lambda x: torch.floor(x / 2 + 3).clamp(0, 11)[:, 0].long(),
    "joined": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1)[:, 2].round().long(),
    "constant joined": lambda x: torch.cat([x[:, :1], torch.ones(len(x), 1)], 1).long()[:, 0],
}


@pytest.mark.parametrize("netting", NETTINGS)
@pytest.mark.parametrize("way", WAYS)
def test_codes_that_the_model_makes_of_a_column_are_followed(way, netting):
    model = Categories(WAYS[way])
    for baselines in (None, torch.tensor([[1.0, 0.2, 0.3]])):
        start = torch.zeros(1, 3) if baselines is None else baselines
        for biases in ("scores", "reference"):
            e = CAFE(model, variant="published", netting=netting, biases=biases).explain(X, baselines)
            # the same as a model that is given the embedding of the code in place of the column
            embedding, rest = (model.table(WAYS[way](rows)).detach() for rows in (X, start)), (X[:, 1:], start[:, 1:])
            inside, before = embedding
            twin = CAFE(lambda v, w: model.embedded(v, w), variant="published", netting=netting, biases=biases).explain(
                (inside, rest[0]), (before, rest[1]), feature_groups=(torch.tensor([0, 0, 0, 0]), torch.tensor([1, 2]))
            )
            for part in ("positive", "negative", "combined"):
                torch.testing.assert_close(getattr(e, part), getattr(twin, part))
            torch.testing.assert_close(e.bias, twin.bias)
            if biases == "reference":
                torch.testing.assert_close(e.baseline_output, model(start).detach().flatten().expand(3))
            assert e.combined[:2, 0].abs().min() > 0
            assert not e.checks.cut


LINEAR = nn.Linear(3, 1).double()


def _item(x):
    return torch.stack([row[1] * row[0].item() for row in x])[:, None]


CUTS = {
    "truth value": lambda x: LINEAR(torch.cat([(x[:, :1] > 1).to(x), x[:, 1:]], 1)),
    "detach": lambda x: LINEAR(torch.cat([x[:, :1].detach(), x[:, 1:]], 1)),
    "item": _item,
    "denominator": lambda x: x[:, 1:2] / (1 + x[:, :1]),
    "bool": lambda x: LINEAR(torch.cat([x[:, :1].bool().to(x), x[:, 1:]], 1)),
}


@pytest.mark.parametrize("netting", NETTINGS)
@pytest.mark.parametrize("way", CUTS)
def test_features_that_are_cut_off_are_named_with_what_they_do(way, netting):
    model = CUTS[way]
    for baselines in (None, torch.tensor([[0.5, 0.0, 0.0]])):
        e = CAFE(model, variant="published", netting=netting).explain(X, baselines)
        start = torch.zeros(3) if baselines is None else baselines[0]
        without = X.clone()
        without[:, 0] = start[0]
        assert not e.combined[:, 0].any()
        assert list(e.checks.cut) == ["x0"]
        torch.testing.assert_close(e.checks.cut["x0"], (model(X) - model(without)).detach().flatten())
        lines = [line for line in e.ledger(1).splitlines() if line.startswith("x0: influence that the model cuts off")]
        assert (f"{e.checks.cut['x0'][1].item():+.4g}" in lines[0]) if e.checks.cut["x0"][1] else not lines
        assert e[1:].cut["x0"].shape == (2,)


@pytest.mark.parametrize("netting", NETTINGS)
def test_a_feature_that_is_cut_off_on_one_way_alone_is_named(netting):
    layer, table = nn.Linear(2, 1), nn.Embedding(9, 1)

    def model(x):
        hidden = (layer(x[:, :2]).abs() * 2).long().clamp(0, 8)  # of several features: no code of any of them
        return table(hidden[:, 0]) + x[:, 1:2] + x[:, 2:]

    e = CAFE(model, variant="published", netting=netting).explain(X, feature_names=["a", "b", "c"])
    assert set(e.checks.cut) == {"a", "b"}  # b has a score, too
    assert e.combined[:, 1].abs().min() > 0
    without = X.clone()
    without[:, 1] = 0
    torch.testing.assert_close(e.checks.cut["b"], (model(X) - model(without)).detach().flatten())


def _only_positive(x):
    if bool((x[:, 2] <= 0).any()):
        raise RuntimeError("x2 must be positive")
    return x[:, :1] + x[:, 2:].detach()


@pytest.mark.parametrize("model", [lambda x: x[:, :1] / x[:, 2:], _only_positive])
def test_where_the_model_cannot_be_asked_what_a_feature_does_is_not_known(model):
    e = CAFE(model, variant="published", biases="reference").explain(torch.tensor([[1.0, 2.0, 4.0]]))
    assert e.checks.cut["x2"].isnan().all()
    assert "was not tried" in e.ledger()


def test_a_large_row_does_not_hide_what_is_cut_off_in_others():
    e = CAFE(lambda x: x[:, :1] + x[:, 1:].detach()).explain(torch.tensor([[1.0, 5.0], [1e8, 0.0]]))
    torch.testing.assert_close(e.checks.cut["x1"], torch.tensor([5.0, 0.0]))


def test_groups_of_features_have_one_score():
    groups = {"a": [0, 1], "b": [2]}
    for netting in NETTINGS:
        assert (
            not CAFE(lambda x: LINEAR(x) * (x[:, 2:] > -2), variant="published", netting=netting)
            .explain(X, feature_groups=groups)
            .cut
        )


def test_codes_that_do_not_exist_at_the_baseline_are_named():
    table = nn.Embedding(6, 2)
    with pytest.raises(ValueError, match=r"at the baseline the codes of input 0 are -1 to -1, .* Give baselines"):
        CAFE(lambda x: table((x[:, 0] - 1).long())).explain(X[:2], target=0)
    e = CAFE(lambda x: table((x[:, 0] - 1).long())).explain(X[:2], X[:1], target=0)
    assert e.completeness_error.abs().max() < 1e-12


def test_comparisons_that_cut_nothing_off_name_nothing():
    assert not CAFE(lambda x: LINEAR(x * (x > 0))).explain(X).cut
    assert not CAFE(lambda x: LINEAR(torch.where(x[:, :1] > 9, x, 2 * x))).explain(X).cut
    assert not CAFE(nn.Sequential(nn.Linear(3, 2), nn.ReLU())).explain(X, target=0).cut


def test_for_all_classes_and_a_probability():
    layer = nn.Linear(3, 2)

    def model(x):
        return torch.softmax(layer(torch.cat([x[:, :1].detach(), x[:, 1:]], 1)), 1)

    e = CAFE(model).explain(X, target=1)
    logits = layer(X) - layer(torch.cat([torch.zeros(3, 1), X[:, 1:]], 1))
    torch.testing.assert_close(e.checks.cut["x0"], logits[:, 1].detach())  # in units of what is explained
    for one in CAFE(model).explain(X, target="all", c=[0.0, 1.0]).values():
        assert one.checks.cut["x0"].isnan().all()  # nothing is tried there


def test_cut_features_are_saved(tmp_path):
    e = CAFE(CUTS["detach"], variant="published", biases="reference").explain(X)
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    torch.testing.assert_close(dict(again.checks.cut), dict(e.checks.cut))
    torch.testing.assert_close(again.checks.model_at_baseline, e.checks.model_at_baseline)


def test_the_model_at_the_baseline_and_what_freezing_moves_it_by():
    torch.manual_seed(0)
    encoder, head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), nn.Linear(8, 2)

    def model(x):
        return torch.sigmoid(head(encoder(x).mean(1)))

    x, baselines = torch.randn(3, 4, 8), torch.randn(2, 3, 4, 8)
    for netting in NETTINGS:
        e = CAFE(model, variant="published", netting=netting, biases="reference").explain(x, baselines, target=1)
        expected = torch.stack([torch.logit(model(one)[:, 1]) for one in baselines]).mean(0).detach()
        torch.testing.assert_close(e.checks.model_at_baseline, expected)
        torch.testing.assert_close(e.baseline_output + e.frozen_part, expected)
        assert e.frozen_part.abs().min() > 1e-2
        assert f"model(baseline) itself is {expected[0].item():.4g}" in e.ledger(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    e = CAFE(plain, variant="published", biases="reference").explain(X, X[:1])
    torch.testing.assert_close(e.checks.model_at_baseline, plain(X[:1]).detach().flatten().expand(3))
    assert not e.frozen_part.abs().max() > 1e-9
    with pytest.raises(ValueError, match='biases="reference"'):
        _ = CAFE.published(plain).explain(X).frozen_part


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_a_feature_that_is_also_detached_is_named(netting):
    """Its score is that of one way; what it does in all is told beside it."""

    def model(x):
        return torch.relu(x[:, 0] * 2 + x[:, 2]) * x[:, 0].detach() + x[:, 1]

    e = CAFE(model, variant="published", netting=netting).explain(X)
    assert list(e.checks.cut) == ["x0"]
    without = torch.cat([torch.zeros(3, 1), X[:, 1:]], 1)
    torch.testing.assert_close(e.checks.cut["x0"], model(X) - model(without))
