"""Targets of language models as people say them: a token by its text, the position -1 as the last real token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prompt import token_text
from .target import OTHERS

LAST = -1  # as a target: the predicted token at the last real position


@dataclass(frozen=True)
class TextRows:
    """The rows that a causal language model reads.

    Args:
        ids: Their tokens, (rows, tokens).
        mask: Which of these are no padding, (rows, tokens); None if that is not known.
        tokenizer: That of the model, or None.
    """

    ids: Tensor
    mask: Tensor | None
    tokenizer: Any

    def last(self) -> Tensor:
        """The position of the last real token of each row."""
        count = self.ids.shape[1]
        if self.mask is None or self.mask.shape != self.ids.shape:  # padding without a mask was refused before
            return torch.full((len(self.ids),), count - 1)
        places = torch.arange(count, device=self.mask.device)
        return torch.where(self.mask != 0, places, 0).amax(1).cpu()


def token_targets(target: Any, output: Tensor, text: TextRows, rows: slice, names: Sequence[str], call: str) -> Any:
    """Targets as indices: -1, tokens by their text, and the position -1; all other targets stay as they are.

    Args:
        target: As the user gave it.
        output: Of the model for these rows: (rows, positions, vocabulary), or (rows, vocabulary).
        text: All rows of the call.
        rows: Which of them these are.
        names: The class names; they come before tokens.
        call: The name of the call, for errors.

    Raises:
        ValueError: A string is not exactly one token, or the position of a row is not known.
    """
    if output.ndim not in (2, 3) or (output.ndim == 2 and names):
        return target
    size = output.shape[-1]

    def number(token: Any) -> Any:
        return token_id(token, text.tokenizer, size, f"{call}(..., target=...)") if isinstance(token, str) else token

    if output.ndim == 2:
        return [number(one) for one in target] if isinstance(target, list) else number(target)
    listed = list_targets(target, len(text.ids))
    if listed is None:
        return target
    if output.shape[1] != text.ids.shape[1]:
        padded = text.mask is not None and not bool((text.mask[:, -1] != 0).all())
        if padded and any(isinstance(one, tuple) and one[0] == LAST for one in listed):
            raise ValueError(
                f"{call}(..., target=...): some rows end with padding, and the output has {output.shape[1]} positions for "
                f"{text.ids.shape[1]} tokens. Give the position of each row, target=[(position, token id), ...]."
            )
        return target
    last = text.last()
    index = torch.zeros(len(text.ids), 2, dtype=torch.long)
    for row, one in enumerate(listed):
        place, token = one if isinstance(one, tuple) else (LAST, one)
        index[row, 0] = last[row] if place == LAST else place
        if not (token == LAST and not isinstance(one, tuple)):
            index[row, 1] = number(token)
        elif rows.start <= row < rows.stop:  # the others are not picked
            index[row, 1] = output[row - rows.start, last[row]].argmax()
    return index


def several_tokens(against: Any, rows: int) -> list[Any] | None:
    """Tokens whose mean is subtracted: a set, or for a single row a list. None for all other forms of ``against``."""
    if isinstance(against, (set, frozenset)):
        return sorted(against, key=str)
    listed = isinstance(against, list) and rows == 1 and len(against) > 1
    return against if listed and all(type(one) is int or isinstance(one, str) for one in against) else None


def index_several(tokens: Sequence[Any], target: Tensor, size: int, text: TextRows, call: str) -> Tensor:
    """The tokens at the position of each target, as indices side by side: (rows, 2 * tokens)."""
    ids = [token_id(one, text.tokenizer, size, f"{call}(..., against=...)") for one in tokens]
    if not ids or len(set(ids)) < len(ids):
        raise ValueError(f"{call}(..., against={list(tokens)!r}): give different tokens, at least one.")
    return torch.cat([torch.stack([target[:, 0], torch.full_like(target[:, 0], one)], 1) for one in ids], 1)


def name_next_tokens(text: TextRows, target: Tensor, against: Tensor | None) -> tuple[str, ...] | None:
    """What is explained in each row in words, from (rows, 2) indices; None where outputs are no tokens."""
    if text.tokenizer is None or target.shape[1] != 2 or len(target) != len(text.ids):
        return None
    found = []
    for row, (place, token) in enumerate(target.tolist()):
        before = token_text(text.tokenizer, int(text.ids[row, place]))
        called = f"next token {token_text(text.tokenizer, token)!r} after {before!r}"
        if against is not None:
            called += " rather than " + _name_against(text.tokenizer, against[row].view(-1, 2).tolist(), place)
        found.append(called)
    return tuple(found)


def _name_against(tokenizer: Any, pairs: Sequence[Sequence[int]], place: int) -> str:
    """The tokens that a target is held against."""
    if pairs[0][0] == OTHERS:
        return "the others"
    return " or ".join(
        repr(token_text(tokenizer, token)) + (f" at {where}" if where != place else "") for where, token in pairs
    )


def list_targets(target: Any, rows: int) -> list[Any] | None:
    """One target per row: -1, the text of a token, or (position, id or text). None for all other targets."""
    if isinstance(target, (np.ndarray, Tensor)) and target.ndim == 2:
        target = [tuple(one) for one in target.tolist()]
    if isinstance(target, tuple) and len(target) == 2:  # an entry for all rows, or one per row, of each
        columns = [_column(part, rows) for part in target]
        target = list(zip(*columns, strict=False)) if all(len(part) == rows for part in columns) else target
    listed = [tuple(one) if isinstance(one, list) else one for one in target] if isinstance(target, list) else [target] * rows
    return listed if len(listed) == rows and all(map(_is_token, listed)) else None


def _column(part: Any, rows: int) -> list[Any]:
    if isinstance(part, (np.ndarray, Tensor)):
        part = part.tolist()
    return part if isinstance(part, list) else [part] * rows


def _is_token(target: Any) -> bool:
    if isinstance(target, tuple):
        return len(target) == 2 and type(target[0]) is int and (type(target[1]) is int or isinstance(target[1], str))
    return isinstance(target, str) or (type(target) is int and target == LAST)


def token_id(token: Any, tokenizer: Any, size: int, call: str) -> int:
    """The id of a token that is given as an id or as its text.

    Args:
        token: An id, or a text that is exactly one token.
        tokenizer: That of the model.
        size: How many outputs there are.
        call: The name of the call, for errors.
    """
    if isinstance(token, str):
        return _only_token(token, tokenizer, call)
    number = int(token)
    if isinstance(token, bool) or not 0 <= number < size:
        raise ValueError(f"{call}: {token!r} is no token id; there are {size} outputs. Give an id from 0 to {size - 1}.")
    return number


def _only_token(text: str, tokenizer: Any, call: str) -> int:
    if not callable(tokenizer):
        raise ValueError(f"{call}: {text!r} is a token of which tokenizer? Give it: CAFE(model, tokenizer=tokenizer).")
    known = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) == 1:
        return int(ids[0])
    if text in known:  # as the tokenizer writes it
        return int(known[text])
    pieces = ", ".join(repr(token_text(tokenizer, one)) for one in ids)
    raise ValueError(f"{call}: {text!r} is {len(ids)} tokens: {pieces}. Give one of them, or a token id.")
