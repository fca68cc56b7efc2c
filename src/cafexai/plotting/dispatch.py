"""Which picture a row has: bars for a table, maps for an image, words for a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..explanation import Explanation

if TYPE_CHECKING:
    from .picture import Picture


def picture_of(explanation: Explanation, row: int | str, most: int, beside: Any, order: str) -> Picture:
    """One row as what it is."""
    one, kind = explanation[row], view(explanation)
    if kind == "image":
        from .images import image

        return image(one, _row_of(beside, explanation.position(row), explanation))
    if beside is not None:
        raise ValueError(f"plot({row}, beside=...): only images are shown beside other scores, and this is a {kind}.")
    if kind == "text":
        from .text_plot import text

        return text(one)
    from .table_plot import bars

    return bars(one, most, order)


def view(explanation: Explanation) -> str:
    """One of "table", "image" and "text"; groups of features are a table, unless they are words."""
    if explanation.features.tokens and explanation.names() == explanation.features.tokens[0]:
        return "text"
    return "table" if explanation.grouped or explanation.features.tokens is not None else explanation.kind


def _row_of(beside: Any, row: int, explanation: Explanation) -> Any:
    """The same row of other scores, where all of them were given."""
    if beside is None:
        return None
    if isinstance(beside, Explanation):
        return beside[row] if len(beside) == len(explanation) else beside
    scores = torch.as_tensor(beside)
    every = explanation.parts(explanation.positive)[0].shape
    return scores[row] if scores.shape == every else scores
