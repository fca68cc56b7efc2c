"""Explain all generated tokens of a text from one forward pass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .._engine.assemble import average_baselines, join_batches, pieces
from .._engine.explain_job import run_job
from .._engine.job import Job
from .._engine.prepare_job import Explainer, prepare_job
from .._engine.request import Question, Request
from .._engine.sides import measure_conflict
from .._inputs.prompt import Tokens
from .._inputs.words import mask_words
from ..explanation import Explanation
from ..explanation.generation import GENERATED, PROMPT, Generation, Level
from .contrast import Contrast, choose_contrast, logits_of
from .steps import CALL, Steps, describe_generated, plan_steps


def explain_tokens(
    explainer: Explainer,
    meta: Mapping[str, Any],
    prompt: Tokens,
    made: list[int],
    *,
    against: Any,
    log_probability: bool,
    baselines: Any,
) -> Generation:
    """The scores of all tokens before each generated one."""
    subject, tokenizer = explainer.subject, explainer.info.tokenizer
    steps = plan_steps(subject.model, prompt, made)
    subject.ready(CALL)
    logits = _plain_logits(explainer, steps)
    contrast = choose_contrast(steps, against, log_probability, logits, tokenizer)
    explanation = _explain(explainer, meta, steps, contrast, baselines)
    generated = describe_generated(tokenizer, made)
    start = _decoder_start(steps, tokenizer)
    sources, origins = _sources(prompt, start, generated)
    seen = _visible_tokens(len(made), len(prompt.ids) + len(start.ids))
    chance = logits.log_softmax(-1).gather(1, steps.tokens.to(logits.device)[:, None])[:, 0].exp()
    before = [prompt.names[-1] if not start.ids else start.names[-1], *generated.names[:-1]]
    names = tuple(
        f"next token {own!r} after {last!r}{contrast.rather_than}" for own, last in zip(generated.names, before, strict=True)
    )
    explanation = explanation.replace(
        probability=chance.to(explanation.output),
        target=torch.stack([steps.output_positions, steps.tokens], 1),
        against=contrast.against,
        target_names=names,
        row_names=tuple(f"{place} {name.strip() or name!r}" for place, name in enumerate(generated.names)),
        tokens=tuple(tuple(n if s else "" for n, s in zip(sources, row, strict=True)) for row in seen.tolist()),
        notes=(f"Explained is the {contrast.words}, of each generated token.", *prompt.notes, *explanation.notes),
    )
    levels = _levels(prompt, start, generated)
    whole = Generation(explanation, prompt.text, generated.names, sources, origins, seen, contrast.words, "token", levels)
    return whole.by("word") if explainer.info.words else whole


def _plain_logits(explainer: Explainer, steps: Steps) -> Tensor:
    """The logits of all generated tokens, (tokens, vocabulary), without scores."""
    subject = explainer.subject
    arguments = _by_name(explainer, steps)
    with subject.guard_state(), torch.no_grad():
        args = () if arguments else tuple(steps.inputs.values())
        raw = subject.model(*args, **arguments, **steps.options)
        found: Tensor = logits_of(raw)[0, steps.positions]
    return found.double()


def _by_name(explainer: Explainer, steps: Steps) -> dict[str, Tensor]:
    """The inputs by the names of their arguments, if forward has these."""
    return dict(steps.inputs) if explainer.subject.keywords(tuple(steps.inputs)) else {}


def _explain(explainer: Explainer, meta: Mapping[str, Any], steps: Steps, contrast: Contrast, baselines: Any) -> Explanation:
    """One row per generated token, one feature per token before the last."""
    compared, notes = _baselines(explainer, steps, baselines)
    inputs = tuple(steps.inputs.values())
    plain = explainer._replace(info=dataclasses.replace(explainer.info, tokenizer=None, class_names=(), probability=None))
    request = Request(
        compared if len(inputs) > 1 else compared[0], None, dict(steps.options), output=contrast.pick, conflict="net"
    )
    job = prepare_job(plain, inputs if len(inputs) > 1 else inputs[0], request, Question(every_class=True), CALL)
    keywords = explainer.subject.keywords(tuple(steps.inputs))
    job = dataclasses.replace(job, given=dataclasses.replace(job.given, keywords=keywords), notes=(*notes, *job.notes))
    return _side_by_side(_explain_all(job, {**meta, "baselines": len(job.stack)}))


def _baselines(explainer: Explainer, steps: Steps, baselines: Any) -> tuple[list[Any], tuple[str, ...]]:
    """What the tokens of each input are compared with."""
    found: list[Any] = []
    notes: tuple[str, ...] = ()
    for ids in steps.inputs.values():
        own, notes = mask_words(baselines, ids, explainer.info.tokenizer)
        found.append(own)
    return found, notes or ("Tokens are compared with a zero embedding in their place.",) * (found[0] is None)


def _explain_all(job: Job, meta: dict[str, Any]) -> Explanation:
    """The explanations of all generated tokens as rows of one."""
    finish = functools.partial(pieces, every_class=True)
    results = run_job(job, finish, average_baselines, CALL, functools.partial(measure_conflict, job))
    return join_batches([chunk for chunks in results.values() for chunk in chunks], job.given, meta)


def _side_by_side(explanation: Explanation) -> Explanation:
    """Tokens of encoder and decoder in one line."""
    fields = ("positive", "negative", "combined", "inputs", "baselines")
    return explanation.replace(**{name: explanation.flat(getattr(explanation, name)) for name in fields})


def _decoder_start(steps: Steps, tokenizer: Any) -> Tokens:
    """The token that a decoder starts with; none in causal models."""
    decoder = steps.inputs.get("decoder_input_ids")
    return describe_generated(tokenizer, [] if decoder is None else [int(decoder[0, 0])])


def _sources(prompt: Tokens, start: Tokens, generated: Tokens) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All tokens that have scores, and where they come from."""
    earlier = (*start.names, *generated.names[:-1])
    return (*prompt.names, *earlier), (*[PROMPT] * len(prompt.names), *[GENERATED] * len(earlier))


def _visible_tokens(count: int, before: int) -> Tensor:
    """Which tokens come before each generated one, (generated, tokens)."""
    return torch.arange(before + count - 1) < before + torch.arange(count)[:, None]


def _levels(prompt: Tokens, start: Tokens, generated: Tokens) -> dict[str, Level]:
    """Ways to sum tokens: words, messages, segments."""
    index, names = list(prompt.words), list(prompt.word_names)
    for part, most in ((start, len(start.ids)), (generated, len(generated.ids) - 1)):
        index += [word + len(names) for word in part.words[:most]]
        own = set(part.words[:most])
        names += [name for word, name in enumerate(part.word_names) if word in own]
    found = {"word": Level(torch.tensor(index), tuple(names))}
    later = len(start.ids) + len(generated.ids) - 1
    for kind, (places, called) in prompt.groups.items():
        more = [len(called)] * later
        found[kind] = Level(torch.tensor([*places, *more]), (*called, *(["(generated)"] if later else [])))
    return found
