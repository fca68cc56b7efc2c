"""Explanations in two blocks: against four explanations by hand, the Shapley value of the blocks, and the sums."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import models
from cafexai import CAFE, CompletenessError, Explanation, Schema
from cafexai.blocks.cut import alternate_groups
from cafexai.methods import METHODS
from cafexai.metrics import cells
from cafexai.models import FTTransformer

torch.manual_seed(0)
X, START = torch.randn(6, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)


def network(inputs=5, outputs=4, activation=nn.GELU):
    torch.manual_seed(1)
    return models.mlp(inputs, 8, 7, outputs, activation=activation)


def by_hand(cafe, x, start, inside, target, **options):
    """Four explanations, one after the other, straight from the definition."""
    start = start.expand_as(x)
    a, b = torch.where(inside, x, start), torch.where(inside, start, x)
    parts = [cafe.explain(one, other, target, **options) for one, other in ((x, b), (x, a), (a, start), (b, start))]
    halves = {name: sum(getattr(e, name) for e in parts) / 2 for name in ("positive", "negative", "combined")}
    return halves, parts[0].combined + parts[1].combined


def shapley_of_blocks(model, x, start, inside, target):
    """The Shapley value of each of two players, from the definition: the mean over both orders."""
    start = start.expand_as(x)

    def f(*players):
        there = sum(((inside if player == 0 else ~inside) for player in players), torch.zeros_like(inside))
        return model(torch.where(there.bool(), x, start))[:, target]

    orders = list(itertools.permutations((0, 1)))
    gains = {0: 0, 1: 0}
    for order in orders:
        for place, player in enumerate(order):
            gains[player] = gains[player] + (f(*order[: place + 1]) - f(*order[:place])) / len(orders)
    return torch.stack([gains[0], gains[1]], 1)


def sums_by_block(scores, inside):
    return torch.stack([(scores * inside).flatten(1).sum(1), (scores * ~inside).flatten(1).sum(1)], 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"variant": "feature"},
        {"variant": "default", "flows": "peak"},
        {"c": 1.0},
        {"variant": "default", "norms": "frozen"},
    ],
    ids=str,
)
@pytest.mark.parametrize("build", [network, lambda: FTTransformer((1,) * 5, outputs=4, width=8, heads=2, blocks=2).eval()])
def test_they_are_four_explanations(build, options):
    model, inside = build(), torch.tensor([True, False, True, False, True])
    cafe = CAFE(model, **options)
    e = cafe.explain_blocks(X, START, 2)
    halves, missing = by_hand(cafe, X, START, inside, 2)
    for name, expected in halves.items():
        torch.testing.assert_close(getattr(e, name), expected, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(e.if_missing, missing, atol=1e-10, rtol=1e-10)
    assert e.blocks.tolist() == [[True, False, True, False, True]] * 6
    torch.testing.assert_close(e.baselines, START.expand_as(X))
    torch.testing.assert_close(e.inputs, X)
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1), e.output)
    if "norms" not in options:
        assert not e.frozen
        torch.testing.assert_close(sums_by_block(e.combined, inside), shapley_of_blocks(model, X, START, inside, 2))
        torch.testing.assert_close(e.baseline_output, model(START[None])[:, 2].expand(6).detach())
        assert e.if_missing_error.abs().max() < 1e-10
        lost = torch.stack([e.output - model(torch.where(part, START, X))[:, 2] for part in (inside, ~inside)], 1)
        torch.testing.assert_close(e.checks.lost, lost.detach())


@given(st.lists(st.booleans(), min_size=5, max_size=5), st.sampled_from([torch.relu, F.gelu, torch.tanh]))
@settings(max_examples=25, deadline=None)
def test_every_block_has_its_shapley_value_and_its_loss(mask, phi):
    one, two = nn.Linear(5, 6), nn.Linear(6, 2)

    def model(x):
        return two(phi(one(x)))

    inside = torch.tensor(mask)
    e = CAFE(model).explain_blocks(X, START, 1, blocks=mask)
    torch.testing.assert_close(sums_by_block(e.combined, inside), shapley_of_blocks(model, X, START, inside, 1).detach())
    assert e.if_missing_error.abs().max() < 1e-10
    assert (e.positive >= 0).all()
    torch.testing.assert_close(e.positive - e.negative, e.combined)


def test_one_block_with_all_features_is_the_plain_explanation():
    cafe = CAFE(network())
    whole, plain = cafe.explain_blocks(X, START, 1, blocks=list(range(5))), cafe.explain(X, START, 1)
    for name in ("positive", "negative", "combined"):
        torch.testing.assert_close(getattr(whole, name), getattr(plain, name))
    torch.testing.assert_close(whole.if_missing, plain.combined)


def test_linear_models_have_one_answer():
    model = nn.Linear(5, 1)
    e = CAFE(model).explain_blocks(X, START)
    torch.testing.assert_close(e.combined, ((X - START) * model.weight[0]).detach())
    torch.testing.assert_close(e.if_missing, e.combined)


def test_the_predicted_class_is_that_of_the_whole_row():
    model = network()
    e, named = CAFE(model).explain_blocks(X, START), CAFE(model).explain_blocks(X, START, model(X).argmax(1))
    assert e.target[:, 0].tolist() == model(X).argmax(1).tolist()
    torch.testing.assert_close(e.combined, named.combined)
    contrast = CAFE(model).explain_blocks(X, START, 1, against=2)
    twin = CAFE(lambda x: (model(x)[:, 1] - model(x)[:, 2])[:, None]).explain_blocks(X, START)
    torch.testing.assert_close(contrast.combined, twin.combined)
    torch.testing.assert_close(contrast.if_missing, twin.if_missing)


def test_several_baselines_are_averaged():
    cafe, stack = CAFE(network()), torch.randn(3, 1, 5)
    e, apart = cafe.explain_blocks(X, stack, 1), [cafe.explain_blocks(X, one, 1) for one in stack]
    for name in ("positive", "combined", "if_missing", "baseline_output", "baselines"):
        torch.testing.assert_close(getattr(e, name), sum(getattr(one, name) for one in apart) / 3)
    assert e.if_missing_error.abs().max() < 1e-10


def test_arguments_of_forward_stay_with_their_rows():
    model, scale = network(), torch.rand(6, 1)

    def scaled(x, by, plus=0.0):
        return model(x) * by + plus

    expected = [CAFE(lambda x, row=row: model(x) * scale[row] + 1).explain_blocks(X[[row]], START, 1) for row in range(6)]
    for options in ({}, {"per_row": ["by"]}):
        e = CAFE(scaled, **options).explain_blocks(X, START, 1, {"by": scale, "plus": 1.0})
        torch.testing.assert_close(e.combined, torch.cat([one.combined for one in expected]))
        torch.testing.assert_close(e.if_missing, torch.cat([one.if_missing for one in expected]))


def test_groups_are_whole():
    cafe, groups = CAFE(network()), {"pair": [0, 3], "last": [4]}
    e = cafe.explain_blocks(X, START, 1, feature_groups=groups)
    assert e.names() == ("pair", "x1", "x2", "last")
    assert e.blocks[0].tolist() == [True, False, True, False]
    elements = cafe.explain_blocks(X, START, 1, blocks=torch.tensor([True, False, True, True, False]))
    torch.testing.assert_close(e.combined[:, 0], elements.combined[:, [0, 3]].sum(1))
    torch.testing.assert_close(e.if_missing[:, 0], elements.if_missing[:, [0, 3]].sum(1))
    by_name = cafe.explain_blocks(X, START, 1, feature_groups=groups, blocks=["pair", "x2"])
    torch.testing.assert_close(by_name.combined, e.combined)


def test_one_hot_blocks_are_whole():
    homes = pd.DataFrame({"rooms": [3.0, 5.0], "city": ["Oslo", "Rome"], "age": [1.0, 2.0]})
    schema = Schema.from_frame(homes, one_hot=True)
    cafe = CAFE(network(4), schema=schema)
    e = cafe.explain_blocks(homes, target=1)
    assert e.names() == ("rooms", "city", "age")
    assert e.blocks[0].tolist() == [True, False, True]
    assert e.if_missing_error.abs().max() < 1e-10
    x = torch.tensor(schema.encode(homes, "test")[0])
    inside = torch.tensor([True, False, False, True])
    _, missing = by_hand(CAFE(cafe.model), x, torch.zeros(4), inside, 1)
    torch.testing.assert_close(e.if_missing, torch.stack([missing[:, 0], missing[:, 1:3].sum(1), missing[:, 3]], 1))


def test_images_are_cut_like_a_checkerboard():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 14 * 14, 2)).eval()
    x = torch.randn(2, 2, 16, 16)
    e = CAFE(model).explain_blocks(x, target=0)
    assert e.blocks.shape == x.shape
    assert e.blocks[0, 0, :2, :4].tolist() == [[True, True, False, False]] * 2
    assert e.blocks[1, 1, 2:4, :4].tolist() == [[False, False, True, True]] * 2
    grouped = CAFE(model).explain_blocks(x, target=0, feature_groups=cells(x, 2))
    assert grouped.combined.shape == (2, 64)
    assert grouped.blocks[0, :9].tolist() == [True, False] * 4 + [False]
    torch.testing.assert_close(grouped.combined[:, 1], e.combined[:, :, :2, 2:4].sum((1, 2, 3)))
    assert grouped.if_missing_error.abs().max() < 1e-10


def test_positions_of_sequences_are_whole():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.GELU(), nn.Linear(6, 2)).eval()
    e = CAFE(model).explain_blocks(torch.randn(2, 3, 4), target=0)
    assert e.blocks[0].tolist() == [[True] * 4, [False] * 4, [True] * 4]
    narrow = CAFE(model).explain_blocks(torch.randn(2, 1, 12), target=0)
    assert narrow.blocks[0, 0].tolist() == [True, False] * 6


def test_several_inputs():
    def model(a, b):
        return torch.tanh(a.sum(1, keepdim=True) * b + a[:, :1])

    a, b = torch.randn(4, 3), torch.randn(4, 2)
    e = CAFE(model).explain_blocks((a, b), target=1)
    assert [part[0].tolist() for part in e.blocks] == [[True, False, True], [True, False]]
    assert e.if_missing_error.abs().max() < 1e-10
    torch.testing.assert_close(e.flat(e.combined).sum(1), e.output - e.baseline_output)
    masks = (torch.tensor([True, True, False]), torch.tensor([False, True]))
    named = CAFE(model).explain_blocks((a, b), target=1, blocks=masks)
    assert [part[0].tolist() for part in named.blocks] == [[True, True, False], [False, True]]


def test_files_and_rows(tmp_path):
    e = CAFE(network()).explain_blocks(X, START, 1)
    path = tmp_path / "e.safetensors"
    e.save(path)
    read = Explanation.load(path)
    for name in ("combined", "if_missing", "blocks"):
        assert torch.equal(getattr(read, name), getattr(e, name))
    assert torch.equal(read.checks.lost, e.checks.lost)
    torch.testing.assert_close(e[[4, 1]].if_missing, e.if_missing[[4, 1]])
    assert e[2].checks.lost.shape == (1, 2)
    assert list(e.to_frame()["if_missing"][:5]) == pytest.approx(e.if_missing[0].tolist())
    assert "if_missing" in e.top()
    e.replace(if_missing=e.if_missing + 1).save(path)
    with pytest.raises(ValueError, match="if_missing does not add up"):
        Explanation.load(path)
    plain = CAFE(network()).explain(X, START, 1)
    plain.save(path)
    assert Explanation.load(path).if_missing is None
    with pytest.raises(ValueError, match="explain_blocks"):
        _ = plain.if_missing_error


def test_pairs_and_refined_scores_start_from_there():
    model = network()
    pairs = CAFE(model, variant="feature").explain_blocks(X, START, 1, pairs=True)
    assert pairs.conflict_pairs.shape == (6, 6, 6)
    cafe = CAFE(model, background=torch.randn(30, 5))
    refined = cafe.refine(cafe.explain_blocks(X, START, 1), 10)
    torch.testing.assert_close(refined.refined.sum(1), refined.combined.sum(1))


def test_features_without_a_gradient_path_are_named():
    def model(x):
        return torch.tanh(x[:, :1] * x[:, 1:2]) + (x[:, 2:3] > 0) * x[:, 3:4]

    e = CAFE(model).explain_blocks(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert e.frozen
    assert e.checks.cut["x2"].item() == pytest.approx(4)
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1), e.output)


def test_what_is_refused():
    cafe = CAFE(network())
    with pytest.raises(ValueError, match='biases="reference"'):
        CAFE.published(network()).explain_blocks(X)
    with pytest.raises(ValueError, match="net scores"):
        cafe.explain_blocks(X, conflict="measured")
    with pytest.raises(ValueError, match="no feature 'age'"):
        cafe.explain_blocks(X, blocks=["age"])
    with pytest.raises(ValueError, match="no feature 7"):
        cafe.explain_blocks(X, blocks=[7])
    with pytest.raises(ValueError, match=r"true or false for each feature, \(5,\) or \(6, 5\)"):
        cafe.explain_blocks(X, blocks=torch.tensor([True, False]))
    with pytest.raises(ValueError, match="by name or index"):
        cafe.explain_blocks(X, blocks=0.5)
    with pytest.raises(TypeError, match="unknown parameter"):
        cafe.explain_blocks(X, block=[1])


def test_a_reference_that_is_not_the_model_is_refused(monkeypatch):
    from cafexai.blocks import walk

    own = walk._explain_pairs

    def off(job, meta, pairs):
        return [e.replace(output=e.output + 1) for e in own(job, meta, pairs)]

    monkeypatch.setattr(walk, "_explain_pairs", off)
    with pytest.raises(CompletenessError, match="what the model loses"):
        CAFE(network()).explain_blocks(X)


def test_as_methods():
    model, mask = network(), torch.tensor([0, 0, 1, 2, 2])
    e = CAFE(model).explain_blocks(X, START, 1, blocks=[0, 1, 3, 4])
    torch.testing.assert_close(METHODS["cafe_blocks"](model, X, target=1, baselines=START, feature_groups=mask), e.combined)
    torch.testing.assert_close(
        METHODS["cafe_if_missing"](model, X, target=1, baselines=START, feature_groups=mask), e.if_missing
    )
    plain = CAFE(model).explain_blocks(X, START, 1)
    torch.testing.assert_close(METHODS["cafe_blocks"](model, X, target=1, baselines=START), plain.combined)
    board = alternate_groups(cells(torch.zeros(1, 1, 4, 4), 2))
    assert np.array_equal(board[0].numpy(), np.kron([[1, 0], [0, 1]], np.ones((2, 2))).astype(bool))
