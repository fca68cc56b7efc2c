"""The explained output: the tensor among the outputs of the model, compared with the plain run, and the target in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._core.backward import Passed
from .._core.foreign import call_foreign
from .._core.provenance import final_of
from .._core.run import Run
from .._core.tensors import Complexed, Softmaxed
from .._core.value import Scores
from .._inputs.baselines import Reference
from .._inputs.causal import find_mask, is_causal
from .._inputs.output_path import follow_path
from .._inputs.target import OTHERS, choose_target, is_others, names_of_outputs, other_outputs, split_index
from .._inputs.token_targets import TextRows, index_several, several_tokens, token_targets
from ..errors import RowsMixed
from .check import check_output
from .job import Batch, Job
from .output_probabilities import probabilities


def select_output(raw: Any, output: Any) -> Any:
    """The one tensor to explain among the outputs of the model."""
    if output is None and isinstance(raw, Tensor):
        return raw
    if callable(output) and not isinstance(output, str):
        return call_foreign(output, raw)
    if output is not None:
        try:
            if not isinstance(output, str) or (isinstance(raw, Mapping) and output in raw):
                return raw[output]
            return follow_path(raw, output)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            raise ValueError(
                f"explain(..., output={output!r}): the model returns {_parts_of(raw)}. Give a key, an index, a function "
                'or a path such as "logits[:, -1]".'
            ) from None
    values = list(raw.values()) if isinstance(raw, Mapping) else list(raw) if isinstance(raw, (tuple, list)) else []
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    raise ValueError(
        f"explain(...): which output? The model returns {_parts_of(raw)}. Give output= a key, an index or a function."
    )


def _parts_of(raw: Any) -> str:
    if isinstance(raw, Mapping):
        return f"the keys {list(raw)}"
    if isinstance(raw, (tuple, list)):
        return f"{len(raw)} entries"
    return f"one tensor of shape {tuple(raw.shape)}" if isinstance(raw, Tensor) else f"a {type(raw).__name__}"


def select_target(output: Any, expected: Tensor, batch: Batch, run: Run, job: Job) -> Passed:
    """Compare the output with the plain one and pick the target."""
    if isinstance(output, Complexed):
        raise ValueError("explain(...): the output is complex. Explain its real part: output=lambda out: out.real.")
    if not isinstance(output, (Scores, Softmaxed)):
        frozen = ", ".join(dict.fromkeys(key.operation for key in run.frozen)) or "nothing"
        raise ValueError(
            "explain(...): the output does not depend on the input in a way that can be followed. It is a constant, or "
            f"was computed from values that are taken as constants (here: {frozen}), or forward leaves torch. Explain what "
            'comes before that: cafe.explain_neuron(x, "...", target=...).'
        )
    scores: Any = output
    final, notes = None, job.notes
    if isinstance(output, Softmaxed):
        scores, final, found, reference = output.logits, "softmax", output.as_subclass(Tensor), None
    else:
        found, reference = output.value, output.reference
        scores, final = final_of(output)
    check_output(found, reference, expected, run)
    if final is not None:
        notes = ("The final sigmoid or softmax is left out: the scores are about its logit.", *notes)
    notes = (*notes, *run.notes)
    shape = scores.template.shape
    if scores.rows is not None and shape and shape[0] == run.batch:
        raise RowsMixed(
            "explain(...): the model lets rows depend on each other, or gives them back in another order, so that an output "
            "has no row of its own. batch_size=1 explains every row by itself, as the model sees it alone. A graph, whose "
            "nodes depend on each other, is one row: "
            "CAFE(lambda x: model(x[0], edges)[None]).explain(nodes[None], target=(node, class))."
        )
    if scores.rows is not None or not shape or shape[0] != run.batch:
        raise ValueError(
            f"explain(...): the output of shape {tuple(shape)} does not have one entry per row in dimension 0, for "
            f"{run.batch} row(s). Dimension 0 of the inputs is the batch (a single row is x[None]); the output can be "
            "selected or reshaped: output=lambda out: ... A graph is one row: "
            "CAFE(lambda x: model(x[0], edges)).explain(nodes[None])."
        )
    if job.question.every_class and len(shape) > 2:
        raise ValueError(
            f"explain_classes(...): the output has shape {tuple(shape)}. Select one of shape (rows, classes) with output=."
        )
    if job.question.target_layer is not None and job.request.target is None and (units := shape[1:].numel()) > 1:
        raise ValueError(
            f"explain_neuron(..., layer={job.question.target_layer!r}, target=None): the layer has {units} units, of shape "
            f"{tuple(shape[1:])}. Give target=, the index of one."
        )
    target, names = (
        0 if job.question.every_class else job.request.target,
        job.class_names if job.question.target_layer is None else (),
    )
    against, text = job.request.against, text_rows(job)
    if text is not None and target is not None:
        target = token_targets(target, scores.value, text, batch.rows, names, "explain")
        if against is not None and not is_others(against, names) and several_tokens(against, job.given.rows) is None:
            against = token_targets(against, scores.value, text, batch.rows, names, "explain")
    pick, index = choose_target(scores.value, target, batch.rows, job.given.rows, names=names)
    other = None
    if against is None:
        chosen = scores.reshape(pick, aligned=True)
    elif is_others(against, names):
        others = other_outputs(scores.value, index, text=text is not None and scores.value.ndim == 3)
        chosen, other = _minus_mean(scores, pick, index[:, :-1], others), torch.full_like(index, OTHERS)
    elif (other := _index_several(job, batch, scores.value, text, index)) is not None:
        ids = torch.stack([one[:, -1] for one in split_index(other, index.shape[1])], 1)
        _refuse_same(job, batch, index, (ids == index[:, -1:]).any(1))
        chosen = _minus_mean(scores, pick, index[:, :-1], ids)
    else:
        try:
            subtract, other = choose_target(scores.value, against, batch.rows, job.given.rows, names=names)
        except ValueError as error:
            raise ValueError(str(error).replace("target=", "against=")) from None
        chosen = _difference(scores, pick, subtract)
        _refuse_same(job, batch, index, (index == other).all(1))
    likely = probabilities(job, scores.value, found if final is not None else None)
    called = names_of_outputs(names, scores.template.shape[1:])
    about = _find_explained(run, batch, job)
    return Passed(run, *about, found, scores, chosen, index, expected, final, notes, other, likely, called)


def _index_several(job: Job, batch: Batch, output: Tensor, text: TextRows | None, index: Tensor) -> Tensor | None:
    """Several outputs whose mean is subtracted, side by side, (rows of the batch, n * dimensions); None if it is one."""
    against = job.request.against
    if isinstance(against, Tensor) and against.ndim == 2 and against.shape[1] > index.shape[1] > 0:  # of an explanation
        return against[batch.rows] if len(against) == job.given.rows else against
    tokens = several_tokens(against, job.given.rows)
    if tokens is None:
        return None
    if text is None or output.ndim != 3:
        raise ValueError(
            f"explain(..., against={against!r}): several outputs are for language models with an output (rows, positions, "
            'vocabulary). Give one output, or "others".'
        )
    return index_several(tokens, index, output.shape[-1], text, "explain")


def _refuse_same(job: Job, batch: Batch, index: Tensor, same: Tensor) -> None:
    """Refuse an output that is held against itself."""
    if bool(same.any()):
        row = int(same.nonzero()[0])
        raise ValueError(
            f"explain(..., against={job.request.against!r}): for row {batch.rows.start + row} that is the explained output "
            f"itself, {index[row].tolist()}. Give two different ones."
        )


def text_rows(job: Job) -> TextRows | None:
    """The rows as texts, if a language model reads them: one input of token ids, its own output."""
    ids, model = job.given.tensors[0], None if job.question.target_layer is not None else job.subject.model
    if len(job.given.tensors) > 1 or ids.is_floating_point() or ids.ndim != 2 or not is_causal(model):
        return None
    return TextRows(ids, find_mask(model, job.extra, 1), job.tokenizer)


def _find_explained(run: Run, batch: Batch, job: Job) -> tuple[list[Tensor], list[Reference]]:
    """What the scores are about, with its references."""
    if job.question.layer is not None:
        if not run.leaves:
            raise ValueError(
                f"explain_layer(..., layer={job.question.layer!r}): the module was not called in this forward pass."
            )
        scores = run.leaves[0].scores
        return [scores.value], [scores.reference]
    met = {leaf.source for leaf in run.leaves}
    if len(met) < len(batch.tensors):
        missing = min(set(range(len(batch.tensors))) - met)
        raise ValueError(
            f"explain(...): the codes of input {missing} never reached an embedding. Integer inputs are explained "
            "there; pass x.float() if these are quantities, or additional_forward_args if they are no features."
        )
    return [run.wide(x) if x.is_floating_point() else x for x in batch.tensors], list(batch.references)


def _difference(scores: Scores, pick: Callable[[Tensor], Tensor], subtract: Callable[[Tensor], Tensor]) -> Scores:
    """One output minus another, as a module computes it: the edges of both are edges of the difference, none is netted."""
    one, other = (scores.reshape(choice, aligned=True) for choice in (pick, subtract))
    difference: Scores = one.add(other, alpha=-1)
    return difference


def _minus_mean(scores: Scores, pick: Callable[[Tensor], Tensor], places: Tensor, others: Tensor) -> Scores:
    """One output minus the mean of others, (rows, others) in the last dimension, at (rows, dimensions before it)."""
    index = others.to(scores.template.device)
    rows = torch.arange(len(index), device=index.device)[:, None]
    place = (rows, *(one[:, None] for one in places.to(index.device).unbind(1)), index)
    rest = scores.reshape(lambda v: v[place], aligned=True).linear(lambda v: v.mean(1), aligned=True)
    difference: Scores = scores.reshape(pick, aligned=True).add(rest, alpha=-1)
    return difference


def each_class(passed: Passed) -> list[Passed]:
    """The pass aimed at every class, one after the other."""
    batch, found = passed.run.batch, []
    for target in range(passed.scores.shape[1:].numel()):
        pick, index = choose_target(passed.scores.value, target, slice(0, batch), batch)
        found.append(dataclasses.replace(passed, chosen=passed.scores.reshape(pick, aligned=True), target=index))
    return found
