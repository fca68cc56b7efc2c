"""Evaluate a model on rows from which features, or groups of them, are removed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .._docstrings import join_docstrings
from .._engine.diagnose import rows_for
from .._inputs import at_least
from .._inputs.baselines import expand_baseline
from .._inputs.groups import default_names, places
from .outputs import blocks_of_rows, choose_output, finite_scores, slices
from .registry import Bench, Best, metric

Replace = str | Callable[[Tensor], Tensor]  # a word, or a function from rows to the values of removed elements


def cells(x: Tensor, size: int) -> Tensor:
    """Groups of pixels for images: square cells; those at the edge may be smaller.

    Args:
        x: Images, (rows, channels, height, width).
        size: The side of a cell.

    Returns:
        The number of the cell of each element, shaped like one image.

    Raises:
        ValueError: x is not of that shape, or ``size`` is not a positive integer.

    Example:
        >>> cells(torch.ones(1, 1, 2, 4), 2)
        tensor([[[0, 0, 1, 1],
                 [0, 0, 1, 1]]])
    """
    at_least("cells", 1, size=size)
    if x.ndim != 4:
        raise ValueError(f"cells(x, {size}): images are (rows, channels, height, width); these have shape {tuple(x.shape)}.")
    down, right = (torch.arange(side, device=x.device) // size for side in x.shape[2:])
    return (down[:, None] * (int(right[-1]) + 1) + right).expand(x.shape[1:])


@dataclass(frozen=True)
class Part:
    """Some rows with the same groups of elements; a set of groups is (count,) of true and false, true being removed."""

    rows: slice
    count: int  # of groups
    groups: Tensor  # the group of each element of a flattened row; -1: it stays
    ask: Callable[[Tensor, slice], Tensor]  # (rows, n, elements), true being removed -> outputs (rows, n)

    def outputs(self, away: Tensor) -> Tensor:
        """The chosen output without some groups, (rows, ..., count) to (rows, ...)."""
        sets = F.pad(away.flatten(1, -2), (0, 1))  # what stays is found at -1
        pieces = slices(sets.shape[1], len(sets) * len(self.groups))
        return torch.cat([self.ask(sets[:, some][..., self.groups], self.rows) for some in pieces], 1).view(away.shape[:-1])

    @functools.cached_property
    def whole(self) -> Tensor:
        """The chosen output of the rows as they are, (rows,)."""
        count = self.rows.stop - self.rows.start
        return self.outputs(torch.zeros(count, 1, self.count, dtype=torch.bool, device=self.groups.device))[:, 0]

    def drops(self, away: Tensor) -> Tensor:
        """How much the output falls without some groups; what is within its rounding is 0."""
        found = self.outputs(away)
        whole = self.whole.view(-1, *[1] * (found.ndim - 1))
        rounding = 8 * torch.finfo(found.dtype).eps * torch.maximum(whole.abs(), found.abs())
        fall = whole - found
        return torch.where(fall.abs() <= rounding, torch.zeros_like(fall), fall).double()

    def sums(self, scores: Tensor) -> Tensor:
        """Scores of the elements, (rows, ...), added up in each group."""
        flat = scores.reshape(len(scores), -1)
        place = torch.where(self.groups < 0, self.count, self.groups)
        return flat.new_zeros(len(flat), self.count + 1).index_add(1, place, flat)[:, : self.count]


class RemovalMetric(Protocol):
    """A metric that removes groups of elements, one number per row.

    Args:
        model: A function of the rows, or a module.
        x: The rows: numbers in floating point, or integer token ids (rows, tokens).
        attributions: Scores shaped like x, which are summed in each group, or (rows, groups). A mapping of several shares
            evaluations of the model where it can.
        target: The output that is measured: an index, or one per row. None is the only output, or the predicted class.
        baselines: The values of removed elements, zeros by default. For ``replace="mask"``: the id of the mask token.
        replace: What stands in place of a removed element. Allowed values: "baseline", "blur" (a blurred copy of images),
            "mask" (token ids), "delete" (token ids: the row becomes shorter), or a function from rows to rows.
        feature_groups: What is removed together, as in ``CAFE.explain``, or a mask for every row, shaped like x. Elements
            with a negative number are never removed.
        progress: Wraps the portions of rows, like tqdm.

    Returns:
        One number per row; for a mapping, a dictionary of them.

    Raises:
        ValueError: An argument is not allowed, or the shapes do not fit.

    Example:
        >>> import torch
        >>> from cafexai.metrics import {name}
        >>> model, x = torch.nn.Linear(3, 1), torch.ones(2, 3)
        >>> {name}(model, x, x * model.weight.detach()).shape
        torch.Size([2])
    """

    def __call__(
        self,
        model: Callable[[Tensor], Any],
        x: Tensor,
        attributions: Tensor | Mapping[str, Tensor],
        *,
        target: Any = None,
        baselines: Any = None,
        replace: Replace = "baseline",
        feature_groups: Any = None,
        progress: Callable[[Any], Any] = list,
        **options: Any,
    ) -> Any: ...


def by_removal(title: str, best: Best) -> Callable[[Callable[..., Tensor]], RemovalMetric]:
    """Register a function ``(part, scores (rows, attributions, groups), *, options) -> (rows, attributions)`` as a metric."""

    def register(own: Callable[..., Tensor]) -> RemovalMetric:
        name = own.__name__

        @functools.wraps(own)
        def run(
            model: Callable[[Tensor], Any],
            x: Tensor,
            attributions: Tensor | Mapping[str, Tensor],
            *,
            target: Any = None,
            baselines: Any = None,
            replace: Replace = "baseline",
            feature_groups: Any = None,
            progress: Callable[[Any], Any] = list,
            **options: Any,
        ) -> Any:
            rows = rows_for(name, model, x)
            given = attributions if isinstance(attributions, Mapping) else {"": attributions}
            many = {key: finite_scores(name, scores).to(rows.device).double() for key, scores in given.items()}
            grouped = _group_elements(name, rows, feature_groups)
            ask = _ask_model(name, model, rows, target, baselines, replace)
            found = []
            for block, groups in progress(grouped):
                part = Part(block, int(groups.max()) + 1, groups, ask)
                scores = [_of_groups(name, key, values, rows, part) for key, values in many.items()]
                found.append(own(part, torch.stack(scores, 1), **options))
            joined = dict(zip(many, torch.cat(found).unbind(1), strict=True))
            return joined if isinstance(attributions, Mapping) else joined[""]

        @metric(name, title, best)
        def _on_bench(bench: Bench) -> Any:
            groups = {"replace": bench.replace, "feature_groups": bench.groups}
            return run(bench.model, bench.x, bench.shares(), target=bench.target, baselines=bench.baselines, **groups)

        shared = [p for p in inspect.signature(run, follow_wrapped=False).parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = [p for p in inspect.signature(own).parameters.values() if p.kind is p.KEYWORD_ONLY]
        run.__doc__ = join_docstrings(own, (inspect.getdoc(RemovalMetric) or "").format(name=name))
        run.__signature__ = inspect.Signature([*shared, *options])  # type: ignore[attr-defined]
        return run

    return register


def _of_groups(call: str, name: str, scores: Tensor, x: Tensor, part: Part) -> Tensor:
    if scores.shape == x.shape:
        return part.sums(scores[part.rows])
    if scores.shape == (len(x), part.count):
        return scores[part.rows]
    raise ValueError(
        f"{call}(...): attributions {name} of shape {tuple(scores.shape)} for x of {tuple(x.shape)} and {part.count} groups; "
        "give scores shaped like x, or one for each row and group."
    )


def _group_elements(call: str, x: Tensor, groups: Any) -> list[tuple[slice, Tensor]]:
    """Portions of rows with the group of every element, -1 where it stays; groups count from 0."""
    shape = x.shape[1:]
    of_rows = isinstance(groups, (Tensor, np.ndarray)) and groups.ndim == x.ndim and len(groups) == len(x) > 1

    def numbered(mask: Any) -> Tensor:
        if mask is None:
            return torch.arange(shape.numel(), device=x.device)
        index, labels = places(mask, [shape], lambda: default_names([shape]), call)
        staying = 0 if isinstance(mask, Mapping) else sum(label.startswith("group -") for label in labels)
        if staying == len(labels):
            raise ValueError(f"{call}(..., feature_groups=mask): all of its numbers are negative, so nothing can be removed.")
        return (index - staying).clamp_min(-1).to(x.device)

    if of_rows:
        return [(slice(row, row + 1), numbered(mask)) for row, mask in enumerate(groups)]
    one = numbered(groups)
    return [(rows, one) for rows in blocks_of_rows(x, int(one.max()) + 1)]


def _ask_model(
    call: str, model: Any, x: Tensor, target: Any, baselines: Any, replace: Replace
) -> Callable[[Tensor, slice], Tensor]:
    """The outputs of rows without some elements."""
    outputs = choose_output(call, model, x, target)
    if replace == "delete":
        _need_ids(call, replace, x)
        return functools.partial(_shorter, call, x, outputs)
    other = _replacement(call, x, baselines, replace)

    def ask(away: Tensor, rows: slice) -> Tensor:
        return outputs(torch.where(away.view(*away.shape[:2], *x.shape[1:]), other[rows, None], x[rows, None]), rows)

    return ask


def _replacement(call: str, x: Tensor, baselines: Any, replace: Replace) -> Tensor:
    """The values of removed elements, shaped like x."""
    if callable(replace):
        given = replace(x)
        if not isinstance(given, Tensor) or given.shape != x.shape:
            what = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(f"{call}(..., replace): it gives {what}; give rows of shape {tuple(x.shape)}.")
        return expand_baseline(given, x, call)
    if replace == "blur":
        if x.ndim != 4 or not x.is_floating_point():
            raise ValueError(
                f'{call}(..., replace="blur"): only images, (rows, channels, height, width) of floating point numbers, can be '
                f"blurred; x is {x.dtype} of shape {tuple(x.shape)}."
            )
        reach = max(1, min(x.shape[2:]) // 8)
        return F.avg_pool2d(x, 2 * reach + 1, 1, reach, count_include_pad=False)
    if replace not in ("baseline", "mask"):
        raise ValueError(
            f'{call}(..., replace={replace!r}): unknown value. Allowed values: "baseline", "blur", "mask", "delete", '
            "or a function."
        )
    if replace == "mask":
        _need_ids(call, replace, x)
    if not x.is_floating_point() and (baselines is None or torch.as_tensor(baselines).is_floating_point()):
        raise ValueError(
            f"{call}(..., replace={replace!r}, baselines={baselines!r}): x holds integer ids; give the id that replaces a "
            "removed token, baselines=tokenizer.mask_token_id."
        )
    return expand_baseline(0.0 if baselines is None else baselines, x, call)


def _need_ids(call: str, replace: str, x: Tensor) -> None:
    if x.is_floating_point() or x.ndim != 2:
        raise ValueError(
            f'{call}(..., replace="{replace}"): that is for integer token ids, (rows, tokens); x is {x.dtype} of shape '
            f'{tuple(x.shape)}. Use replace="baseline".'
        )


def _shorter(call: str, x: Tensor, outputs: Callable[..., Tensor], away: Tensor, rows: slice) -> Tensor:
    """Outputs of rows of ids from which some are taken out; rows of equal lengths go through the model together."""
    stay = ~away.flatten(0, 1)
    owner = torch.arange(len(x), device=x.device)[rows].repeat_interleave(away.shape[1])
    lengths = stay.sum(1)
    found, order = [], []
    for length in lengths.unique().tolist():
        these = (lengths == length).nonzero()[:, 0]
        if length == 0:
            raise ValueError(
                f'{call}(..., replace="delete"): nothing is left of a row. Give tokens that always stay a negative number in '
                'feature_groups, or use replace="mask".'
            )
        try:
            answer = outputs(x[owner[these]][stay[these]].view(-1, 1, length), owner[these].cpu())
        except RuntimeError as error:
            raise ValueError(
                f'{call}(..., replace="delete"): the model does not take rows of {length} tokens ({error}). Use replace="mask".'
            ) from error
        found.append(answer[:, 0])
        order.append(these)
    return torch.cat(found)[torch.cat(order).argsort()].view(away.shape[:2])
