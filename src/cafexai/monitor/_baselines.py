"""The baselines of a monitor as plain values, so that a file holds all that scores need but the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._extras import needs
from .._inputs.baselines import TYPICAL, ZERO, typical_row
from ..cafe import CAFE


def settle_baselines(cafe: CAFE, baselines: Any) -> Any:
    """Words such as "median" become the row that they stand for; the background is no longer needed then."""
    if isinstance(baselines, str) and baselines in TYPICAL and cafe.background is not None:
        baselines = typical_row(baselines, cafe.background, cafe.model, cafe.schema, cafe.feature_names, "Monitor.fit")
    try:
        return decode_baselines(encode_baselines(baselines))
    except TypeError:
        return baselines  # it can be used, and not be saved


def uses_background(cafe: CAFE, baselines: Any) -> bool:
    """Whether rows are compared with rows of the background."""
    own = cafe.schema is not None or hasattr(type(cafe.model), "from_raw")
    words = isinstance(baselines, str) and baselines != ZERO
    return cafe.background is not None and (own if baselines is None else words)


def encode_baselines(baselines: Any) -> Any:
    """What JSON can hold.

    Raises:
        TypeError: It is a function, or rows to draw from.
    """
    if baselines is None or isinstance(baselines, (str, int, float)):
        return baselines
    if isinstance(baselines, tuple):
        return {"tuple": [encode_baselines(one) for one in baselines]}
    if isinstance(baselines, Tensor):
        return {"tensor": baselines.detach().cpu().tolist(), "dtype": str(baselines.dtype).removeprefix("torch.")}
    if isinstance(baselines, np.ndarray) and baselines.dtype != object:
        return {"array": baselines.tolist(), "dtype": str(baselines.dtype)}
    if isinstance(baselines, list):
        return {"list": np.asarray(baselines).tolist()}
    if hasattr(baselines, "to_frame") and hasattr(baselines, "index"):
        baselines = baselines.to_frame().T
    if hasattr(baselines, "columns"):
        cells = {str(name): [_plain(cell) for cell in baselines[name]] for name in baselines.columns}
        return {"frame": cells}
    raise TypeError(f"baselines of type {type(baselines).__name__}")


def decode_baselines(encoded: Any) -> Any:
    """What ``encode_baselines`` made, as ``explain`` takes it."""
    if not isinstance(encoded, Mapping):
        return encoded
    if "tuple" in encoded:
        return tuple(map(decode_baselines, encoded["tuple"]))
    if "tensor" in encoded:
        return torch.tensor(encoded["tensor"], dtype=getattr(torch, encoded["dtype"]))
    if "array" in encoded:
        return np.array(encoded["array"], dtype=encoded["dtype"])
    return encoded["list"] if "list" in encoded else needs("pandas", "tabular").DataFrame(encoded["frame"])


def _plain(cell: Any) -> Any:
    """A cell of a frame as JSON has it."""
    cell = cell.item() if hasattr(cell, "item") else cell
    return cell if cell is None or isinstance(cell, (str, int, float, bool)) else str(cell)
