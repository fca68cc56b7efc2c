"""The scores of a generated text as a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._extras import needs

if TYPE_CHECKING:
    import pandas

    from ..explanation.generation import Generation


def generation_table(generation: Generation) -> pandas.DataFrame:
    """One line per generated token and source before it."""
    e = generation.explanation
    step, place = generation.seen.nonzero().unbind(1)
    chance = None if e.probability is None else e.probability.cpu()
    columns: dict[str, Any] = {
        "step": step.numpy(),
        "generated": [generation.generated[i] for i in step.tolist()],
        "probability": None if chance is None else chance[step].numpy(),
        "place": place.numpy(),
        "source": [generation.sources[i] for i in place.tolist()],
        "origin": [generation.origins[i] for i in place.tolist()],
    }
    for name in ("positive", "negative", "combined"):
        columns[name] = e.flat(getattr(e, name)).cpu()[step, place].numpy()
    return needs("pandas", "tabular").DataFrame(columns)
