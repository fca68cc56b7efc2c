"""Prompts as people have them: a string, chat messages or token ids, with the text that every token stands for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from .word_spans import Span, word_index, word_names
from .words import special_ids

CHAT = ("role", "content")
REST = "(rest of the prompt)"
Groups = Mapping[str, tuple[tuple[int, ...], tuple[str, ...]]]  # a way to sum tokens -> the group of each, and their names


@dataclass(frozen=True)
class Tokens:
    """Tokens with the text that they stand for.

    Args:
        ids: Their ids.
        names: Each as text, with the spaces that belong to it.
        words: The word that each belongs to; special tokens are words of their own.
        word_names: The words.
        spans: The characters of each in ``text``; None for special tokens.
        text: The whole text.
        groups: Other ways to sum them: "message", "segment".
        notes: Remarks on how the text was read.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]
    words: tuple[int, ...]
    word_names: tuple[str, ...]
    spans: tuple[Span | None, ...]
    text: str
    groups: Groups = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_chat(prompt: Any) -> bool:
    """A list of messages, each with a role and a content."""
    return (
        isinstance(prompt, (list, tuple))
        and len(prompt) > 0
        and all(isinstance(one, Mapping) and all(key in one for key in CHAT) for one in prompt)
    )


def read_prompt(prompt: Any, tokenizer: Any, segments: Mapping[str, Any] | None, call: str) -> Tokens:
    """One prompt, turned into tokens.

    Args:
        prompt: A string, chat messages, or token ids.
        tokenizer: That of the model.
        segments: Name -> (start, end) in characters of the prompt, or the text itself, which must occur once.
        call: The name of the call, for errors.
    """
    if is_chat(prompt):
        if segments is not None:
            raise ValueError(f"{call}(messages, segments=...): segments are parts of one string. Messages are groups already.")
        return _read_chat(prompt, tokenizer, call)
    if isinstance(prompt, str):
        _check_tokenizer(tokenizer, call)
        tokens = from_text(prompt, tokenizer, True)
    else:
        tokens = from_ids(list_ids(prompt, f"{call}(prompt)"), tokenizer)
    if not tokens.ids:
        raise ValueError(f"{call}({prompt!r}): the prompt has no tokens. Give at least one word.")
    return tokens if segments is None else _with_segments(tokens, segments, call)


def from_text(text: str, tokenizer: Any, special: bool) -> Tokens:
    """The tokens of a string; ``special``: with those that the tokenizer adds."""
    if not getattr(tokenizer, "is_fast", False):
        return from_ids([int(one) for one in tokenizer(text, add_special_tokens=special)["input_ids"]], tokenizer)
    encoding = tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
    ids, kept = encoding["input_ids"], special_ids(tokenizer)
    spans = [
        None if number in kept and (start, end) == (0, 0) else (int(start), int(end))
        for number, (start, end) in zip(ids, encoding["offset_mapping"], strict=True)
    ]
    return _describe(ids, tokenizer, text, spans, encoding.word_ids())


def from_ids(ids: Sequence[int], tokenizer: Any) -> Tokens:
    """Tokens whose text is what the tokenizer makes of each of them."""
    kept = special_ids(tokenizer)
    spans: list[Span | None] = []
    text = ""
    for number in ids:
        piece = token_text(tokenizer, number)
        spans.append(None if number in kept else (len(text), len(text) + len(piece)))
        text += "" if number in kept else piece
    return _describe(ids, tokenizer, text, spans, None)


def token_text(tokenizer: Any, number: int) -> str:
    """One token as it is read, with its space."""
    if tokenizer is None:
        return f" {number}"
    token = str(tokenizer.convert_ids_to_tokens(int(number)))
    if token.startswith("▁"):
        return token.replace("▁", " ")
    if token.startswith("##"):
        return token.removeprefix("##")
    return str(tokenizer.decode([int(number)])) if hasattr(tokenizer, "decode") else token


def list_ids(ids: Any, call: str) -> list[int]:
    """Token ids of one text, given as a list or a tensor."""
    if isinstance(ids, Tensor):
        ids = ids[0] if ids.ndim == 2 and len(ids) == 1 else ids
        if ids.ndim == 1 and not ids.is_floating_point():
            return [int(one) for one in ids.tolist()]
    elif isinstance(ids, (list, tuple)) and all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        return list(ids)
    raise ValueError(f"{call}: give a string, chat messages, or the token ids of one text.")


def _describe(
    ids: Sequence[int], tokenizer: Any, text: str, spans: Sequence[Span | None], word_ids: Sequence[int | None] | None
) -> Tokens:
    index = word_index(text, spans, word_ids)
    words, named = _with_special(index, list(word_names(text, spans, index)), [token_text(tokenizer, one) for one in ids])
    names = tuple(
        token_text(tokenizer, one) if span is None or span[0] == span[1] else text[span[0] : span[1]]
        for one, span in zip(ids, spans, strict=True)
    )
    return Tokens(tuple(map(int, ids)), names, words, named, tuple(spans), text)


def _with_special(index: Sequence[int], names: list[str], own: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Words in the order of the text, with special tokens as words of their own."""
    found: list[int] = []
    named: list[str] = []
    known: dict[int, int] = {}
    for place, word in enumerate(index):
        if word < 0 or word not in known:
            named.append(own[place] if word < 0 else names[word])
            if word >= 0:
                known[word] = len(named) - 1
        found.append(len(named) - 1 if word < 0 else known[word])
    return tuple(found), tuple(named)


def _read_chat(messages: Sequence[Mapping[str, Any]], tokenizer: Any, call: str) -> Tokens:
    """Messages through the chat template of the tokenizer, with one group for each message."""
    _check_tokenizer(tokenizer, call)
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"{call}(messages): the tokenizer has no chat template. Set tokenizer.chat_template, or give a string."
        )
    messages = [{**one, "content": _content(one["content"], call)} for one in messages]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    tokens = from_text(text, tokenizer, False)
    spans: dict[str, Span] = {}
    at = 0
    for number, message in enumerate(messages, 1):
        content = message["content"].strip()
        start = text.find(content, at)
        if start < 0:
            told = f"The template changes message {number}, so that scores cannot be summed by message."
            return replace(tokens, notes=(told,))
        at = start + len(content)
        spans[f"{number} {message['role']}: {content}"] = (start, at)
    return replace(tokens, groups={"message": _group_tokens(tokens, spans, "(template)")})


def _content(content: Any, call: str) -> str:
    """The text of a message, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = [part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        kinds = [part.get("type", "?") if isinstance(part, Mapping) else type(part).__name__ for part in parts]
        raise ValueError(
            f"{call}(messages): a message has parts of the types {', '.join(map(repr, kinds))}. Only texts are explained: give "
            'content="...", or [{"type": "text", "text": "..."}].'
        )
    return "".join(map(str, texts))


def _with_segments(tokens: Tokens, segments: Mapping[str, Any], call: str) -> Tokens:
    spans: dict[str, Span] = {}
    for name, part in segments.items():
        spans[str(name)] = _segment(tokens.text, part, f"{call}(..., segments={{{name!r}: ...}})")
    ordered = sorted(spans.values())
    if any(one[1] > other[0] for one, other in itertools.pairwise(ordered)):
        raise ValueError(f"{call}(..., segments=...): two segments overlap. Give each character to one of them.")
    return replace(tokens, groups={**tokens.groups, "segment": _group_tokens(tokens, spans, REST)})


def _segment(text: str, part: Any, call: str) -> Span:
    """A part of the prompt by its characters, or by itself."""
    if isinstance(part, str):
        if not part or text.count(part) != 1:
            raise ValueError(f"{call}: this text occurs {text.count(part)} times in the prompt. Give (start, end).")
        return text.find(part), text.find(part) + len(part)
    listed = tuple(part) if isinstance(part, (list, tuple)) else ()
    if len(listed) != 2 or not all(type(one) is int for one in listed) or not 0 <= listed[0] < listed[1] <= len(text):
        raise ValueError(f"{call}: give (start, end) in characters, from 0 to {len(text)}, or the text of the segment.")
    return listed[0], listed[1]


def _group_tokens(tokens: Tokens, spans: Mapping[str, Span], rest: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The part that each token begins in; what is in none is the last group."""
    index = []
    for span in tokens.spans:
        first = None if span is None else span[0] + _leading(tokens.text[span[0] : span[1]])
        places = [place for place, (start, end) in enumerate(spans.values()) if first is not None and start <= first < end]
        index.append(places[0] if places else len(spans))
    return tuple(index), (*spans, *([rest] if len(spans) in index else []))


def _leading(piece: str) -> int:
    """How many spaces a token begins with."""
    return len(piece) - len(piece.lstrip()) if piece.strip() else 0


def _check_tokenizer(tokenizer: Any, call: str) -> None:
    if not callable(tokenizer):
        raise ValueError(f"{call}(...): which tokenizer? Give the one of the model: CAFE(model, tokenizer=tokenizer).")
