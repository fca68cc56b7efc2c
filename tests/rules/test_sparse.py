"""Sparse softmaxes, which sort and compare: frozen as a whole, or open along their secant, as a softmax is."""

from __future__ import annotations

import pytest
import torch

from cafexai import CAFE, Variant


def sparsemax(z):
    ordered, _ = torch.sort(z, dim=-1, descending=True)
    sums, places = ordered.cumsum(-1) - 1, torch.arange(1, z.shape[-1] + 1)
    size = (places * ordered > sums).sum(-1, keepdim=True)
    return torch.clamp(z - sums.gather(-1, size - 1) / size, min=0)


def entmax(z):
    z = z / 2
    ordered, _ = torch.sort(z, dim=-1, descending=True)
    places = torch.arange(1, z.shape[-1] + 1)
    mean = ordered.cumsum(-1) / places
    spread = places * ((ordered**2).cumsum(-1) / places - mean**2)
    threshold = mean - torch.sqrt(torch.clamp((1 - spread) / places, min=0))
    size = (threshold <= ordered).sum(-1, keepdim=True)
    return torch.clamp(z - threshold.gather(-1, size - 1), min=0) ** 2


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
@pytest.mark.parametrize("weigh", [sparsemax, entmax])
def test_weights_are_constants_at_the_input(weigh, netting):
    matrix, head = torch.randn(4, 4) * 2, torch.randn(4, 2)
    x, start = torch.randn(3, 4), torch.randn(3, 4)
    start[:, 2] = x[:, 2]
    weights = weigh(x @ matrix)
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    for reference in (None, start):
        e = CAFE(lambda v: torch.tanh(weigh(v @ matrix) * v) @ head, variant="published", netting=netting).explain(
            x, reference, 1
        )
        f = CAFE(lambda v: torch.tanh(weights * v) @ head, variant="published", netting=netting).explain(x, reference, 1)
        for part in ("positive", "negative", "bias", "baseline_output", "output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
        assert any(line.startswith("sparse softmax") for line in e.frozen)


def test_as_the_output_its_argument_is_explained():
    matrix, x = torch.randn(4, 3), torch.randn(2, 4)
    e = CAFE(lambda v: sparsemax(torch.tanh(v @ matrix))).explain(x, target=0)
    assert e.completeness_error.abs().max() < 1e-12
    assert any("left out" in note for note in e.notes)


def test_other_ramps_behind_a_sort_are_followed():
    x = torch.randn(3, 4)
    e = CAFE(lambda v: torch.clamp(v.sort(1).values, min=0).sum(1)).explain(x)
    assert not any("sparse" in line for line in e.frozen)
    torch.testing.assert_close(e.combined, x.clamp_min(0))


def by_bisection(z, power):
    """max(z - t, 0) ** power with the sum 1, t being found by halving; and z - t."""
    low, high = z.max() - 1, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ((z - middle).clamp_min(0) ** power).sum() > 1 else (low, middle)
    return (z - low).clamp_min(0) ** power, z - low


def naive(z, start, power, slope):
    """What flows from a slope at the weights to the logits: s_i (slope_i - sum_j s_j slope_j / sum_j s_j) (z - start)_i."""
    (p, u), (r, v) = by_bisection(z, power), by_bisection(start, power)
    s = torch.tensor(
        [0.0 if a <= 0 and b <= 0 else float(one - two) / float(a - b) for one, two, a, b in zip(p, r, u, v, strict=True)]
    )
    return s.to(z) * (slope - (s.to(z) * slope).sum() / s.sum().to(z)) * (z - start)


@pytest.mark.parametrize("netting", ["unit", "feature"])
@pytest.mark.parametrize(("weigh", "power", "scale"), [(sparsemax, 1, 1), (entmax, 2, 0.5)], ids=["sparsemax", "entmax"])
def test_open_ones_go_along_their_secant(weigh, power, scale, netting):
    torch.manual_seed(2)
    slope, x, start = torch.randn(6), torch.randn(4, 6), torch.randn(4, 6)
    cafe = CAFE(lambda v: (weigh(v) * slope).sum(1), variant=Variant(netting=netting))
    e, back = cafe.explain(x, start), cafe.explain(start, x)
    expected = torch.stack([naive(scale * a, scale * b, power, slope) for a, b in zip(x, start, strict=True)])
    torch.testing.assert_close(e.combined, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(e.combined, -back.combined)
    torch.testing.assert_close(e.baseline_output, (weigh(start) * slope).sum(1))
    assert not any("softmax" in line for line in e.frozen)
    moved = CAFE(lambda v: (weigh(v + 3) * slope).sum(1)).explain(x, start)
    torch.testing.assert_close(moved.combined, e.combined)
    assert not cafe.explain(x, x).combined.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weigh", [sparsemax, entmax])
def test_open_ones_inside_a_model_and_with_masked_keys(weigh, dtype):
    torch.manual_seed(0)
    matrix, head = (2 * torch.randn(4, 4)).to(dtype), torch.randn(4, 2).to(dtype)
    x, start = torch.randn(2, 3, 4).to(dtype)
    hidden = torch.tensor([False, True, False, False])

    def model(v):
        return torch.tanh(weigh((v @ matrix).masked_fill(hidden, torch.finfo(dtype).min)) * v) @ head

    e = CAFE(model).explain(x, start, 1)
    torch.testing.assert_close(e.combined.sum(1), (model(x) - model(start))[:, 1])
    assert not any("softmax" in line for line in e.frozen)


def test_tabnets_own_are_open():
    package = pytest.importorskip("pytorch_tabnet.sparsemax", reason="pytorch-tabnet is not installed")
    layer, x, start = torch.nn.Linear(4, 5), torch.randn(3, 4), torch.randn(3, 4)
    slope = torch.randn(5)
    for weigh in (package.Sparsemax(-1), package.Entmax15(-1)):

        def model(v, weigh=weigh):
            return (weigh(layer(v)) * slope).sum(1)

        e = CAFE(model).explain(x, start)
        torch.testing.assert_close(e.combined.sum(1), (model(x) - model(start)).detach())
        assert not any("softmax" in line for line in e.frozen)
