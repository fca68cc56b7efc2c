"""The method of an explainer for generated texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._engine.model import with_gradients
from .._engine.prepare_job import Explainer
from .._engine.request import Question
from .._inputs.prompt import is_chat, read_prompt
from .._inputs.words import is_encoding
from ..explanation.generation import Generation
from .run import explain_tokens
from .steps import CALL, generate_tokens, is_encoder_decoder, read_continuation


class GenerationMethods:
    """Explain what a language model writes."""

    if TYPE_CHECKING:

        @property
        def _explainer(self) -> Explainer: ...
        def _meta(self, question: Question) -> dict[str, Any]: ...

    @with_gradients
    def generation(
        self,
        prompt: Any,
        *,
        max_new_tokens: int = 20,
        continuation: Any = None,
        against: Any = "others",
        log_probability: bool = False,
        baselines: Any = None,
        segments: Mapping[str, Any] | None = None,
        generate: Mapping[str, Any] | None = None,
    ) -> Any:
        """Let a language model write, and explain every token by all tokens before it, from one forward pass.

        Works with causal models and encoder-decoders of transformers, and with ``continuation=`` for any model from token ids
        to logits (rows, positions, vocabulary).

        Args:
            prompt: A string, chat messages (``[{"role": "user", "content": "..."}]``), token ids, or what the tokenizer
                returns, from which padding is taken out. A list of strings or chats gives a list of results.
            max_new_tokens: How many tokens the model's own ``generate`` writes at most.
            continuation: Explain this text instead: a string or token ids. Nothing is generated.
            against: Explain the difference to another output: "others" is the mean of all other logits; a token, as a string
                or id, or a list of tokens, whose mean is taken. None explains the logit alone, which says little in a large
                vocabulary.
            log_probability: Explain the log-probability: the logit minus logsumexp, whose weights are frozen.
            baselines: What tokens are compared with. None is the mask token of the tokenizer, or without one a zero
                embedding; "zero", "mask", or a token id.
            segments: Parts of the prompt that ``.by("segment")`` sums: name -> (start, end) in characters, or the text itself.
            generate: Further options of the model's ``generate``. Without them it takes the likeliest token at each step.

        Returns:
            A ``Generation``: ``.plot()``, ``.html()``, ``.to_frame()``, ``.by("word")``, ``.span(0, 3)``, ``.explanation``.

        Raises:
            ValueError: The model does not generate, or an argument is not allowed.

        Example:
            >>> import torch, cafexai
            >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))
            >>> g = cafexai.CAFE(model).generation([1, 2, 3], continuation=[4, 5])
            >>> len(g), g.sources
            (2, ('1', '2', '3', '4'))
        """
        options: dict[str, Any] = {"against": against, "log_probability": log_probability, "baselines": baselines}
        prompt = _without_padding(prompt)
        if _is_several(prompt):
            if continuation is not None and (not isinstance(continuation, (list, tuple)) or len(continuation) != len(prompt)):
                raise ValueError(f"{CALL}([...], continuation=...): give one continuation for each of {len(prompt)} prompts.")
            ends = [None] * len(prompt) if continuation is None else continuation
            if segments is not None:
                raise ValueError(f"{CALL}([...], segments=...): segments are parts of one prompt. Give a single prompt.")
            return [
                self._generation(one, max_new_tokens, end, None, generate or {}, options)
                for one, end in zip(prompt, ends, strict=True)
            ]
        return self._generation(prompt, max_new_tokens, continuation, segments, generate or {}, options)

    def _generation(
        self,
        prompt: Any,
        max_new_tokens: int,
        continuation: Any,
        segments: Mapping[str, Any] | None,
        generate: Mapping[str, Any],
        options: dict[str, Any],
    ) -> Generation:
        explainer = self._explainer
        subject, tokenizer = explainer.subject, explainer.info.tokenizer
        read = read_prompt(prompt, tokenizer, segments, CALL)
        if continuation is None:
            made = generate_tokens(subject, tokenizer, read, max_new_tokens, generate)
        else:
            made = read_continuation(
                continuation, read, tokenizer, isinstance(prompt, str) and not is_encoder_decoder(subject.model)
            )
        return explain_tokens(explainer, self._meta(Question()), read, made, **options)


def _without_padding(prompt: Any) -> Any:
    """The token ids of each row of an encoding, without those that its mask leaves out; other prompts as they are."""
    if not is_encoding(prompt):
        return prompt
    ids = torch.as_tensor(prompt["input_ids"])
    ids = ids if ids.ndim == 2 else ids[None]
    mask = torch.as_tensor(prompt["attention_mask"]).reshape(ids.shape) if "attention_mask" in prompt else torch.ones_like(ids)
    rows = [row[there != 0].tolist() for row, there in zip(ids, mask, strict=True)]
    return rows if len(rows) > 1 else rows[0]


def _is_several(prompt: Any) -> bool:
    """A list of prompts: strings, chats or rows of token ids."""
    if isinstance(prompt, Tensor):
        return prompt.ndim == 2 and len(prompt) > 1
    return (
        isinstance(prompt, (list, tuple))
        and len(prompt) > 0
        and not is_chat(prompt)
        and not all(isinstance(one, int) for one in prompt)
    )
