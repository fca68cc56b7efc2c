"""Targets of language models as people say them: a token by its text, the position -1 as the last real token."""

from __future__ import annotations

from typing import Any

from .prompt import token_text


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
