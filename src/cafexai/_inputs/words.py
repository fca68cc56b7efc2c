"""Texts: token ids from strings and encodings, and words instead of pieces of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .word_spans import Span, word_index, word_names

SPECIAL = "(special"  # begins the name of what padding, beginnings and ends together are
NOT_FOR_MODELS = (  # what tokenizers add for others
    "special_tokens_mask",
    "offset_mapping",
    "length",
    "overflow_to_sample_mapping",
    "overflowing_tokens",
    "num_truncated_tokens",
)
EXPLAINED = ("input_ids", "pixel_values", "input_values", "input_features")  # what has scores: words, pictures, sounds
INSIDE, END = "##", "</w>"  # of pieces inside a word, and of the last one of a word
BEFORE = ("▁", "Ġ")  # of pieces with a space before them, in letters and in bytes
NO_LIMIT = 10**6  # tokenizers that know no longest text say a huge number


@dataclass(frozen=True)
class Words:
    """Which word each token of each row belongs to; rows with fewer words are filled with ""."""

    index: Tensor  # (rows, tokens)
    names: tuple[tuple[str, ...], ...]  # equally many for each row


class Written(NamedTuple):
    """A text as the user wrote it, and where its tokens are."""

    text: str
    spans: Sequence[Span | None]
    word_ids: Sequence[int | None]


def is_encoding(inputs: Any) -> bool:
    """What a tokenizer or processor returns: input_ids or pixels and more, by name."""
    return hasattr(inputs, "keys") and any(name in inputs.keys() for name in EXPLAINED)  # noqa: SIM118  (it is no Mapping)


def is_text(inputs: Any) -> bool:
    """A string, or a list, an array or a column of them."""
    if isinstance(inputs, str):
        return True
    listed = (
        isinstance(inputs, (list, tuple)) or hasattr(inputs, "to_list") or (isinstance(inputs, np.ndarray) and inputs.ndim == 1)
    )
    return listed and len(inputs) > 0 and all(isinstance(one, str) for one in inputs)


def is_text_pairs(inputs: Any) -> bool:
    """A list of pairs of strings."""
    return isinstance(inputs, list) and len(inputs) > 0 and all(isinstance(one, tuple) and is_text(one) for one in inputs)


def encode_text(
    texts: Sequence[str | tuple[str, ...]], tokenizer: Any, call: str
) -> tuple[Any, tuple[str, ...], list[Written] | None]:
    """What the tokenizer makes of texts or pairs, a note on those that are too long, and how they are written, if it knows."""
    if not callable(tokenizer):
        raise ValueError(f"{call}({texts[:1]!r}, ...): which tokenizer? Give the one of the model: tokenizer=...")
    longest = getattr(tokenizer, "model_max_length", None)
    limit = longest if isinstance(longest, int) and longest < NO_LIMIT else None
    options = {} if limit is None else {"truncation": True, "max_length": limit}
    if len(texts) > 1 and getattr(tokenizer, "pad_token", "") is None:
        raise ValueError(
            f"{call}([{texts[0]!r}, ...]): several texts are padded to one length, and the tokenizer has no token for it. Set "
            "tokenizer.pad_token = tokenizer.eos_token (the attention mask leaves padding out), or give one text at a time."
        )
    if any(isinstance(one, tuple) and len(one) != 2 for one in texts):
        raise ValueError(f"{call}([...]): texts come alone, or in pairs, [(first, second), ...].")
    rows = [one if isinstance(one, tuple) else (one,) for one in texts]
    columns = [list(column) for column in zip(*rows, strict=True)]
    fast = bool(getattr(tokenizer, "is_fast", False))
    options |= {"return_offsets_mapping": True} if fast else {}
    encoding = tokenizer(*columns, padding=len(texts) > 1, return_tensors="pt", **options)
    notes: tuple[str, ...] = ()
    if limit is not None and encoding["input_ids"].shape[1] >= limit:
        cut = [row for row, text in enumerate(rows) if len(tokenizer(*text)["input_ids"]) > limit]
        notes = (f"Cut after {limit} tokens, the most the tokenizer allows: row {', '.join(map(str, cut))}.",) if cut else ()
    return encoding, notes, [_written(encoding, row, parts) for row, parts in enumerate(rows)] if fast else None


def _written(encoding: Any, row: int, parts: Sequence[str]) -> Written:
    """The parts of a row as one text; no word goes from one part into the next."""
    starts = (0, len(parts[0]) + 1)
    own = encoding.sequence_ids(row)
    spans: list[Span | None] = []
    for part, (start, end) in zip(own, encoding["offset_mapping"][row].tolist(), strict=True):
        spans.append(None if part is None else (starts[part] + start, starts[part] + end))
    ids = [None if word is None else word + part * len(own) for word, part in zip(encoding.word_ids(row), own, strict=True)]
    return Written("\n".join(parts), spans, ids)


def split_encoding(encoding: Any, extra: Any, words: bool, call: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is explained, by name, and all else that the model takes by name, beside what the user gave.

    Of words and pictures, both are, if each text has its picture; ``words`` asks for those alone.
    """
    parts = {str(k): _tensor(v) for k, v in dict(encoding).items() if k not in NOT_FOR_MODELS and v is not None}
    first, *more = (name for name in EXPLAINED if name in parts)
    rows = len(parts[first])
    chosen = [first, *(name for name in more if not words and isinstance(parts[name], Tensor) and len(parts[name]) == rows)]
    others = {name: part for name, part in parts.items() if name not in chosen}
    if extra is not None and not isinstance(extra, Mapping):
        raise ValueError(
            f"{call}(encoding, additional_forward_args={type(extra).__name__}): {', '.join(others) or 'nothing'} of the "
            "encoding goes to the model by name; give further arguments by name, too: a dictionary."
        )
    return {name: parts[name] for name in chosen}, {**others, **(extra or {})}


def _tensor(value: Any) -> Any:
    """Rows of numbers as a tensor: tokenizers return lists unless they are asked for tensors."""
    if not isinstance(value, list):
        return value
    try:
        return torch.tensor(value)
    except (TypeError, ValueError):
        raise ValueError(
            "explain(encoding): its rows have different numbers of tokens. Ask the tokenizer for equal ones: "
            "tokenizer(texts, padding=True, return_tensors='pt')."
        ) from None


def tokens_of(tokenizer: Any, ids: Tensor) -> tuple[tuple[str, ...], ...]:
    """The tokens of each row, as the tokenizer writes them."""
    return tuple(tuple(map(str, tokenizer.convert_ids_to_tokens(row))) for row in ids.tolist())


def words_of(tokenizer: Any, ids: Tensor, mask: Any = None, written: Sequence[Written] | None = None) -> Words:
    """Pieces of words put together, row by row; special tokens, padding, and what ``mask`` leaves out are one entry.

    ``written`` are the texts, whose spelling the words keep.
    """
    special = special_ids(tokenizer)
    rows = tokens_of(tokenizer, ids)
    mark = _mark(tokenizer, rows)
    fits = isinstance(mask, Tensor) and mask.shape == ids.shape
    counts = (mask != 0).tolist() if fits else [[True] * len(tokens) for tokens in rows]
    found: list[list[Any]] = []
    index = torch.zeros(ids.shape, dtype=torch.long)
    for row, tokens in enumerate(rows):
        if written is not None:
            text, spans, numbers = written[row]
            own = word_index(text, spans, numbers)
            index[row] = torch.tensor(own)
            found.append(list(word_names(text, spans, own)))
            continue
        words: list[list[str]] = []
        before: str | None = None
        for place, (token, number) in enumerate(zip(tokens, ids[row].tolist(), strict=True)):
            if number in special or not counts[row][place]:
                index[row, place], before = -1, None
                continue
            if _begins(token, before, mark):
                words.append([])
            words[-1].append(token)
            index[row, place], before = len(words) - 1, token
        found.append(words)
    any_special = bool((index < 0).any())
    most = max(map(len, found)) + any_special
    names = []
    for row, words in enumerate(found):
        called = [one if isinstance(one, str) else _text(tokenizer, one, mark) for one in words]
        called += [_name_special(rows[row], index[row], counts[row])] * any_special
        index[row][index[row] < 0] = len(words)
        names.append((*called, *[""] * (most - len(called))))
    return Words(index, tuple(names))


def _name_special(tokens: Sequence[str], index: Tensor, counts: Sequence[bool]) -> str:
    """The special tokens of a row by name; padding only where there is nothing else. "" if the row has none."""
    apart = [place for place, word in enumerate(index.tolist()) if word < 0]
    called = dict.fromkeys(tokens[place] for place in apart if counts[place]) or dict.fromkeys(tokens[place] for place in apart)
    return f"{SPECIAL}: {' '.join(called)})" if called else ""


def leave_out_special(words: Words) -> Words:
    """The same without a name for special tokens, which are as in the baseline: nothing is shown of them."""
    names = tuple(tuple("" if name.startswith(SPECIAL) else name for name in row) for row in words.names)
    return replace(words, names=names)


def mask_words(baselines: Any, ids: Tensor, tokenizer: Any) -> tuple[Any, tuple[str, ...]]:
    """What words are compared with, and a note on it: the mask token, if the tokenizer has one and nothing else is asked for.

    "mask" asks for it, "zero" for zero embeddings. Special tokens stay as they are, so that they have no score.
    """
    number = getattr(tokenizer, "mask_token_id", None)
    word = baselines if isinstance(baselines, str) else None
    if word == "zero":
        return None, ()
    if word == "mask" and number is None:
        raise ValueError(
            'explain(..., baselines="mask"): the tokenizer has no mask token. Give an id, such as that of its padding '
            '(baselines=tokenizer.pad_token_id), or "zero" for zero embeddings.'
        )
    if ids.is_floating_point() or number is None or (baselines is not None and word != "mask"):
        return baselines, ()
    stays = torch.isin(ids, torch.tensor(sorted(special_ids(tokenizer)), dtype=ids.dtype, device=ids.device))
    note = f"Words are compared with the mask token, {tokenizer.mask_token!r}, in their place; special tokens stay."
    return torch.where(stays, ids, torch.full_like(ids, number)), (note,)


def special_ids(tokenizer: Any) -> set[int]:
    """Ids that stand for no part of a text; an unknown word, and one that is masked, are words."""
    own = {getattr(tokenizer, name, None) for name in ("unk_token_id", "mask_token_id")}
    ends = {getattr(tokenizer, f"{name}_token_id", None) for name in "pad bos eos cls sep".split()}
    return set(getattr(tokenizer, "all_special_ids", ())) - (own - ends)


def _mark(tokenizer: Any, rows: Sequence[Sequence[str]]) -> str:
    """How tokens say where words begin or end: the mark that most of the vocabulary has; "" if none has one."""
    vocabulary = list(tokenizer.get_vocab()) if hasattr(tokenizer, "get_vocab") else [token for row in rows for token in row]
    counts = {mark: sum(token.startswith(mark) for token in vocabulary) for mark in (INSIDE, *BEFORE)}
    counts[END] = sum(token.endswith(END) for token in vocabulary)
    mark = max(counts, key=lambda one: counts[one])
    return mark if counts[mark] else ""


def _begins(token: str, before: str | None, mark: str) -> bool:
    """A word begins with this token; ``before`` is the one before it in the same text."""
    if before is None or not mark:
        return True
    if mark == END:
        return before.endswith(END)
    if mark == INSIDE:
        return not token.startswith(INSIDE)
    return token.startswith((mark, "Ċ")) or not any(map(str.isalnum, token))  # or is no part of a word, such as a comma


def _text(tokenizer: Any, pieces: list[str], mark: str) -> str:
    """A word as it is read; only tokens of bytes need the tokenizer for that."""
    plain = "".join(piece.removeprefix(INSIDE) if mark == INSIDE else piece.removesuffix(END) for piece in pieces)
    if mark == BEFORE[1] and hasattr(tokenizer, "convert_tokens_to_string"):
        plain = str(tokenizer.convert_tokens_to_string(pieces))
    return plain.replace(BEFORE[0], " ").strip() or "".join(pieces)
