"""Generate a text, and say which tokens go into the model and which logits come out for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._engine.model import Subject
from .._inputs.prepare import model_dtype
from .._inputs.prompt import Tokens, from_ids, from_text, list_ids

CALL = "generation"


@dataclass(frozen=True)
class Steps:
    """What the model computes for a text: one logit per generated token.

    Args:
        inputs: The token ids by the name of their argument: those of the prompt, or of encoder and decoder.
        options: Further arguments of forward.
        positions: Where in the output the logits of each generated token are.
        tokens: The ids of the generated tokens.
        output_positions: The same positions in the whole output, where forward returns only its end.
    """

    inputs: Mapping[str, Tensor]
    options: Mapping[str, Any]
    positions: Tensor
    tokens: Tensor
    output_positions: Tensor


def generate_tokens(
    subject: Subject, tokenizer: Any, prompt: Tokens, max_new_tokens: int, options: Mapping[str, Any]
) -> list[int]:
    """What the model's own ``generate`` adds to the prompt; the model and the random numbers stay as they were."""
    model = subject.model
    if not callable(getattr(model, "generate", None)):
        raise ValueError(
            f"{CALL}(prompt): {type(model).__name__} has no generate(). Give the text to explain: continuation='...'."
        )
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"{CALL}(..., max_new_tokens={max_new_tokens!r}): give a whole number of at least 1.")
    _check_length(model, len(prompt.ids), max_new_tokens, "max_new_tokens")
    ids = _row(prompt.ids, model)
    given: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False, "num_beams": 1}
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None and getattr(getattr(model, "generation_config", None), "pad_token_id", None) is None:
        given["pad_token_id"] = getattr(tokenizer, "eos_token_id", None) or 0  # a single row has no padding
    with subject.guard_state(), torch.no_grad():
        found = model.generate(ids, **{**given, **options, "max_new_tokens": max_new_tokens})
    sequence = (found if isinstance(found, Tensor) else found.sequences)[0].tolist()
    made = sequence[1:] if is_encoder_decoder(model) else sequence[len(prompt.ids) :]
    if not made:
        raise ValueError(f"{CALL}({prompt.text!r}): the model generated nothing. Give the text: continuation='...'.")
    return [int(one) for one in made]


def read_continuation(continuation: Any, prompt: Tokens, tokenizer: Any, joint: bool) -> list[int]:
    """The tokens of a given text; ``joint``: as they are when the tokenizer sees prompt and text at once, if that fits."""
    if isinstance(continuation, str):
        if not callable(tokenizer):
            raise ValueError(f"{CALL}(..., continuation='...'): which tokenizer? Give it: CAFE(model, tokenizer=tokenizer).")
        ids = list(from_text(continuation, tokenizer, False).ids)
        if joint:
            both = from_text(prompt.text + continuation, tokenizer, True).ids
            if both[: len(prompt.ids)] == prompt.ids:
                ids = list(both[len(prompt.ids) :])
    else:
        ids = list_ids(continuation, f"{CALL}(..., continuation=...)")
    if not ids:
        raise ValueError(f"{CALL}(..., continuation={continuation!r}): it has no tokens. Give at least one.")
    return ids


def plan_steps(model: Any, prompt: Tokens, made: list[int]) -> Steps:
    """The call of forward that has the logits of all generated tokens."""
    _check_length(model, len(prompt.ids), len(made), "continuation")
    known = _parameters(model)
    ids, tokens, count = _row(prompt.ids, model), torch.tensor(made), len(made)
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in known else {}
    if is_encoder_decoder(model):
        options["attention_mask"] = torch.ones_like(ids)
        decoder = _row([_first_decoder_token(model), *made[:-1]], model)
        places = torch.arange(count)
        return Steps({"input_ids": ids, "decoder_input_ids": decoder}, options, places, tokens, places)
    whole = _row([*prompt.ids, *made[:-1]], model)
    if "attention_mask" in known:
        options["attention_mask"] = torch.ones_like(whole)
    places = torch.arange(count) + len(prompt.ids) - 1
    if "logits_to_keep" in known:
        options["logits_to_keep"] = count
        return Steps({"input_ids": whole}, options, torch.arange(count), tokens, places)
    return Steps({"input_ids": whole}, options, places, tokens, places)


def _check_length(model: Any, prompt: int, more: int, option: str) -> None:
    """Refuse more tokens than the model has learnt positions for; the last generated one is never read."""
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(limit, int) or not _has_learnt_positions(model, limit):
        return
    longest = max(prompt, more) if is_encoder_decoder(model) else prompt + more - 1
    if longest > limit:
        raise ValueError(
            f"{CALL}(...): the prompt has {prompt} tokens and {option} asks for {more}, but the model has {limit} positions. "
            f"Shorten the prompt, or give {option} fewer tokens."
        )


def _has_learnt_positions(model: Any, limit: int) -> bool:
    """There is an embedding of as many positions; some models keep up to two for padding."""
    tables = (one for one in model.named_modules() if isinstance(one[1], nn.Embedding))
    return any(re.search("pos|wpe", name) and 0 <= table.num_embeddings - limit <= 2 for name, table in tables)


def describe_generated(tokenizer: Any, made: list[int]) -> Tokens:
    """The generated tokens with their text."""
    return from_ids(made, tokenizer)


def is_encoder_decoder(model: Any) -> bool:
    """The model has an encoder for the prompt and a decoder for the text."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _first_decoder_token(model: Any) -> int:
    for holder in (getattr(model, "generation_config", None), model.config):
        number = getattr(holder, "decoder_start_token_id", None)
        if number is not None:
            return int(number)
    raise ValueError(
        f"{CALL}(...): {type(model).__name__} does not say with which token its decoder starts. Set "
        "model.config.decoder_start_token_id."
    )


def _row(ids: Any, model: Any) -> Tensor:
    return torch.tensor([list(ids)], device=model_dtype(model)[1])


def _parameters(model: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(getattr(model, "forward", model)).parameters
    except (TypeError, ValueError):
        return {}
