"""Convert texts, encodings of tokenizers and pictures to the tensors that models take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .images import is_picture, preprocess_images
from .prompt import is_chat
from .words import EXPLAINED, Written, encode_text, is_encoding, is_text, is_text_pairs, split_encoding


class Taken(NamedTuple):
    """The inputs, and further arguments of forward."""

    inputs: Any
    extra: Any
    display: Any = None  # the inputs as they were, in the same shape
    notes: tuple[str, ...] = ()
    mask: Any = None  # which tokens count
    names: tuple[str, ...] = ()  # by which forward takes the inputs, if these came by name
    written: list[Written] | None = None  # texts as the user wrote them


def convert_inputs(inputs: Any, extra: Any, tokenizer: Any, preprocess: Any, display: Any, raw: bool) -> Taken:
    """Strings through the tokenizer, encodings taken apart, pictures through the preprocessing; others as they are.

    ``raw``: the model takes texts itself.
    """
    if isinstance(inputs, Tensor) and preprocess is None:  # as most are
        return Taken(inputs, extra, display, mask=extra.get("attention_mask") if isinstance(extra, dict) else None)
    call = "explain"
    notes: tuple[str, ...] = ()
    if preprocess is not None:
        if not callable(preprocess):
            raise ValueError(f"{call}(..., preprocess={preprocess!r}): give a function of one picture.")
        inputs, seen = preprocess_images(inputs, preprocess, call)
        return Taken(inputs, extra, seen if display is None else display)
    if is_picture(inputs):
        raise ValueError(
            f"{call}(picture): which numbers does the model get? Give the function that it was trained with: preprocess=..., "
            "one picture to a tensor (channels, height, width)."
        )
    if is_chat(inputs):
        raise ValueError(
            f"{call}(messages): chat messages are explained by cafe.generation(messages), which has one score per message "
            "with .by('message'). For one next token give the text: tokenizer.apply_chat_template(messages, tokenize=False)."
        )
    written = None
    if is_text(inputs) or is_text_pairs(inputs):
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if raw:
            return Taken(np.array(texts, dtype=object), extra, display)
        inputs, notes, written = encode_text(texts, tokenizer, call)
    if not is_encoding(inputs):
        return Taken(inputs, extra, display, notes, extra.get("attention_mask") if isinstance(extra, dict) else None)
    named, extra = split_encoding(inputs, extra, tokenizer is not None, call)
    left = [name for name in EXPLAINED if name in extra]
    if left:
        notes = (*notes, f"Explained is {', '.join(named)}; {', '.join(left)} goes to the model as it is and has no scores.")
    inputs = tuple(named.values())
    return Taken(
        inputs if len(inputs) > 1 else inputs[0], extra, display, notes, extra.get("attention_mask"), tuple(named), written
    )
