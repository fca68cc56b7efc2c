"""Matrix products by groups, for mixtures of experts: where a token goes is a constant, and its expert is linear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import bilinear_map
from .conversion import as_dtype
from .registry import rule


def _by_groups(ends: list[int] | None, a: Tensor, b: Tensor) -> Tensor:
    """Products of the parts that end there: of rows of a, of columns of b, or of what both are summed over."""
    if ends is None:
        return torch.bmm(a, b)
    parts = list(zip([0, *ends], ends, strict=False))
    if a.ndim == 2 and b.ndim == 3:
        rows = [a[start:end] @ b[group] for group, (start, end) in enumerate(parts)]
        return torch.cat([*rows, a.new_zeros(a.shape[0] - ends[-1], b.shape[2])])
    if a.ndim == 3:
        columns = [a[group] @ b[:, start:end] for group, (start, end) in enumerate(parts)]
        return torch.cat([*columns, b.new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)
    return torch.stack([a[:, start:end] @ b[start:end] for start, end in parts])


@rule("_grouped_mm", "grouped_mm", in_place=False)
def grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Tokens sorted by expert times the matrix of each: ``offs`` says where the tokens of each expert end."""
    if bias is not None:
        raise UnsupportedOperation("bias= is not followed; add it behind the product")
    if isinstance(offs, Scores):
        raise UnsupportedOperation("its offsets depend on the input; count codes or places, which are constants")
    ends = None if offs is None else offs.tolist()
    aligned = isinstance(a, Scores) and a.ndim == 2 and b.ndim == 3
    result = bilinear_map(lambda u, v: _by_groups(ends, u, v), a, b, aligned)
    return result if out_dtype is None else as_dtype(result, out_dtype)
