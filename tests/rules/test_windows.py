"""The windows of max pools: every element is where its definition says, and the way back is the transpose."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE
from cafexai.rules.selection import _Windows

SIZES = st.tuples(st.integers(4, 7), st.integers(4, 7))


def naive_windows(value, out, kernel, stride, padding, dilation):
    """Element by element; what lies outside is 0."""
    height, width = value.shape[-2:]
    windows = value.new_zeros(*value.shape[:-2], *out, kernel[0] * kernel[1])
    for i, j in itertools.product(*map(range, out)):
        for number, (u, v) in enumerate(itertools.product(*map(range, kernel))):
            y, x = i * stride[0] - padding[0] + u * dilation[0], j * stride[1] - padding[1] + v * dilation[1]
            if 0 <= y < height and 0 <= x < width:
                windows[..., i, j, number] = value[..., y, x]
    return windows


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(2, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2), st.booleans(), st.integers(0, 99))
def test_windows_and_their_transpose(size, kernel, stride, padding, dilation, ceil_mode, seed):
    if any(length + 2 * padding < dilation * (kernel - 1) + 1 for length in size):
        return
    torch.manual_seed(seed)
    value = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    out = F.max_pool2d(value, kernel, stride, padding, dilation, ceil_mode).shape[-2:]
    given = [(kernel, kernel), (stride, stride), (padding, padding), (dilation, dilation)]
    windows, expected = _Windows(size, out, *given)(value), naive_windows(value.detach(), out, *given)
    assert torch.equal(windows.detach(), expected)
    upstream = torch.randn_like(expected)
    (found,) = torch.autograd.grad(windows, value, upstream)
    again = value.detach().requires_grad_()
    (plain,) = torch.autograd.grad(naive_windows_with_graph(again, out, *given), again, upstream)
    assert torch.allclose(found, plain, rtol=1e-14, atol=1e-14)


def naive_windows_with_graph(value, *given):
    """The same windows as a sum over elements, which torch can differentiate."""
    places = torch.arange(1, value[0, 0].numel() + 1).view(value.shape[-2:]).double()
    index = naive_windows(places, *given).long()
    padded = torch.cat([value.new_zeros(*value.shape[:2], 1), value.flatten(2)], -1)
    return padded[..., index]


def test_one_row_for_all_has_the_windows_of_each():
    torch.manual_seed(0)
    one = torch.randn(1, 3, 6, 6)
    cut = _Windows((6, 6), (3, 3), (2, 2), (2, 2), (0, 0), (1, 1))
    found = cut(one.expand(5, -1, -1, -1))
    assert found.stride(0) == 0
    assert torch.equal(found, cut(one.repeat(5, 1, 1, 1)))


@pytest.mark.parametrize("padding", [0, 1])
def test_one_reference_for_all_rows_gives_what_each_of_its_own_gives(padding):
    torch.manual_seed(padding)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2, padding=padding), nn.Flatten(), nn.Linear(4 * (3 + padding) ** 2, 2)
    model, x, start = nn.Sequential(*layers).double().eval(), torch.randn(4, 2, 8, 8).double(), torch.randn(1, 2, 8, 8).double()
    with torch.no_grad():
        layers[0].bias -= 0.5  # closed units, of which the largest are equal
    shared = CAFE(model).explain(x, start, target=0, conflict="net")
    own = CAFE(model).explain(x, start.repeat(4, 1, 1, 1), target=0, conflict="net")
    for field in ("positive", "negative", "combined"):
        assert torch.allclose(getattr(shared, field), getattr(own, field), rtol=1e-12, atol=1e-14)
