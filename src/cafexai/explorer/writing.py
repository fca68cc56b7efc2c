"""What a language model writes after a text of the data, explained token by token."""

from __future__ import annotations

from typing import Any

from ..plotting.generation_plot import choose_lines, readable
from ..plotting.row_lines import align_numbers
from ..reporting.rows import percent
from .requests import Choice, Refused
from .rows import Edits
from .session import Session

MOST = 60  # sources that are shown
LONGEST = 60  # tokens that may be asked for


def can_write(session: Session) -> bool:
    """The data are texts, and the model goes on writing them."""
    writes = callable(getattr(session.cafe.model, "generate", None))
    return session.rows.data.form == "texts" and session.tokenizer is not None and writes


def generation_view(session: Session, place: int, choice: Choice, edits: Edits, tokens: int) -> dict[str, Any]:
    """The heat map of ``CAFE.generation`` for one text: sources, generated tokens, and their net scores."""
    if not can_write(session):
        raise Refused("This model does not write, or the data are no texts.")
    baseline = choice.baseline if choice.baseline in session.baselines else None
    try:
        found = session.cafe_for(choice).generation(
            session.rows.text(place, edits), max_new_tokens=max(tokens, 1), baselines=baseline
        )
    except (ValueError, RuntimeError) as error:
        raise Refused(str(error)) from error
    lines = choose_lines(found, "combined", MOST)
    texts = align_numbers(lines.values.flatten().tolist(), 3)
    wide = len(found)
    chance = found.explanation.probability
    return {
        "text": found.text,
        "explained": found.explained,
        "tokens": [readable(one) for one in found.generated],
        "chances": [] if chance is None else [percent(one) for one in chance.tolist()],
        "sources": lines.names,
        "border": lines.border,
        "reach": float(lines.values.abs().max()) or 1.0,
        "told": [texts[place : place + wide] for place in range(0, len(texts), wide)],
        "net": lines.values.tolist(),
        "seen": lines.seen.tolist(),
    }
