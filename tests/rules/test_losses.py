"""Losses beside the outputs of a model, and as what is explained."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE
from rules.test_reductions import equal as same_scores

LABELS = torch.tensor([2, 0, -100, 1])


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_a_loss_is_the_largest_softly_less_the_logit_of_the_label(netting):
    weight, x, start = torch.randn(5, 3), torch.randn(4, 5), torch.randn(4, 5)
    kept = (LABELS >= 0).double()

    def model(v):
        return F.cross_entropy(torch.tanh(v @ weight), LABELS, reduction="none")

    def written(v):
        logits = torch.tanh(v @ weight)
        return (logits.logsumexp(1) - logits.gather(1, LABELS.clamp_min(0)[:, None])[:, 0]) * kept

    for reference in (None, start):
        e, f = (CAFE(m, variant="published", netting=netting).explain(x, reference) for m in (model, written))
        for part in ("combined", "output", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
        assert (e.positive[2] == 0).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_of_one_row_with_many_labels(reduction):
    weight, x = torch.randn(5, 3), torch.randn(1, 4, 5)
    losses = {
        "cross_entropy": (lambda v: F.cross_entropy(torch.tanh(v[0] @ weight), LABELS, reduction=reduction)[None]),
        "nll_loss": (lambda v: F.nll_loss(torch.tanh(v[0] @ weight), LABELS, reduction=reduction)[None]),
    }
    for model in losses.values():
        e = CAFE(model).explain(x, torch.randn(1, 4, 5))
        assert e.completeness_error.abs().max() < 1e-12
        assert (e.combined[0, 2] == 0).all()


def test_what_cannot_be_followed_says_so():
    x = torch.randn(4, 3)
    for model in (
        lambda v: F.cross_entropy(torch.tanh(v), LABELS, label_smoothing=0.1, reduction="none"),
        lambda v: F.cross_entropy(torch.tanh(v), torch.softmax(torch.ones(4, 3), 1), reduction="none"),
        lambda v: F.nll_loss(torch.tanh(v), LABELS, torch.ones(3), reduction="none"),
    ):
        with pytest.raises(NotImplementedError, match=r"write it as logsumexp|multiply the logarithms"):
            CAFE(model).explain(x)


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss])
def test_losses_are_functions_of_a_difference(loss):
    layer, x, start = nn.Linear(4, 5).double(), torch.randn(3, 4).double(), torch.randn(3, 4).double()
    between = lambda v: loss(v, torch.zeros_like(v), reduction="none")  # noqa: E731
    apart = lambda v: torch.tanh(layer(v)) - v[:, :1]  # noqa: E731

    def one(v, reduction):
        return torch.stack([loss(torch.tanh(layer(row)), row[:1].expand(5), reduction=reduction) for row in v])

    same_scores(lambda v: one(v, "mean"), lambda v: between(apart(v)).mean(1), x, (None, start))
    same_scores(lambda v: one(v, "sum"), lambda v: between(apart(v)).sum(1), x, (None, start))
