"""What a file of scores holds: tensors and texts by name."""

from __future__ import annotations

import torch
from torch import Tensor

TENSORS = """
    positive negative combined bias_by_layer bias bias_positive bias_negative output baseline_output completeness_error
    output_error s_conf conflict_pairs target baselines
""".split()
TEXTS = ("frozen", "notes", "settings")


def summary(entries):
    """How many entries there are, and how many of them are errors."""
    tensors = sum(isinstance(value, Tensor) for value in entries.values())
    errors = sum(name.endswith("/error") for name in entries)
    return f"{len(entries)} entries: {tensors} tensors, {len(entries) - tensors} texts, of these {errors} errors"


def packed(entries):
    """The same with the tensors of a dtype in one storage, which files hold once."""
    result = dict(entries)
    for dtype in {value.dtype for value in entries.values() if isinstance(value, Tensor)}:
        tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor) and value.dtype == dtype}
        whole = torch.cat([value.flatten() for value in tensors.values()])
        pieces = whole.split([value.numel() for value in tensors.values()])
        result.update((name, piece.view(tensors[name].shape)) for name, piece in zip(tensors, pieces, strict=True))
    return result
