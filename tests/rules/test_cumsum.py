"""Differences in which a value would push against itself: of running sums, and from the larger of two, by all carriers."""

from __future__ import annotations

import pytest
import torch

from architectures import adds_up
from cafexai import CAFE

WAYS = [{"netting": "path"}, {"netting": "feature"}, {"netting": "unit"}, {"netting": "unit", "flows": "mean"}, {}]
DIFFERENCES = {
    "pairs": lambda s: s[:, :, None] - s[:, None],
    "left": lambda s: s[:, -1:] - s,
    "moved": lambda s: s.view(s.shape[0], 2, 3).mT[:, :, 1] - s.flip(1).contiguous()[:, 3:],
    "with zeros": lambda s: s.unsqueeze(2).expand(-1, -1, 6).tril() - s[:, None],
}


def between(difference, width):
    """The matrix of a difference of running sums, from its definition: a row for each element of the result."""
    single = torch.eye(width).cumsum(1)  # what each element brings to each place
    return torch.stack([difference(single[k : k + 1]).flatten() for k in range(width)], 1)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_of_running_sums_is_the_sum_of_what_lies_between(name, way):
    difference, weight = DIFFERENCES[name], torch.randn(5, 6)
    matrix = between(difference, 6)
    head = torch.randn(len(matrix), 2)
    x, start = torch.randn(3, 5), torch.randn(3, 5)
    start[:, 2] = x[:, 2]

    def model(v):
        return torch.exp(difference(torch.tanh(v @ weight).cumsum(1)).flatten(1)) @ head

    def written(v):
        return torch.exp(torch.tanh(v @ weight) @ matrix.T) @ head

    for reference in (None, start):
        e, f = (CAFE(m, variant="published", **way).explain(x, reference, 1) for m in (model, written))
        for part in ("positive", "negative", "combined", "bias", "output", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
        row = CAFE(model, variant="published", **way).explain(x[1:2], None if reference is None else reference[1:2], 1)
        torch.testing.assert_close(row.positive[0], e.positive[1])
    assert (e.positive[:, 2] == 0).all()
    assert (e.negative[:, 2] == 0).all()


def test_a_decay_that_never_grows_has_scores_of_its_size():
    """The exponent is never above 0, but each of the sums in it changes by about 100."""
    x, start = torch.rand(2, 64) * 8, torch.rand(2, 64) * 8

    def model(v):
        s = (-v).cumsum(1)
        return torch.tanh(torch.exp(s[:, -1:] - s).sum(1, keepdim=True))

    for dtype in (torch.float64, torch.float32):
        e = CAFE(model, variant="published", netting="unit").explain(x.to(dtype), start.to(dtype))
        adds_up(e)
        assert e.positive.sum(1).max() < 1


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_sums_of_other_lines_are_subtracted_as_they_are(netting):
    x, head = torch.randn(3, 4), torch.randn(2, 1)

    def model(v, between):
        both = torch.tanh(v).view(-1, 2, 2)
        s = both.cumsum(2)
        return torch.exp(s[:, 0] - s[:, 1] if between else s[:, 0] + -1.0 * s[:, 1]) @ head

    e, f = (CAFE(lambda v, b=b: model(v, b), variant="published", netting=netting).explain(x) for b in (True, False))
    torch.testing.assert_close(e.positive, f.positive)


LARGER = {  # the exponents of a memory that fades, as loops write them, and what they are
    "one": (lambda a, b: a - torch.maximum(a, b), lambda a, b: -torch.relu(b - a)),
    "other": (lambda a, b: b - torch.max(a, b), lambda a, b: -torch.relu(a - b)),
    "raised": (lambda a, b: a + 0.5 - torch.maximum(a + 0.5, b), lambda a, b: -torch.relu(b - (a + 0.5))),
    "constant": (lambda a, b: a - torch.maximum(a, torch.tensor(0.2)) + b, lambda a, b: a.sub(0.2).clamp_max(0) + b),
    "far constant": (lambda a, b: a - torch.maximum(torch.tensor(-1e38), a) + b, lambda a, b: a * 0 + b),
}


@pytest.mark.parametrize("way", WAYS[1:4], ids=str)
@pytest.mark.parametrize("name", LARGER)
def test_a_value_less_the_larger_of_it_and_another(name, way):
    weight, head = torch.randn(4, 6), torch.randn(3, 2)
    x, start = torch.randn(3, 4), torch.randn(3, 4)
    start[:, 2] = x[:, 2]

    def model(exponent):
        def forward(v):
            h = torch.tanh(v @ weight)
            return torch.exp(exponent(h[:, :3], h[:, 3:])) @ head

        return forward

    for reference in (None, start):
        e, f = (
            CAFE(model(one), variant="published", biases="reference", **way).explain(x, reference, 1) for one in LARGER[name]
        )
        for part in ("positive", "negative", "combined", "output", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
    assert (e.positive[:, 2] == 0).all()


def test_another_value_less_the_larger_of_two_is_a_difference():
    x = torch.randn(3, 3)
    e = CAFE(lambda v: v[:, 0] + 0.5 - torch.maximum(v[:, 0] + 0.25, v[:, 1])).explain(x)
    f = CAFE(lambda v: v[:, 0] + 0.5 + torch.minimum(-v[:, 0] - 0.25, -v[:, 1])).explain(x)
    torch.testing.assert_close(e.combined, f.combined)
    torch.testing.assert_close(e.positive, f.positive)
