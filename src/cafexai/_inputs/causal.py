"""Calls of causal language models: positions as ``generate`` makes them, no target at padding, no cache."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prompt import token_text
from .token_targets import LAST, list_targets

MASK, POSITIONS, CACHE, PAST = "attention_mask", "position_ids", "use_cache", "past_key_values"
ADDED = (
    "Rows are padded on the left: position_ids were added, as generate makes them, so that padding does not move the "
    "positions of the tokens. Pass position_ids yourself for other positions."
)


def with_positions(
    model: Any, inputs: tuple[Any, ...], extra: Any, request: Any, tokenizer: Any, call: str
) -> tuple[Any, tuple[str, ...]]:
    """Further arguments of a causal language model whose rows are padded, and notes.

    Args:
        model: Any model; others than causal language models of transformers are left alone.
        inputs: The inputs before the further arguments.
        extra: Its further arguments.
        request: What is asked: ``target`` and ``output`` may name a position.
        tokenizer: That of the model, or None.
        call: The name of the call, for errors.

    Returns:
        The arguments, without a cache, and with ``position_ids`` if rows are padded on the left and have none; a note says so.

    Raises:
        ValueError: The target is at a padding token, rows seem padded and there is no attention mask, positions cannot be
            added, or there is a cache.
    """
    if not is_causal(model):
        return extra, ()
    names = list(inspect.signature(model.forward).parameters)
    given = _arguments(names, extra, len(inputs))
    if given.get(PAST) is not None:
        raise ValueError(
            f"{call}(..., additional_forward_args={{'past_key_values': ...}}): tokens in a cache have no scores. Leave "
            "past_key_values out, and give all tokens as input."
        )
    if CACHE in names and (extra is None or isinstance(extra, Mapping)):
        extra = {**(extra or {}), CACHE: False}
    mask = given.get(MASK)
    if mask is None and MASK in names and len(inputs) == 1:
        _refuse_unmasked(model, inputs[0], request, tokenizer, call)
    if not isinstance(mask, Tensor) or mask.ndim != 2 or bool((mask != 0).all()):
        return extra, ()
    there = mask != 0
    _refuse_padding(there, request, len(inputs) == 1, call)
    left = bool((~there[:, 0]).any())
    if not left or given.get(POSITIONS) is not None or POSITIONS not in names:
        return extra, ()
    if not isinstance(extra, Mapping):
        raise ValueError(
            f"{call}(..., additional_forward_args=tuple): rows are padded on the left and have no position_ids, so the model "
            "would count padding. Give the arguments by name: {'attention_mask': ..., 'position_ids': ...}."
        )
    positions = (there.long().cumsum(-1) - 1).masked_fill(~there, 1)
    return {**extra, POSITIONS: positions}, (ADDED,)


def find_mask(model: Any, extra: Any, inputs: int) -> Tensor | None:
    """The attention mask among the further arguments of a causal language model, (rows, tokens)."""
    mask = _arguments(list(inspect.signature(model.forward).parameters), extra, inputs).get(MASK) if is_causal(model) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _arguments(names: list[str], extra: Any, inputs: int) -> dict[str, Any]:
    """Further arguments of forward by name; ``names`` are all of its parameters."""
    parts = () if extra is None else (extra,) if isinstance(extra, Tensor) else extra
    return dict(parts) if isinstance(parts, Mapping) else dict(zip(names[inputs:], parts, strict=False))


def is_causal(model: Any) -> bool:
    """A model of transformers that generates, token after token, from its own input."""
    config = getattr(model, "config", None)
    can = getattr(model, "can_generate", None)
    return config is not None and callable(can) and bool(can()) and not getattr(config, "is_encoder_decoder", False)


def _refuse_unmasked(model: Any, ids: Any, request: Any, tokenizer: Any, call: str) -> None:
    """Refuse token ids that begin or end with what may be padding, if no attention mask says so.

    At the end only the last position matters: no token before it reads the padding.
    """
    ids = torch.as_tensor(ids) if isinstance(ids, (np.ndarray, Tensor)) else torch.zeros(0)
    if ids.ndim != 2 or ids.is_floating_point():
        return
    for pad in sorted(_padding_ids(model, tokenizer)):
        there = ids == pad
        before, after = (edge.long().cumprod(1).sum(1) for edge in (there, there.flip(1)))
        same_start = pad in _first_ids(model, tokenizer) and bool((before == before[0]).all()) and int(before[0]) == 1
        for edge, run in (("begins", before * (not same_start)), ("ends", after * _asks_last(request, len(ids)))):
            if bool((run > 0).any()):
                row = int((run > 0).nonzero()[0])
                raise ValueError(
                    f"{call}(token ids, ...): some rows end or begin with padding, or with a token that may be padding: row "
                    f"{row} {edge} with {token_text(tokenizer, pad).strip()!r} (id {pad}), and there is no attention mask. "
                    "Say which tokens are real, with 1, and which are padding, with 0: "
                    "additional_forward_args={'attention_mask': mask}, or give the encoding of the tokenizer."
                )


def _padding_ids(model: Any, tokenizer: Any) -> set[int]:
    """The token that pads rows; where none is set, those that end texts, which people then pad with."""
    holders = (tokenizer, model.config, getattr(model, "generation_config", None))
    return next((found for found in (_special(holders, name) for name in ("pad_token_id", "eos_token_id")) if found), set())


def _first_ids(model: Any, tokenizer: Any) -> set[int]:
    """Tokens that texts may begin with."""
    holders = (tokenizer, model.config)
    return _special(holders, "bos_token_id") | _special(holders, "eos_token_id")


def _special(holders: tuple[Any, ...], name: str) -> set[int]:
    """A special token by the first that knows it; models may have several ends."""
    known = next((value for one in holders if (value := getattr(one, name, None)) is not None), None)
    return set() if known is None else set(known) if isinstance(known, (list, tuple)) else {int(known)}


def _asks_last(request: Any, rows: int) -> bool:
    """The target, or the output, is that at the last position."""
    if isinstance(request.output, str):
        return re.search(r"\[:, *-1[,\]]", request.output) is not None
    listed = list_targets(request.target, rows)
    return listed is not None and any(not isinstance(one, tuple) or one[0] == LAST for one in listed)


def _refuse_padding(there: Tensor, request: Any, text: bool, call: str) -> None:
    """Refuse a target that is a position of padding in some row; of a ``text``, -1 is the last real one."""
    for option in ("target", "against"):
        positions = _positions(getattr(request, option), len(there))
        if positions is None and option == "target" and isinstance(request.output, str):
            found = re.search(r"\[:, *(-?\d+)[,\]]", request.output)
            positions = None if found is None else torch.full((len(there),), int(found[1]))
            option = "output"
        if positions is None:
            continue
        if option != "output" and text:
            positions = torch.where(positions == LAST, there.cpu().long().cumsum(1).argmax(1), positions)
        inside = (positions >= -there.shape[1]) & (positions < there.shape[1])
        rows = torch.arange(len(there))[inside]
        bad = rows[~there.cpu()[rows, positions[inside]]].tolist()
        if bad:
            last = (there[bad[0]].nonzero()[-1]).item()
            raise ValueError(
                f"{call}(..., {option}=...): position {positions[bad[0]].item()} of row {bad[0]} is padding: what the model "
                f"says there means nothing. Its last token is at {last}: give one target for each row, target=[({last}, id), "
                "...], or pad on the left (tokenizer.padding_side = 'left')."
            )


def _positions(target: Any, rows: int) -> Tensor | None:
    """The position of the target of each row; None if targets have none."""
    listed = list_targets(target, rows)
    if listed is None or not all(isinstance(one, tuple) for one in listed):
        return None
    return torch.tensor([one[0] for one in listed])
