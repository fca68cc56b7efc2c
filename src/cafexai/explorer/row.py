"""One row as the page shows it: the ledger, pictures or words, and what changes in it do."""

from __future__ import annotations

import html
import re
from importlib.util import find_spec
from typing import Any

from ..explanation import Explanation
from ..plotting.conflict_words import conflict_sentence
from ..plotting.regions import SLIC, Cut
from ..plotting.rounding import round_explanation
from ..plotting.row_lines import baseline_lines, number
from ..reporting.pictures import image_maps
from ..reporting.rows import FEATURE, kind_of, percent
from ..reporting.sentences import sentences
from ..reporting.summed import by_region, channels_first
from ..reporting.text_ledger import frozen_lines
from .requests import Choice, Refused
from .rows import Edits, plain
from .session import Session

SIDE = 224  # of a picture
SMALL = 32  # pictures that are smaller than this have no superpixels
CLASSES = 5  # that are shown with their outputs


def row_view(session: Session, place: int, choice: Choice, edits: Edits, most: int, order: str = "net") -> dict[str, Any]:
    """A row and, if it was changed, what it was before: both about the output that was explained first."""
    before = session.of_row(place, choice)
    now = session.explain([place], session.fix_target(place, choice), edits) if edits else before
    rows = session.rows
    cells = {**rows.cells(place), **edits.get("cells", {})} if rows.data.form == "table" else {}
    cells = {name: plain(value) for name, value in cells.items()}
    view: dict[str, Any] = {
        "place": place,
        "name": rows.name(place),
        "now": ledger(session.rank_conflict(now, choice), most, order),
        "before": ledger(session.rank_conflict(before, choice), most, order) if edits else None,
        "outputs": _outputs(session, place, edits, now.meta.final),
        "outputs_before": _outputs(session, place, {}, now.meta.final) if edits else None,
        "cells": cells,
        "words": rows.words(place, edits.get("struck", ())),
    }
    try:
        view["at_baseline"] = session.baseline_cells(choice.baseline)
    except (Refused, ValueError):
        view["at_baseline"] = {}
    return view


def check_view(session: Session, place: int, choice: Choice, edits: Edits) -> dict[str, Any]:
    """Predicted and observed changes of a row, in a sentence."""
    aimed = session.fix_target(place, choice)
    try:
        check = session.cafe_for(choice).check_by_changing(session.explain([place], aimed, edits), 0)
    except (ValueError, RuntimeError) as error:
        raise Refused(str(error)) from error
    told = check.sentence
    return {"sentence": f"{told[0].upper()}{told[1:]}.", "evaluations": check.evaluations}


def ledger(e: Explanation, most: int, order: str = "net") -> dict[str, Any]:
    """One explanation in the digits that every view of the library shows, and exact numbers for the bars."""
    kind = "text" if e.features.tokens is not None else kind_of(e)
    part = by_region(e) if kind == "image" else e
    digits = round_explanation(part, most, order=order, fold=False)  # every value can be changed
    conflict = "" if digits.between is None else conflict_sentence(digits.between)
    found: dict[str, Any] = {
        "kind": kind,
        "feature": FEATURE.get(kind, "feature"),
        "target": e.target_name(),
        "start": digits.start,
        "end": digits.end,
        "baseline_output": e.baseline_output.item(),
        "times": digits.times,
        "conflict": "" if digits.between is None else digits.between.short,
        "conflict_sentence": conflict,
        "conflict_kind": e.conflict_kind,
        "probability": None if e.probability is None else percent(e.probability.item()),
        "lines": [
            {
                "name": line.name,
                "value": line.value,
                "baseline": line.baseline,
                "same": line.exact.same,
                "positive": line.positive,
                "negative": line.negative,
                "net": line.net,
                "exact": [line.exact.positive, line.exact.negative, line.exact.net],
                "single": line.exact.single,
            }
            for line in digits.lines
            if line.name
        ],
        "sentences": [told for one in sentences(part, digits, kind) if (told := text_of(one)) != conflict],
        "notes": [*baseline_lines(part), *frozen_lines(e), *e.notes],
        "error": f"{e.completeness_error.abs().item():.1e}",
    }
    if kind == "image":
        found["maps"], found["size"] = _maps(e)
    if kind == "text":
        up, down = (e.flat(one)[0].tolist() for one in (e.positive, e.negative))
        found["words"] = [
            {"text": name, "up": up[i], "down": down[i], "told": f"up {number(up[i])}, down {number(down[i])}"}
            for i, name in enumerate(e.names())
            if name
        ]
    return found


def text_of(page: str) -> str:
    """What HTML says, without its marks; escaped signs become themselves again."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def _maps(e: Explanation) -> tuple[list[dict[str, str]], list[int]]:
    """The picture, the nets of its cells and superpixels on it, and single pixels; with the size of the picture."""
    size = list(channels_first(e.parts(e.shown)[0])[0].shape[1:])
    cuts = [Cut(superpixels=SLIC)] if min(size) >= SMALL and find_spec("skimage") is not None else []
    return [{"name": name, "address": address} for name, address in image_maps(e, SIDE, *cuts).items()], size


def _outputs(session: Session, place: int, edits: Edits, final: str | None) -> list[dict[str, str]]:
    """The highest outputs of the model itself."""
    if edits.get("regions"):
        return []  # painted in the form of the model; the ledger says the output
    outputs = session.outputs_of(place, edits)
    likely = session.probabilities(outputs, final)
    flat = outputs.reshape(-1)
    order = flat.argsort(descending=True, stable=True)[:CLASSES].tolist()
    names = session.output_names or ["output"]
    chance = None if likely is None else likely.reshape(-1)
    return [
        {"name": names[i], "output": number(flat[i].item()), "chance": "" if chance is None else percent(chance[i].item())}
        for i in order
    ]
