"""Sparse softmaxes, which sort and compare: frozen as a whole, as a softmax is."""

from __future__ import annotations

import pytest
import torch

from cafexai import CAFE


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
