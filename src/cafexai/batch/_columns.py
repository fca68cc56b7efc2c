"""The columns of the result: scores of all features side by side, or of the strongest as lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..explanation import Explanation

COMPRESSIONS = ("snappy", "zstd", "none")
SCORES = {"net": ("net",), "signed": ("positive", "negative"), "all": ("positive", "negative", "net")}


@dataclass(frozen=True)
class Form:
    """Which scores are written, if ``top`` is not None of the strongest features of each row only, and in which files."""

    scores: str = "all"
    top: int | None = None
    partition_by: tuple[str, ...] = ()
    compression: str = "snappy"

    def __post_init__(self) -> None:
        if self.scores not in SCORES:
            raise ValueError(f"score(..., scores={self.scores!r}): unknown. Allowed values: {', '.join(map(repr, SCORES))}.")
        if self.compression not in COMPRESSIONS:
            allowed = ", ".join(map(repr, COMPRESSIONS))
            raise ValueError(f"score(..., compression={self.compression!r}): unknown. Allowed values: {allowed}.")
        if self.top is not None and (type(self.top) is not int or self.top < 1):
            raise ValueError(f"score(..., top={self.top!r}): give the number of features, 1 or more.")


def fields_of(arrow: Any) -> list[Any]:
    """Where a row comes from."""
    return [arrow.field("source_file", arrow.string()), arrow.field("source_row", arrow.int64())]


def columns_of(arrow: Any, explanation: Explanation, form: Form) -> tuple[list[Any], list[Any]]:
    """Fields and arrays of the scores of some rows."""
    named: dict[str, Any] = {}
    flat = {
        "positive": explanation.flat(explanation.positive),
        "negative": explanation.flat(explanation.negative),
        "net": explanation.flat(explanation.combined),
    }
    names = explanation.names()
    if form.top is None:
        for word in SCORES[form.scores]:
            by_feature = np.ascontiguousarray(_array(flat[word]).T)
            named |= {f"{word}_{name}": arrow.array(by_feature[place]) for place, name in enumerate(names)}
    else:
        named |= _strongest(arrow, flat, names, form.top, SCORES[form.scores])
    single = {
        "bias_positive": explanation.bias_positive,
        "bias_negative": explanation.bias_negative,
        "bias": explanation.bias,
        "conflict": explanation.conflict,
        "conflict_share": explanation.conflict_share,
        "s_conf": explanation.s_conf,
        "baseline_output": explanation.baseline_output,
        "output": explanation.output,
        "probability": explanation.probability,
    }
    named |= {name: arrow.array(_array(value)) for name, value in single.items() if value is not None}
    named["conflict_kind"] = arrow.array([explanation.conflict_kind] * len(explanation), arrow.string())
    named["target"] = _target(arrow, explanation)
    return [arrow.field(name, column.type) for name, column in named.items()], list(named.values())


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _strongest(arrow: Any, flat: dict[str, Tensor], names: tuple[str, ...], top: int, words: tuple[str, ...]) -> dict[str, Any]:
    """The features with the largest net scores, up or down, in the order of these."""
    most = min(top, flat["net"].shape[1])
    order = flat["net"].abs().sort(dim=1, descending=True, stable=True).indices[:, :most]
    ends = arrow.array(np.arange(0, order.numel() + 1, most, dtype=np.int32))

    def lists(values: Any) -> Any:
        return arrow.ListArray.from_arrays(ends, values)

    called = arrow.array(names, arrow.string()).take(arrow.array(_array(order.reshape(-1))))
    picked = {f"top_{word}": lists(arrow.array(_array(flat[word].gather(1, order).reshape(-1)))) for word in words}
    return {"top_features": lists(called), **picked}


def _target(arrow: Any, explanation: Explanation) -> Any:
    """The class by name, else its place; a list of places for outputs of more dimensions."""
    places = torch.as_tensor(explanation.target).reshape(len(explanation), -1).to(torch.int32)
    if places.shape[1] > 1:
        flat = arrow.array(_array(places.reshape(-1)))
        ends = arrow.array(np.arange(0, places.numel() + 1, places.shape[1], dtype=np.int32))
        return arrow.ListArray.from_arrays(ends, flat)
    single = _array(places[:, 0]) if places.shape[1] else np.zeros(len(explanation), dtype=np.int32)
    if explanation.class_names:
        return arrow.array(explanation.class_names, arrow.string()).take(arrow.array(single))
    return arrow.array(single)
