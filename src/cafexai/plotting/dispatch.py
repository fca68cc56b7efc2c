"""Which picture a row has: bars for a table, maps for an image, words for a text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .._inputs.groups import is_index
from ..explanation import Explanation
from .looks import current
from .pixels import find_places

if TYPE_CHECKING:
    from .picture import Picture


def picture_of(explanation: Explanation, row: Any, most: int | None, order: str, options: dict[str, Any]) -> Picture:
    """One row as what it is; several rows if they are images. ``options`` are those of images."""
    kind = view(explanation)
    given = [name for name, value in options.items() if value is not None and value is not False]
    single = is_index(row) or isinstance(row, str)
    if kind == "image":
        from .images import OUTLINED, ImageOptions, image, images
        from .regions import Cut

        cut = Cut(*(options.pop(name) for name in ("cells", "regions", "superpixels")))
        options["view"] = options["view"] or "regions"
        how = ImageOptions(cut=cut, most=OUTLINED if most is None else most, **options)
        if not single:
            return images(explanation, [explanation.position(one) for one in row], how)
        place = explanation.position(row)
        return image(explanation, place, replace(how, beside=_row_of(how.beside, place, explanation)))
    if not single:
        raise ValueError(f"plot({row!r}): several rows are drawn of images only. Use plot.summary().")
    if "check" in given:
        raise ValueError(f"plot({row!r}, check=...): it is for images. Use cafe.check_by_changing(e, {row!r}).plot().")
    if given:
        raise ValueError(f"plot({row!r}, {given[0]}=...): only images are shown in this way, and this is a {kind}.")
    if current().ax is not None and kind == "text":
        raise ValueError(f"plot({row!r}, ax=...): only images and tables are drawn on given axes, and this is a text.")
    one = explanation[row]
    if kind == "text":
        from .text_plot import text

        return text(one)
    from .table_plot import bars

    return bars(one, 12 if most is None else most, order)


def view(explanation: Explanation) -> str:
    """One of "table", "image" (also a layer with places in the image) and "text"; groups are a table, unless they are words."""
    if explanation.features.tokens and explanation.names() == explanation.features.tokens[0]:
        return "text"
    return "table" if find_places(explanation) is None else "image"


def _row_of(beside: Any, row: int, explanation: Explanation) -> Any:
    """The same row of other scores, where all of them were given."""
    if beside is None:
        return None
    if isinstance(beside, Explanation):
        return beside[row] if len(beside) == len(explanation) else beside
    scores = torch.as_tensor(beside)
    every = explanation.parts(explanation.positive)[0].shape
    return scores[row] if scores.shape == every else scores
