"""Calls of causal language models: positions as ``generate`` makes them, no target at padding, no cache."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .token_targets import LAST, list_targets

MASK, POSITIONS, CACHE, PAST = "attention_mask", "position_ids", "use_cache", "past_key_values"
ADDED = (
    "Rows are padded on the left: position_ids were added, as generate makes them, so that padding does not move the "
    "positions of the tokens. Pass position_ids yourself for other positions."
)


def with_positions(model: Any, extra: Any, request: Any, inputs: int, call: str) -> tuple[Any, tuple[str, ...]]:
    """Further arguments of a causal language model whose rows are padded, and notes.

    Args:
        model: Any model; others than causal language models of transformers are left alone.
        extra: Its further arguments.
        request: What is asked: ``target`` and ``output`` may name a position.
        inputs: The number of inputs before the further arguments.
        call: The name of the call, for errors.

    Returns:
        The arguments, without a cache, and with ``position_ids`` if rows are padded on the left and have none; a note says so.

    Raises:
        ValueError: The target is at a padding token, positions cannot be added, or there is a cache.
    """
    if not is_causal(model):
        return extra, ()
    names = list(inspect.signature(model.forward).parameters)
    given = _arguments(names, extra, inputs)
    if given.get(PAST) is not None:
        raise ValueError(
            f"{call}(..., additional_forward_args={{'past_key_values': ...}}): tokens in a cache have no scores. Leave "
            "past_key_values out, and give all tokens as input."
        )
    if CACHE in names and (extra is None or isinstance(extra, Mapping)):
        extra = {**(extra or {}), CACHE: False}
    mask = given.get(MASK)
    if not isinstance(mask, Tensor) or mask.ndim != 2 or bool((mask != 0).all()):
        return extra, ()
    there = mask != 0
    _refuse_padding(there, request, inputs == 1, call)
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
