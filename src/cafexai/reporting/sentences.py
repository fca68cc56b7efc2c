"""What happened in one row, in plain sentences that repeat the numbers of its table."""

from __future__ import annotations

import dataclasses

from ..explanation import Explanation
from ..plotting.conflict_words import conflict_sentence, engine_sentence
from ..plotting.rounding import Shown, ShownLine, round_like
from .escape import Html, html, join_parts, tag

THINGS = {"table": "features", "image": "parts of the picture", "text": "words"}


def sentences(one: Explanation, row: Shown, kind: str = "table", brief: bool = False) -> list[Html]:
    """The explanation of one row; ``brief`` leaves out what the table shows."""
    things = THINGS[kind]
    up, down = row.up, row.down
    pairs = [] if one.conflict_pairs is None else _pairs(one, row)
    if float(up) == float(down) == 0:
        return [Html(f"None of the {things} moved the score."), *pairs]
    if float(up) == 0 or float(down) == 0:
        one_way = f"up by {up}, and not down." if float(up) else f"down by {down}, and not up."
        return [Html(f"All {things} together pushed the score {one_way}"), *pairs]
    first = [] if row.between is None or brief else [tag("span", conflict_sentence(row.between), kind="k")]
    return [*first, *(pairs or ([] if brief else _strongest(_quote_names(row, kind))))]


def _pairs(one: Explanation, row: Shown, most: int = 2) -> list[Html]:
    """Who cancelled whom. All of it is part of the score of the one that pushed up only if it is not more than that."""
    names = one.names()  # a word may stand at several places
    by_name = {line.name: line for line in row.lines if line.exact.single and names.count(line.name) == 1}
    found = []
    for up, down, amount in one.pairs(most=most):
        text, line = round_like(row, amount), by_name.get(up)
        if float(text) == 0:
            continue
        whole = line is not None and float(text) <= float(line.positive) and _within(one, up)
        found.append(html(engine_sentence(up, down, text, line.positive if whole and line is not None else "")))
    return found


def _within(one: Explanation, name: str) -> bool:
    """All that was cancelled of this feature shows in its positive score."""
    assert one.conflict_pairs is not None
    place = one.names().index(name)
    return bool(one.conflict_pairs[0, place].sum() <= one.flat(one.positive)[0, place])


def _strongest(row: Shown) -> list[Html]:
    """The largest net in each direction."""
    single = [line for line in row.lines if line.exact.single]
    top = max(single, key=lambda line: line.exact.net)
    low = min(single, key=lambda line: line.exact.net)
    told: list[Html | str] = []
    for line, sign, way in ((top, 1, "up"), (low, -1, "down")):
        if sign * float(line.net) > 0:
            told += [", "] * bool(told)
            told += [_name_line(line), f"{'' if told else ' moved the score'} {way} most (net {_minus(line.net)})"]
    return [*([join_parts([*told, "."])] if told else []), *_both_ways(single)]


def _both_ways(single: list[ShownLine]) -> list[Html]:
    """The feature that works most against itself, if that is a good part of the largest score."""
    largest = max(max(line.exact.positive, line.exact.negative) for line in single)
    inner = max(single, key=lambda line: min(line.exact.positive, line.exact.negative))
    if min(inner.exact.positive, inner.exact.negative) < 0.25 * largest:
        return []
    both = f" worked both ways, {inner.positive} up and {inner.negative} down, which leaves {_minus(inner.net)}."
    return [join_parts([_name_line(inner), both])]


def _quote_names(row: Shown, kind: str) -> Shown:
    """Words in quotes."""
    if kind != "text":
        return row
    lines = [dataclasses.replace(line, name=f"\u201c{line.name}\u201d") if line.exact.single else line for line in row.lines]
    return dataclasses.replace(row, lines=tuple(lines))


def _name_line(line: ShownLine) -> Html:
    return tag("b", f"{line.name} = {line.value}" if line.value else line.name)


def _minus(number: str) -> str:
    return number.replace("-", "\u2212")
