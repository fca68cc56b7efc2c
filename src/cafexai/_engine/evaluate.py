"""The explained number of the model itself, at inputs in which features are set to their baseline."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._carriers.path import PathScores
from .._core.foreign import pass_on
from .._core.run import Run
from .._core.tolerance import all_finite
from .._inputs.target import pick_outputs
from ..errors import InternalError
from ..rules.registry import TABLE
from .attempt import has_outputs
from .faults import refuse_own_fault
from .forward import chain_output, forward, plain_output
from .job import Batch, Job
from .zeroed_codes import ZeroedCodes, ZeroedPass


class NotEvaluated(ValueError):
    """The model cannot be evaluated with features removed; the message says why."""


@dataclass(frozen=True)
class Asked:
    """Which number of the output is explained, in each of some rows."""

    target: Tensor  # (rows, dimensions of the output)
    against: Tensor | None = None  # like target
    final: str | None = None  # a sigmoid or softmax at the end that is left out


def without(batch: Batch, removed: Tensor) -> Batch:
    """The rows with some elements at their baseline; ``removed`` is (rows, elements), input after input.

    With one dimension more in front, (sets, rows, elements), the rows without each of the sets, one below the other.
    """
    sizes = [x[0].numel() for x in batch.tensors]
    sets = removed.shape[:-2]
    tensors: list[Tensor] = []
    zeroed: list[Tensor | None] = []
    for x, reference, part in zip(batch.tensors, batch.references, removed.split(sizes, -1), strict=True):
        away, coded = part.reshape(*sets, *x.shape), reference is None and not x.is_floating_point()
        start: Any = 0 if reference is None else reference.to(x)
        made = x.expand(away.shape) if coded else torch.where(away, start, x)
        tensors.append(made.flatten(0, 1) if sets else made)
        zeroed.append((away.flatten(0, 1) if sets else away) if coded and bool(away.any()) else None)
    return dataclasses.replace(batch, tensors=tuple(tensors), zeroed=tuple(zeroed))


def evaluate(job: Job, batch: Batch, asked: Asked, chain: bool = False) -> Tensor:
    """The explained number at these rows, (rows,). ``chain``: the model is a plain chain of layers, which needs no guard.

    Raises:
        NotEvaluated: It is not finite there. Errors of the model itself are passed on.
    """
    zeroed = any(away is not None for away in batch.zeroed)
    if zeroed:
        run = Run(len(asked.target), job.settings)
        pairs = enumerate(zip(batch.tensors, batch.zeroed, strict=True))
        tensors = tuple(x if away is None else ZeroedCodes.make(run, x, away, place) for place, (x, away) in pairs)
        batch = dataclasses.replace(batch, tensors=tensors)
    with ZeroedPass() if zeroed else contextlib.nullcontext():
        if asked.final is None:
            found = _pick(chain_output(job, batch) if chain else plain_output(job, batch), asked)
        else:
            logits = _logits(job, batch, asked)
            if logits is None and zeroed:
                raise NotEvaluated("codes have no baseline code, and something follows the final softmax")
            found = _inside(job, batch, asked) if logits is None else logits
    if found.shape != asked.target.shape[:1]:
        raise NotEvaluated("the model does not give one output for each row there")
    if not all_finite(found):
        raise NotEvaluated("the output of the model is not finite there")
    return found.detach()


def try_evaluate(job: Job, batch: Batch, asked: Asked, chain: bool = False) -> Tensor:
    """The same; errors of the model itself are told as ``NotEvaluated``, too."""
    try:
        return evaluate(job, batch, asked, chain)
    except NotEvaluated:
        raise
    except Exception as error:
        refuse_own_fault(error, "explain")
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise NotEvaluated(reason) from error


def evaluate_together(job: Job, batch: Batch, asked: Asked, removed: Tensor, chain: bool = False) -> Tensor | None:
    """The explained number with several sets of elements at the baseline, in one pass: (sets, rows).

    ``removed`` is (sets, rows, elements). None if the model does not take so many rows, or is not finite at one of them.
    """
    many, rows = removed.shape[:2]

    def repeat(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.repeat(many, *(1,) * (part.ndim - 1))

    wide = Asked(asked.target.repeat(many, 1), repeat(asked.against), asked.final)
    large = dataclasses.replace(without(batch, removed), rows=slice(0, many * rows))
    if asked.final is not None:
        large = dataclasses.replace(large, references=tuple(map(repeat, batch.references)))
    try:
        return try_evaluate(job, large, wide, chain).view(many, rows)
    except (NotEvaluated, InternalError):  # a fault of ours comes again where the sets are evaluated one by one
        return None


class _LastFinal(TorchFunctionMode):
    """Records the input and the result of the last sigmoid or softmax."""

    logits: Any = None
    result: Any = None

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = pass_on(func, args, kwargs or {})
        rule = TABLE.get(func)
        if rule is not None and "final" in rule.kinds and not rule.in_place and args:
            self.logits, self.result = args[0], result
        return result


def _logits(job: Job, batch: Batch, asked: Asked) -> Tensor | None:
    """The explained logit, if the output of the model is the very result of its last sigmoid or softmax."""
    last = _LastFinal()
    with last:
        output = plain_output(job, batch)
    if output is not last.result or last.result is last.logits or last.logits.shape != output.shape:
        return None
    return _pick(last.logits, asked)


def _pick(output: Tensor, asked: Asked) -> Tensor:
    if not has_outputs(output, asked.target, asked.against):
        raise NotEvaluated("the model does not give the explained output there")
    return pick_outputs(output, asked.target, asked.against)


def _inside(job: Job, batch: Batch, asked: Asked) -> Tensor:
    """The explained logit from a pass on scored values, which finds it behind moves and sigmoids that are written out."""
    settings = dataclasses.replace(job.settings, carrier=PathScores)
    given = dataclasses.replace(job.given, tensors=batch.tensors)
    request = job.request.replace(target=asked.target if asked.target.shape[1] else None, against=asked.against)
    alone = dataclasses.replace(batch, rows=slice(0, len(asked.target)))
    job = dataclasses.replace(job, given=given, settings=settings, features=None, request=request)
    passed = forward(job, alone, settings)
    found = passed.chosen.value
    passed.run.release()
    return found
