"""Definitions 1 to 4 of the paper, for any function of rows.

Features are the elements of a row, counted from 0 in row-major order; sets of them are given by index, or by name with
``feature_names``: one for each feature, or a dictionary of groups, ``{"sex": [3, 4]}``. Setting a feature to its baseline
removes it.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.tolerance import all_finite
from .._docstrings import join_docstrings
from .._engine.diagnose import answer, rows_for
from .._engine.output import select_output
from .._inputs import different, resolve_old_words
from .._inputs.baselines import expand_baseline
from .._inputs.groups import is_index, list_features
from .._inputs.target import choose_target
from ..explanation.conflict import counteraction

Names = Sequence[str] | Mapping[str, Iterable[int]] | None  # of all features, or of groups of them
CHUNK = 4096  # rows that are evaluated at a time


@dataclass(frozen=True)
class Question:
    """A function, rows and their baselines, and the number of the output that is meant."""

    call: str
    f: Callable[[Tensor], Any]
    rows: Tensor
    baselines: Tensor  # shaped like the rows
    target: Any
    output: Any
    names: Names

    @property
    def features(self) -> int:
        """How many there are in a row."""
        return self.rows[0].numel()

    def changes(self, C: Any, D: Any) -> tuple[Tensor, Tensor]:
        """What C changes, and what D changes once C is removed."""
        one, two = (feature_set(self.call, part, self.features, self.names) for part in (C, D))
        if one != two and one & two:
            raise ValueError(
                f"{self.call}(f, {sorted(one)}, {sorted(two)}, ...): the sets share {sorted(one & two)}. Take them apart."
            )
        removed = torch.zeros(3, self.features, dtype=torch.bool, device=self.rows.device)
        removed[1, sorted(one)] = True
        removed[2, sorted(one | two)] = True
        values = self.without(removed)
        return values[0] - values[1], values[1] - values[2]

    def without(self, removed: Tensor) -> Tensor:
        """f of every row with each set of features removed. ``removed`` (sets, features) -> (sets, rows)."""
        count = len(self.rows)
        flat, base = self.rows.reshape(count, -1), self.baselines.reshape(count, -1)
        values = []
        step = max(1, CHUNK // count)
        with torch.no_grad():
            for start in range(0, len(removed), step):
                masks = removed[start : start + step]
                inputs = torch.where(masks[:, None], base, flat).reshape(-1, *self.rows.shape[1:])
                values.append(self._select(inputs).view(len(masks), count))
        return torch.cat(values)

    def _select(self, inputs: Tensor) -> Tensor:
        result = select_output(self.f(inputs), self.output)
        if not isinstance(result, Tensor) or result.ndim == 0 or len(result) != len(inputs):
            shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(f"{self.call}(f, ...): f gives {shape} for {len(inputs)} rows. It must give one entry per row.")
        if result.ndim > 1:
            target = self.target
            if isinstance(target, Tensor):  # one for each row, of which there are several versions
                target = target.repeat(len(result) // len(target), 1)
            result = choose_target(result, target, slice(0, len(result)), len(result), self.call)[0](result)
        if not all_finite(result):
            raise ValueError(f"{self.call}(f, ...): f gives NaN or infinite values for the rows, or with features removed.")
        return result.detach()


def question(
    call: str,
    f: Callable[[Tensor], Any],
    x: Any,
    baselines: Any = 0,
    target: Any = 0,
    output: Any = None,
    names: Names = None,
    old: dict[str, Any] | None = None,
) -> Question:
    """The arguments, checked; ``old`` holds some by their old words. An integer ``output`` is the target, its old word."""
    output = tuple(output) if isinstance(output, list) else output
    if is_index(output) or (isinstance(output, tuple) and all(map(is_index, output))):
        if target is not None and not (isinstance(target, int) and target == 0):
            raise ValueError(
                f"{call}(..., target=..., output={output!r}): output is an earlier name of target. Give one of the two."
            )
        target, output = output, None
    words = {"baselines": (baselines, 0, "reference"), "feature_names": (names, None, "names")}
    baselines, names = resolve_old_words(call, {} if old is None else old, **words)
    rows = as_rows(call, f, x)
    start = expand_baseline(baselines, rows, call)
    whole = select_output(answer(call, f, rows), output)
    if not isinstance(target, (int, tuple)):  # the class of the row as it is, or one for each row
        target = choose_target(whole, target, slice(0, len(rows)), len(rows), call)[1] if whole.ndim > 1 else 0
    return Question(call, f, rows, start, target, output, names)


def as_rows(call: str, f: Any, x: Any) -> Tensor:
    """A batch of finite rows for a function that treats each by itself: a row alone has one dimension."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or (not x.is_nested and not x.numel()):
        raise ValueError(f"{call}(..., x=...): give a row (features,) or a batch (rows, ...) of floating point numbers.")
    rows = rows_for(call, f, x)
    return rows[None] if rows.ndim == 1 else rows


def feature_set(call: str, part: Any, count: int, names: Names) -> frozenset[int]:
    """A set of features given by one index or name, or by several."""
    members = [part] if isinstance(part, (str, numbers.Integral)) else list_features(part, count)
    found: set[int] = set()
    for member in members:
        if isinstance(member, str):
            if names is not None and not isinstance(names, Mapping):
                different(names, f"{call}(..., feature_names=...)")
            if names is None or member not in names:
                known = "no names are given" if names is None else f"the names are {', '.join(names)}"
                raise ValueError(f"{call}(...): there is no feature {member!r}; {known}.")
            if isinstance(names, Mapping):
                found |= feature_set(call, list(names[member]), count, None)
                continue
            member = list(names).index(member)
        if not is_index(member) or not 0 <= int(member) < count:
            raise ValueError(f"{call}(...): there is no feature {member!r} among {count}, counted from 0.")
        found.add(int(member))
    if not found:
        raise ValueError(f"{call}(...): a set of features is empty. An empty set counteracts nothing.")
    return frozenset(found)


class Definition:
    """A definition from the change that C makes, and the change that D makes once C is removed.

    ``both`` puts what C does to D together with what D does to C.
    """

    def __init__(self, own: Callable[..., Tensor], both: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        functools.update_wrapper(self, own)
        vars(self).pop("__wrapped__")  # its signature is that of __call__
        self.own, self.both = own, both
        self.__doc__ = join_docstrings(own, Definition.__call__.__doc__ or "")

    def __call__(
        self,
        f: Callable[[Tensor], Any],
        C: Any,
        D: Any,
        x: Tensor,
        baselines: Any = 0,
        target: Any = 0,
        feature_names: Names = None,
        *,
        output: Any = None,
        **old: Any,
    ) -> Any:
        """Apply the definition.

        Args:
            f: The model, a function of rows.
            C: A set of features: an index or a name, or several.
            D: Another set.
            x: One row, or a batch.
            baselines: The values of removed features: a number, or a tensor shaped like the row.
            target: Which number of the output of ``f`` is meant.
            feature_names: Names of the features.
            output: Which tensor is meant, if there are several.
            **old: Earlier names of parameters.

        Returns:
            A number, or True or False, for a row; a tensor of them for a batch.

        Raises:
            ValueError: An argument is not allowed.

        Example:
            >>> import torch
            >>> from cafexai import conflicts
            >>> conflicts.conflict_magnitude(lambda x: x[:, 0] - x[:, 1], 0, 1, torch.tensor([3.0, 1.0]))
            1.0
        """
        of = question(self.own.__name__, f, x, baselines, target, output, feature_names, old)
        found = self.own(*of.changes(C, D))
        if self.both is not None:
            found = self.both(found, self.own(*of.changes(D, C)))
        return found[0].item() if x.ndim == 1 else found


@Definition
def counteracts(first: Tensor, second: Tensor) -> Tensor:
    """Definition 1: (f(x) - f(x without C)) / (f(x without C) - f(x without C and D)) < 0; a zero denominator is "no"."""
    return first * second.sign() < 0


@functools.partial(Definition, both=torch.logical_or)
def conflicting(first: Tensor, second: Tensor) -> Tensor:
    """Definition 2: C counteracts D, or D counteracts C."""
    return first * second.sign() < 0


@Definition
def counteraction_magnitude(first: Tensor, second: Tensor) -> Tensor:
    """Definition 3: the smaller of the two changes if C counteracts D, else 0."""
    return counteraction(first, second)


@functools.partial(Definition, both=torch.maximum)
def conflict_magnitude(first: Tensor, second: Tensor) -> Tensor:
    """Definition 4: the larger of both counteraction magnitudes."""
    return counteraction(first, second)
