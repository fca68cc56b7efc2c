"""Complex values and Fourier transforms: against the same written with real numbers, for all carriers, and naive twins."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import naive
from cafexai import CAFE, UnsupportedOperation
from engine.test_composed import pair, same, traced
from rules.test_reductions import equal

LAYER = nn.Linear(4, 6).double()
X, START = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
START[:, 1] = X[:, 1]
K = torch.linspace(-1, 2, 6, dtype=torch.float64)
ANGLES = 2 * math.pi * torch.arange(6, dtype=torch.float64)[:, None] * torch.arange(6, dtype=torch.float64) / 6
COS, SIN = ANGLES.cos(), -ANGLES.sin()
TURNS = torch.polar(torch.ones(3, dtype=torch.float64), torch.arange(3, dtype=torch.float64))


def turned(h):
    """Pairs of neighbours turned by an angle: rotary positions."""
    a, b = h.view(-1, 3, 2).unbind(-1)
    return torch.stack([a * TURNS.real - b * TURNS.imag, a * TURNS.imag + b * TURNS.real], -1).flatten(1)


def whole(h):  # both parts of the transform as one linear layer
    return (h @ torch.cat([COS, SIN], 1)).chunk(2, 1)


def into_zeros(h):
    out = torch.zeros(len(h), 6, dtype=torch.complex128)
    out[:, :2] = torch.fft.fft(h)[:, :2] * (1 + 2j)
    return (out.real + 3 * out.imag).sum(1)


def into_zeros_by_hand(h):
    re, im = (part[:, :2] for part in whole(h))
    return (torch.cat([re - 2 * im, torch.zeros(len(h), 4)], 1) + 3 * torch.cat([2 * re + im, torch.zeros(len(h), 4)], 1)).sum(
        1
    )


WRITTEN_OUT = {
    "fft": (lambda h: torch.tanh(torch.fft.fft(h).real) @ K, lambda h: torch.tanh(whole(h)[0]) @ K),
    "imaginary": (lambda h: torch.tanh(torch.fft.fft(h).imag) @ K, lambda h: torch.tanh(whole(h)[1]) @ K),
    "size": (lambda h: torch.fft.rfft(h).abs() @ K[:4], lambda h: torch.linalg.vector_norm(
        torch.stack([part[:, :4] for part in whole(h)], -1), dim=-1) @ K[:4]),
    "rotary": (
        lambda h: torch.tanh(torch.view_as_real(torch.view_as_complex(h.view(-1, 3, 2)) * TURNS).flatten(1)) @ K,
        lambda h: torch.tanh(turned(h)) @ K,
    ),
    "moves": (
        lambda h: torch.cat([torch.fft.fft(h)[:, 1:3], torch.fft.fft(h)[:, :1].conj()], 1).imag.sum(1),
        lambda h: torch.cat([whole(h)[1][:, 1:3], -1 * whole(h)[1][:, :1]], 1).sum(1),
    ),
    "writes": (into_zeros, into_zeros_by_hand),
    "products": (
        lambda h: (torch.fft.fft(h) * torch.fft.fft(torch.tanh(h)).conj()).real @ K,
        lambda h: (whole(h)[0] * whole(torch.tanh(h))[0] - whole(h)[1] * (-whole(torch.tanh(h))[1])) @ K,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_the_same_as_with_real_numbers(name):
    one, other = WRITTEN_OUT[name]
    equal(lambda v: one(LAYER(v)), lambda v: other(LAYER(v)), X, (None, START))


TRANSFORMS = {
    "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "ortho": lambda x: torch.view_as_real(torch.fft.fft(x, norm="ortho")),
    "longer": lambda x: torch.view_as_real(torch.fft.rfft(x, n=7)),
    "first dimension": lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)),
    "ihfft": lambda x: torch.view_as_real(torch.fft.ihfft(x).resolve_conj()),
    "irfft": lambda x: torch.fft.irfft(torch.view_as_complex(x), n=3),
    "hfft": lambda x: torch.fft.hfft(torch.view_as_complex(x)),
    "ifft": lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x))),
    "shift": lambda x: torch.fft.ifftshift(torch.fft.fftshift(x, 1), (0, 1)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_a_linear_map(name):
    x = pair(2, 5, 2)
    same(traced(TRANSFORMS[name], x, rows=1), naive.lin(TRANSFORMS[name], x))


SEVERAL = {
    "fft2": (lambda h: torch.fft.fft2(h).real, lambda h: torch.fft.fft(torch.fft.fft(h, dim=-1), dim=-2).real),
    "fftn": (lambda h: torch.fft.fftn(h, dim=(1, 2)).imag, lambda h: torch.fft.fft(torch.fft.fft(h, dim=2), dim=1).imag),
    "rfftn": (lambda h: torch.fft.rfftn(h, s=(4, 3)).real, lambda h: torch.fft.fft(torch.fft.rfft(h, 3, 2), 4, 1).real),
    "irfft2": (
        lambda h: torch.fft.irfft2(torch.fft.rfft2(h), s=(2, 3)),
        lambda h: torch.fft.irfft(torch.fft.ifft(torch.fft.fft(torch.fft.rfft(h, dim=2), dim=1), 2, 1), 3, 2),
    ),
    "ifftn": (lambda h: torch.fft.ifftn(torch.fft.fft(h)).real, lambda h: by_all(torch.fft.ifft, torch.fft.fft(h)).real),
}


def by_all(transform, z):
    for dim in reversed(range(z.ndim)):
        z = transform(z, dim=dim)
    return z


@pytest.mark.parametrize("name", SEVERAL)
def test_transforms_of_several_dimensions_are_one_after_the_other(name):
    one, other = SEVERAL[name]
    plain = torch.randn(1, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(one(plain), other(plain))
    row, start = X[:1], START[:1]

    def weighed(transform):
        shares = torch.linspace(-1, 2, transform(plain).numel(), dtype=torch.float64)
        return lambda v: torch.tanh(transform(LAYER(v).view(1, 2, 3))).flatten(1) @ shares

    equal(weighed(one), weighed(other), row, (None, start))


def test_a_spectral_layer_in_both_precisions():
    """Transform, complex weights for some frequencies, transform back: Fourier neural operators."""
    torch.manual_seed(0)
    weight = torch.randn(2, 3, 3, dtype=torch.complex128)

    def layer(x):
        modes = torch.fft.rfft(x)
        out = torch.zeros(len(x), 3, modes.shape[-1], dtype=modes.dtype)
        out[:, :, :3] = torch.einsum("bix,iox->box", modes[:, :, :3], weight.to(modes.dtype))
        return torch.relu(torch.fft.irfft(out, n=x.shape[-1])).sum((1, 2))

    x, start = torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    start[:, 1, :2] = x[:, 1, :2]
    for netting in ("path", "feature", "unit"):
        for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            e = CAFE(layer, variant="published", netting=netting).explain(x.to(dtype), start.to(dtype))
            assert (e.completeness_error.abs() <= limit * (1 + e.output.abs())).all()
            assert (e.positive[:, 1, :2] == 0).all()
            row = CAFE(layer, variant="published", netting=netting).explain(x[1:2].to(dtype), start[1:2].to(dtype))
            torch.testing.assert_close(row.positive[0], e.positive[1], rtol=1e-4, atol=1e-5)


def test_what_is_not_followed_has_a_way_out():
    with pytest.raises(UnsupportedOperation, match=r"take \.real or \.abs"):
        CAFE(lambda v: torch.fft.fft(v).angle().sum(1)).explain(X)
    with pytest.raises(UnsupportedOperation, match=r"take \.real"):
        CAFE(lambda v: torch.fft.fft(v).to(torch.float64).sum(1)).explain(X)
    with pytest.raises(UnsupportedOperation, match="conjugate"):
        CAFE(lambda v: (torch.fft.fft(v) / torch.fft.fft(v + 1)).real.sum(1)).explain(X)
    with pytest.raises(ValueError, match="complex"):
        CAFE(lambda v: torch.fft.fft(v)[:, :2]).explain(X, target=0)
    CAFE(lambda v: torch.fft.fft(v)[:, :2]).explain(X, target=1, output=lambda out: out.real)
    CAFE(lambda v: torch.fft.fft(v)[:, :2]).explain(X, target=1, output="imag")
