"""Words of a text by the characters that its tokens stand for: the user's own spelling, "can't" in one piece."""

from __future__ import annotations

import re
from collections.abc import Sequence

Span = tuple[int, int]  # from the first character to behind the last one
WITH_APOSTROPHE = re.compile(r"\w+(?:['\u2019]\w+)+")  # "can't", "l'homme": one word, whatever the tokenizer makes of it


def word_index(text: str, spans: Sequence[Span | None], word_ids: Sequence[int | None] | None = None) -> list[int]:
    """The word that each token belongs to, from 0 on; -1 for tokens that stand for no characters.

    A word ends at a space, at punctuation, and where the tokenizer says that another word begins.

    Args:
        text: The text.
        spans: The characters of each token; None for special tokens.
        word_ids: Words as the tokenizer counts them, which also splits scripts without spaces; None if it does not say.
    """
    whole = [found.span() for found in WITH_APOSTROPHE.finditer(text)]
    found: list[int] = []
    count, before = -1, -1  # the last word, and the token before
    for place, span in enumerate(spans):
        if span is None or span[0] >= span[1]:
            found.append(-1)
            continue
        if before < 0 or _begins(text, spans[before], span, whole) or _differs(word_ids, before, place, spans, whole):
            count += 1
        found.append(count)
        before = place
    return found


def word_names(text: str, spans: Sequence[Span | None], index: Sequence[int]) -> tuple[str, ...]:
    """The words as the text has them."""
    ends: list[list[int]] = [[] for _ in range(max(index, default=-1) + 1)]
    for word, span in zip(index, spans, strict=True):
        if word >= 0 and span is not None:
            ends[word] += span
    return tuple(text[min(own) : max(own)].strip() or text[min(own) : max(own)] for own in ends)


def _begins(text: str, before: Span | None, span: Span, whole: Sequence[Span]) -> bool:
    """Whether the text itself has another word here."""
    assert before is not None
    if span[0] < before[1] or _together(before, span, whole):  # bytes of one character, or one word
        return False
    last, first = text[before[0] : before[1]], text[span[0] : span[1]]
    gap = text[before[1] : span[0]]
    if last.isspace():  # a space on its own belongs to the word behind it
        return False
    if any(map(str.isspace, gap)) or last[-1:].isspace() or first[:1].isspace():
        return True
    return not any(map(str.isalnum, first)) or not any(map(str.isalnum, last))


def _differs(
    word_ids: Sequence[int | None] | None, before: int, place: int, spans: Sequence[Span | None], whole: Sequence[Span]
) -> bool:
    """Whether the tokenizer counts two words."""
    one, other = spans[before], spans[place]
    assert one is not None
    assert other is not None
    return word_ids is not None and word_ids[before] != word_ids[place] and not _together(one, other, whole)


def _together(one: Span, other: Span, whole: Sequence[Span]) -> bool:
    """Both are in one word with an apostrophe inside."""
    return any(start <= one[1] - 1 < end and start < other[1] <= end and other[0] > start for start, end in whole)
