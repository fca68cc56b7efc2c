"""Definitions 1 to 4 of the paper, for any function of rows.

Features are the elements of a row, counted from 0 in row-major order; sets of them are given by index, or by name with
``feature_names``: one for each feature, or a dictionary of groups, ``{"sex": [3, 4]}``. Setting a feature to its baseline
removes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from .question import Names, question


class Definition(Protocol):
    """A number, or True or False, for a row; a tensor of them for a batch.

    ``target``: which number of the output of ``f``; ``output``: which tensor, if there are several.
    """

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
    ) -> Any: ...


def _definition(both: Callable[[Tensor, Tensor], Tensor] | None = None) -> Callable[[Callable[..., Tensor]], Definition]:
    """A definition from the change that C makes, and the change that D makes once C is removed.

    ``both`` puts what C does to D together with what D does to C.
    """

    def define(own: Callable[[Tensor, Tensor], Tensor]) -> Definition:
        @functools.wraps(own)
        def asked(
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
            of = question(own.__name__, f, x, baselines, target, output, feature_names, old)
            found = own(*of.changes(C, D))
            if both is not None:
                found = both(found, own(*of.changes(D, C)))
            return found[0].item() if x.ndim == 1 else found

        del asked.__wrapped__  # its signature is the one above
        return asked

    return define


@_definition()
def counteracts(first: Tensor, second: Tensor) -> Tensor:
    """Definition 1: (f(x) - f(x without C)) / (f(x without C) - f(x without C and D)) < 0; a zero denominator is "no"."""
    return first * second.sign() < 0


@_definition(torch.logical_or)
def conflicting(first: Tensor, second: Tensor) -> Tensor:
    """Definition 2: C counteracts D, or D counteracts C."""
    return first * second.sign() < 0


@_definition()
def counteraction_magnitude(first: Tensor, second: Tensor) -> Tensor:
    """Definition 3: the smaller of the two changes if C counteracts D, else 0."""
    return _smaller(first, second)


@_definition(torch.maximum)
def conflict_magnitude(first: Tensor, second: Tensor) -> Tensor:
    """Definition 4: the larger of both counteraction magnitudes."""
    return _smaller(first, second)


def _smaller(first: Tensor, second: Tensor) -> Tensor:
    size = torch.minimum(first.abs(), second.abs())
    return torch.where(first * second.sign() < 0, size, torch.zeros_like(size))
