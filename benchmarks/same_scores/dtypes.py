"""Models and numbers in a dtype and from a seed."""

from __future__ import annotations

import contextlib

import torch

DTYPES = (torch.float64, torch.float32)


def label(dtype):
    """float32 or float64."""
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def default_dtype(dtype):
    """New tensors have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def seeded(build, dtype, seed=0):
    """What a function without arguments makes, from a seed and in a dtype."""
    with default_dtype(dtype):
        torch.manual_seed(seed)
        return build()


def like(x):
    """Random numbers, or codes, in the shape of an input."""
    return torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, 1, 5)
