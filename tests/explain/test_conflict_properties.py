"""What holds for the measured conflict of every network, row and baseline."""

from __future__ import annotations

from decimal import Decimal
from html import escape

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE
from cafexai.explorer.row import ledger
from cafexai.plotting.conflict_words import conflict_sentence
from cafexai.plotting.rounding import round_explanation
from cafexai.plotting.table_plot import describe_conflict

close = torch.testing.assert_close
seeds = st.integers(0, 10_000)
counts = st.integers(1, 6)


def network(features: int, seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A random network, three rows, and a baseline that shares some values with the first row."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    x, baseline = 2 * torch.randn(3, features).double(), torch.randn(features).double()
    x[0, ::2] = baseline[::2]
    x[1, 0] = 0.0
    return model, x, baseline


def naive(model: nn.Module, x: torch.Tensor, baseline: torch.Tensor, net: torch.Tensor) -> tuple[float, float]:
    """The conflict of one row and what is left, from the definition alone."""

    def f(row: list[float]) -> float:
        return float(model(torch.tensor([row], dtype=torch.float64))[0, 0].detach())

    values, start, sign = x.tolist(), baseline.tolist(), net.tolist()
    y, r = f(values), f(start)
    p = f([b if s < 0 else v for v, b, s in zip(values, start, sign, strict=True)])
    q = f([b if s > 0 else v for v, b, s in zip(values, start, sign, strict=True)])
    sizes = [min(abs(y - u), abs(u - r)) if (y - u) * (u - r) < 0 else 0.0 for u in (p, q)]
    return max(sizes), abs(y - r)


@settings(max_examples=30, deadline=None)
@given(counts, seeds)
def test_it_is_the_definition_and_its_share_lies_between_0_and_1(features, seed):
    model, x, baseline = network(features, seed)
    e = CAFE(model).explain(x, baselines=baseline)
    assert ((e.conflict_share >= 0) & (e.conflict_share <= 1)).all()
    for row in range(len(x)):
        conflict, left = naive(model, x[row], baseline, e.combined[row])
        close(e.conflict[row].item(), conflict, rtol=1e-9, atol=1e-12)
        close(e.conflict_left[row].item(), left, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(counts, seeds)
def test_it_does_not_depend_on_the_order_of_features(features, seed):
    model, x, baseline = network(features, seed)
    before = CAFE(model).explain(x, baselines=baseline)
    order = torch.randperm(features)
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[:, order].clone())
    after = CAFE(model).explain(x[:, order], baselines=baseline[order])
    close(after.conflict, before.conflict, rtol=1e-9, atol=1e-12)
    close(after.conflict_share, before.conflict_share, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(counts, seeds)
def test_a_feature_that_is_not_used_takes_part_in_no_conflict(features, seed):
    model, x, baseline = network(features, seed)
    with torch.no_grad():
        model[0].weight[:, -1] = 0
    cafe = CAFE(model)
    e = cafe.explain(x, baselines=baseline)
    exact = cafe.hidden_conflicts(e)
    assert exact.conflict[:, -1].abs().max() <= 1e-12  # rounding of two evaluations
    assert exact.alone[:, -1].abs().max() <= 1e-12
    elsewhere = x.clone()
    elsewhere[:, -1] += 7
    close(cafe.explain(elsewhere, baselines=baseline).conflict, e.conflict, rtol=1e-9, atol=1e-12)
    if features == 1:
        assert not e.conflict.any()


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_one_feature_has_nothing_to_fight(seed):
    model, x, baseline = network(1, seed)
    assert not CAFE(model).explain(x, baselines=baseline).conflict.any()


@settings(max_examples=25, deadline=None)
@given(counts, seeds, st.sampled_from([1e-7, 0.01, 1.0, 1e6]))
def test_sides_conflict_and_share_follow_from_the_digits_that_every_view_shows(features, seed, scale):
    model, x, baseline = network(features, seed)
    e = CAFE(lambda v: scale * model(v)).explain(x, baselines=baseline)
    for row in range(len(x)):
        shown = round_explanation(e[row])
        between = shown.between
        assert between is not None
        assert between.sides is not None
        r, p, q, y = map(Decimal, between.sides)
        assert (r, y) == (Decimal(shown.start), Decimal(shown.end))
        sizes = [min(abs(y - u), abs(u - r)) if (y - u) * (u - r) < 0 else Decimal(0) for u in (p, q)]
        assert Decimal(between.cancelled) == max(sizes)
        assert Decimal(between.left) == abs(y - r)
        whole = max(sizes) + abs(y - r)
        assert abs(between.share - float(max(sizes) / whole if whole else 0)) < 1e-12
        told = conflict_sentence(between)
        assert told in e.ledger(row)
        assert escape(told) in e[row]._repr_html_()
        assert told == ledger(e[row], 20)["conflict_sentence"]  # of the explorer
        assert told in describe_conflict(shown)  # of the plot
