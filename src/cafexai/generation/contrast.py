"""What is explained of a generated token: its logit, minus others, or its log-probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._engine.output import select_output
from .._inputs.prompt import token_text
from .._inputs.target import OTHERS
from .._inputs.token_targets import token_id
from .steps import CALL, Steps

Pick = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Contrast:
    """How one number per generated token is made of the logits.

    Args:
        pick: From the output of the model to (1, tokens).
        words: What the number is, in words.
        rather_than: The end of the name of a target: " rather than ' cat'".
        against: The subtracted output as an index, like a target; None if it is none.
    """

    pick: Pick
    words: str
    rather_than: str
    against: Tensor | None


def choose_contrast(steps: Steps, against: Any, log_probability: bool, logits: Tensor, tokenizer: Any) -> Contrast:
    """What ``against`` and ``log_probability`` ask for.

    Args:
        steps: Positions and tokens.
        against: None, "others", a token or a list of tokens.
        log_probability: Explain log-probabilities.
        logits: (tokens, vocabulary), of a plain pass.
        tokenizer: For tokens as strings.
    """
    count, size = logits.shape
    positions, tokens = steps.positions, steps.tokens
    if log_probability:
        if against is not None and against != "others":
            raise ValueError(f"{CALL}(..., log_probability=True, against=...): give one of both.")
        return Contrast(_log_probability(positions, tokens, logits), "log-probability, with its weights frozen", "", None)
    if against is None:
        return Contrast(_logits(positions, tokens), "logit", "", None)
    if isinstance(against, str) and against == "others":
        places = torch.arange(size - 1).expand(count, -1)
        others = places + (places >= tokens[:, None]).long()
        index = torch.full((count, 2), OTHERS)
        return Contrast(
            _minus_mean(positions, tokens, others), "logit minus the mean of all other logits", " rather than the others", index
        )
    listed = list(against) if isinstance(against, (list, tuple, Tensor)) else [against]
    ids = torch.tensor([token_id(one, tokenizer, size, f"{CALL}(..., against=...)") for one in listed])
    if not len(ids) or len(ids.unique()) != len(ids):
        raise ValueError(f"{CALL}(..., against={against!r}): give different tokens, at least one.")
    if bool((hit := (tokens[:, None] == ids).any(1)).any()):
        place = int(hit.nonzero()[0])
        own = token_text(tokenizer, int(tokens[place]))
        raise ValueError(
            f"{CALL}(..., against={against!r}): generated token {place} is {own!r} itself. "
            "Give other tokens, or explain a part of the text with continuation=."
        )
    called = " or ".join(repr(token_text(tokenizer, one)) for one in ids.tolist())
    single = torch.stack([steps.output_positions, ids.expand(count)], 1) if len(ids) == 1 else None
    words = f"logit minus that of {called}" if len(ids) == 1 else f"logit minus the mean logit of {called}"
    return Contrast(_minus_mean(positions, tokens, ids.expand(count, -1)), words, f" rather than {called}", single)


def logits_of(raw: Any) -> Tensor:
    """The logits among the outputs of the model, (1, positions, vocabulary)."""
    found: Tensor = raw.logits if hasattr(raw, "logits") else select_output(raw, None)
    if found.ndim != 3:
        raise ValueError(
            f"{CALL}(...): the model gives an output of shape {tuple(found.shape)}. It must be that of a language model, "
            "(rows, positions, vocabulary)."
        )
    return found


def _logits(positions: Tensor, tokens: Tensor) -> Pick:
    return lambda raw: logits_of(raw)[:, positions, tokens]


def _minus_mean(positions: Tensor, tokens: Tensor, others: Tensor) -> Pick:
    """The logit of each token minus the mean of others, (tokens, others) being their ids."""

    def pick(raw: Any) -> Tensor:
        logits = logits_of(raw)
        return logits[:, positions, tokens] - logits[:, positions[:, None], others].mean(-1)

    return pick


def _log_probability(positions: Tensor, tokens: Tensor, logits: Tensor) -> Pick:
    """The logit minus logsumexp, whose weights are those of the input: logsumexp(z) = sum(p z) + entropy(p)."""
    shares = logits.log_softmax(-1)
    weights, entropy = shares.exp(), -(shares.exp() * shares).nan_to_num(0.0).sum(-1)

    def pick(raw: Any) -> Tensor:
        found = logits_of(raw)
        return found[:, positions, tokens] - (found[:, positions] * weights).sum(-1) - entropy

    return pick
