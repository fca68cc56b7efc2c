"""Triangular systems whose matrix depends on the input: the change of the solution is split in halves, as that of a product."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import naive
from cafexai import CAFE, UnsupportedOperation
from engine.test_composed import pair, same, traced
from rules.test_reductions import equal


def lower(a):
    return a.tril(-1) + torch.eye(3)


@pytest.mark.parametrize("scored_right", [True, False])
def test_the_matrix_has_a_naive_twin(scored_right):
    a, b = pair(3, 3), pair(3, 2)
    right = b if scored_right else naive.Pair(b.value, torch.zeros(3, 2), torch.zeros(3, 2))
    found = traced(
        lambda m, v: torch.linalg.solve_triangular(m, v if scored_right else b.value, upper=False, unitriangular=True),
        a,
        b,
        rows=1,
    )
    start = torch.linalg.inv(lower(a.reference)) @ right.reference
    end = torch.linalg.inv(lower(a.value)) @ right.value
    inverse, middle = torch.linalg.inv((lower(a.reference) + lower(a.value)) / 2), (start + end) / 2
    weights = [naive.matrices(lambda m: -inverse @ m.tril(-1) @ middle, [a.value])[0]]
    inputs = [a]
    if scored_right:
        weights.append(naive.matrices(lambda v: inverse @ v, [b.value])[0])
        inputs.append(b)
    up, down = [naive.clip(w) for w in weights], [naive.clip(-w) for w in weights]
    twin = naive.Twin(start, torch.zeros_like(start), up, down, down, up).pair(inputs)
    torch.testing.assert_close(twin.value, end)
    same(found, twin)


def test_of_two_rows_it_is_a_product_by_all_carriers():
    """x1 = b1, x2 = b2 - a x1."""
    layer = nn.Linear(4, 3)

    def solved(v):
        a, b = layer(v)[:, :1], layer(v)[:, 1:]
        zero = torch.zeros_like(a)
        matrix = torch.stack([torch.cat([zero, zero], 1), torch.cat([a, zero], 1)], 1)
        return torch.tanh(torch.linalg.solve_triangular(matrix, b[..., None], upper=False, unitriangular=True)[:, 1, 0])

    def written(v):
        h = layer(v)
        return torch.tanh(h[:, 2] - h[:, 0] * h[:, 1])

    x, start = torch.randn(3, 4), torch.randn(3, 4)
    for reference in (None, start):
        e, f = (CAFE.published(model).explain(x, reference) for model in (solved, written))
        torch.testing.assert_close(e.positive, f.positive)
        torch.testing.assert_close(e.bias, f.bias)
        for netting in ("feature", "unit"):
            e = CAFE(solved, variant="published", netting=netting).explain(x, reference)
            assert e.completeness_error.abs().max() < 1e-12
            one = CAFE(solved, variant="published", netting=netting).explain(
                x[1:2], None if reference is None else reference[1:2]
            )
            torch.testing.assert_close(one.positive[0], e.positive[1])
    equal(solved, lambda v: solved(v), x, (None, start))


def test_a_matrix_without_an_inverse():
    x = torch.randn(2, 4) + 3

    def solved(v, freeze=False):
        matrix = torch.diag_embed(v.detach() if freeze else v)
        return torch.linalg.solve_triangular(matrix, v[..., None], upper=False).sum((1, 2))

    with pytest.raises(UnsupportedOperation, match="detach"):
        CAFE(solved).explain(x)
    assert CAFE(lambda v: solved(v, True)).explain(x).completeness_error.abs().max() < 1e-12
    assert CAFE(solved).explain(x, torch.ones(2, 4)).completeness_error.abs().max() < 1e-12


def test_exponentials_behind_a_mask_are_nothing():
    layer, mask = nn.Linear(4, 3), torch.tensor([True, False, False])
    x, start = torch.randn(3, 4), torch.randn(3, 4)
    equal(
        lambda v: layer(v).masked_fill(mask, -torch.inf).exp() @ torch.arange(3.0),
        lambda v: layer(v).exp().masked_fill(mask, 0) @ torch.arange(3.0),
        x,
        (None, start),
    )
