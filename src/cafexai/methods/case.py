"""What a method is asked to attribute, in one form for all methods, and the table in which each is one registered function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from .._core.variant import ALLOWED
from .._docstrings import join_docstrings
from .._engine.diagnose import answer
from .._engine.model import Subject, with_gradients
from .._engine.state_guard import StateGuard
from .._inputs import resolve_old_words
from .._inputs.baselines import references
from .._inputs.groups import default_names, places
from .._inputs.prepare import model_dtype, prepare
from .._inputs.target import choose_target
from .embedded import Embedded, embedded_baseline, embedded_model


@dataclass(frozen=True)
class Case:
    """A model, its rows, what these are compared with and, once ``aimed``, one output of each row."""

    name: str  # of the method, for messages
    model: Any
    x: Tensor
    baselines: list[Tensor | None]  # each shaped like x, None for zeros; scores are averaged over them
    groups: Tensor  # the number of the group of each element, shaped like one row; groups count from 0
    wanted: Any = None  # the target as the user gave it
    index: Tensor | None = None  # (rows, dimensions of the output besides the rows)
    sizes: tuple[int, ...] = ()  # of the output besides the rows

    @property
    def target(self) -> Any:
        """The output in Captum's form."""
        if not self.sizes or self.index is None:
            return None
        return self.index[:, 0].to(self.x.device) if len(self.sizes) == 1 else [tuple(row) for row in self.index.tolist()]

    @property
    def places(self) -> tuple[Tensor, ...]:
        """The index into each dimension of the output besides the rows."""
        return () if not self.sizes or self.index is None else tuple(self.index.unbind(1))

    @property
    def starts(self) -> list[Tensor]:
        """The baselines with zeros written out."""
        return [torch.zeros_like(self.x) if one is None else one for one in self.baselines]

    @property
    def stack(self) -> Tensor | None:
        """The baselines as ``CAFE.attribute`` takes them."""
        return self.baselines[0] if len(self.baselines) == 1 else torch.stack(self.starts)

    def aim(self) -> Case:
        """The case with one output of each row; None is the only output, or else the predicted class."""
        output = answer(self.name, self.model, self.x.clone())
        if not isinstance(output, Tensor) or not output.ndim or output.shape[0] != len(self.x):
            what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"type {type(output).__name__}"
            raise ValueError(
                f"{self.name}(model, x): the model's output of {what} is not a tensor with one entry per row of x. Give a "
                'function that picks it, such as lambda x: model(x)["logits"].'
            )
        _, index = choose_target(output, self.wanted, slice(0, len(self.x)), len(self.x), self.name)
        return dataclasses.replace(self, index=index, sizes=output.shape[1:])

    def some(self, rows: slice) -> Case:
        """Some of the rows."""
        baselines = [None if one is None else one[rows] for one in self.baselines]
        index = None if self.index is None else self.index[rows]
        return dataclasses.replace(self, x=self.x[rows], baselines=baselines, index=index)

    def outputs(self, x: Tensor) -> Tensor:
        """The chosen outputs for n versions of every row, (rows, n, *row) to (rows, n)."""
        rows, count = x.shape[:2]
        out = self.model(x.flatten(0, 1))
        if out.shape[0] != rows * count:
            raise ValueError(f"The output of shape {tuple(out.shape)} does not have one entry for each of {rows * count} rows.")
        picks = (part.to(out.device).repeat_interleave(count) for part in self.places)
        places = (torch.arange(rows * count, device=out.device), *picks)
        return out[places].view(rows, count)


def case(name: str, model: Any, x: Any, baselines: Any = None, feature_groups: Any = None, target: Any = None) -> Case:
    """Check the arguments of a method and bring them into one form; a pipeline transforms rows and baselines here, once."""
    subject = Subject(model)
    subject.ready(name)
    given = prepare(x, subject.model, call=name)
    by_vectors = None if given.is_tuple else embedded_model(name, subject.model, given.tensors[0])
    if by_vectors is not None:
        return _case_of_tokens(name, by_vectors, given.tensors[0], baselines, feature_groups, target)
    if given.is_tuple or not given.tensors[0].is_floating_point():
        raise ValueError(
            f"{name}(model, x): x is one tensor or table of floating point numbers, shaped (rows, ...): x.float() for a table "
            "of integers. Token ids, (rows, tokens), are taken if model is a module that gives a tensor, with one embedding "
            "layer for them. CAFE(model).explain also takes several inputs and integer codes."
        )
    rows = given.tensors[0].clone() if given.tensors[0].is_inference() else given.tensors[0]
    dtype, _ = model_dtype(subject.model)
    if isinstance(subject.model, nn.Module) and any(True for _ in subject.model.parameters()) and dtype != rows.dtype:
        raise ValueError(f"{name}(model, x): x is {rows.dtype} and the model {dtype}; convert one, such as x.to({dtype}).")
    stack = [one for (one,) in references(baselines, given, None, subject.model, name)]
    plain = subject.model.network if subject.takes_raw else subject.model
    shape = rows.shape[1:]
    groups = torch.arange(shape.numel())
    if feature_groups is not None:
        if getattr(feature_groups, "dtype", None) in (torch.bool, np.bool_):
            feature_groups = torch.as_tensor(feature_groups).long()
        groups, _ = places(feature_groups, [shape], lambda: given.names or default_names([shape]), name)
    return Case(name, plain, rows, stack, groups.view(shape).to(rows.device), target)


def _case_of_tokens(name: str, model: Embedded, ids: Tensor, baselines: Any, feature_groups: Any, target: Any) -> Case:
    """Vectors of tokens as rows, and all numbers of a vector as one group."""
    vectors, tokens = model.embed(ids), ids.shape[1:]
    groups = torch.arange(ids.shape[1])
    if feature_groups is not None:
        groups, _ = places(feature_groups, [tokens], lambda: default_names([tokens]), name)
    start = embedded_baseline(name, model, ids, baselines)
    return Case(name, model, vectors, [start], groups[:, None].expand(vectors.shape[1:]).to(ids.device), target)


@contextlib.contextmanager
def drawing(seed: int, x: Tensor) -> Iterator[None]:
    """Random numbers from a seed; those of the caller are left alone. Captum draws from torch and from numpy."""
    state = np.random.get_state()
    starts = {device: torch.Generator(device).manual_seed(seed).get_state() for device in {x.device, torch.device("cpu")}}
    with StateGuard(None, (), starts):
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(state)


class Method(Protocol):
    """Scores shaped like x; a method may have options of its own."""

    def __call__(
        self, model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_groups: Any = None, **options: Any
    ) -> Tensor: ...


METHODS: dict[str, Method] = {}
_SHARED = """Shared by all methods.

Args:
    model: A module, or a function of tensors.
    x: The rows, a tensor or a table of floating point numbers, (rows, ...), or token ids, (rows, tokens), of a module with
        one embedding layer for them; gradients are taken at its vectors.
    target: The output to explain: an index, one per row, or tuples for outputs of more dimensions. None is the only
        output, or the predicted class of each row.
    baselines: {baselines}
    feature_groups: {groups}

Returns:
    The scores, shaped like x.

Raises:
    ValueError: An argument is not allowed, or the model does not give one output per row.
    UnsupportedOperation: The method cannot explain an operation of the model.

Example:
    >>> import torch
    >>> from cafexai.methods import {name}
    >>> {name}(torch.nn.Linear(2, 1), torch.ones(3, 2)).shape
    torch.Size([3, 2])
"""
_BASELINES = {
    True: "What rows are compared with, as in ``CAFE.explain``; None is zero. Scores are averaged over a stack.",
    False: "Accepted and ignored: the method has no baseline.",
}
_GROUPS = {
    True: """Groups of features, ``{"sex": [3, 4]}`` or an integer mask shaped like a row. Every element gets the
        score of its group.""",
    False: "Accepted and ignored: the method scores single elements.",
}
_group_scores: list[Method] = []


def method(
    *, baselines: bool = True, aimed: bool = True, group_scores: bool = False
) -> Callable[[Callable[..., Tensor]], Method]:
    """Register a function ``(case, *, options) -> scores`` under its name.

    Args:
        baselines: The function compares rows with baselines; else they are ignored.
        aimed: The case has its target as an index, for which the model is called once; else ``case.wanted`` is what the
            user gave.
        group_scores: Every element of a group gets the score of the group.

    Returns:
        The decorator. It returns a function with the signature of all methods and the options of the decorated one.

    Example:
        >>> from cafexai.methods import METHODS, method
        >>> @method()
        ... def input_minus_baseline(case):
        ...     return case.x - case.starts[0]
        >>> METHODS.pop("input_minus_baseline")(torch.nn.Linear(2, 1), torch.ones(1, 2))
        tensor([[1., 1.]])
    """
    compares = baselines

    def register(own: Callable[..., Tensor]) -> Method:
        name = own.__name__
        options = [p for p in inspect.signature(own).parameters.values() if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        known = {option.name for option in options}
        if any(p.kind is p.VAR_KEYWORD for p in options):
            known |= set(ALLOWED)  # options of a variant

        @functools.wraps(own)
        def run(
            model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_groups: Any = None, **given: Any
        ) -> Tensor:
            others = {word: given.pop(word) for word in list(given) if word not in known}
            (groups,) = resolve_old_words(name, others, feature_groups=(feature_groups, None, "feature_mask"))
            asked = case(name, model, x, baselines if compares else None, groups, target)
            found = own(asked.aim() if aimed else asked, **given)
            if not isinstance(asked.model, Embedded) or found.shape == np.shape(x):
                return found
            return found[..., 0] if group_scores else found.sum(-1)  # by token; of its group each number has the score

        shared = [p for p in inspect.signature(run, follow_wrapped=False).parameters.values() if p.kind is not p.VAR_KEYWORD]
        run.__signature__ = inspect.Signature([*shared, *options], return_annotation=Tensor)  # type: ignore[attr-defined]
        run.__doc__ = join_docstrings(
            own, _SHARED.format(name=name, baselines=_BASELINES[compares], groups=_GROUPS[group_scores])
        )
        METHODS[name] = with_gradients(run)
        if group_scores:
            _group_scores.append(METHODS[name])
        return METHODS[name]

    return register


def scores_groups(method: Any) -> bool:
    """Whether every element of a group gets the score of its group.

    Args:
        method: A registered method.

    Returns:
        True or False.

    Example:
        >>> from cafexai import methods
        >>> methods.scores_groups(methods.METHODS["lime"])
        True
    """
    return any(method is one for one in _group_scores)
