"""What large layers gave in a plain run of the model, so that an explained pass need not multiply at the reference again.

A layer of the explained pass multiplies the change d by its weights. With the result a of a plain run, which no rule has
touched, its result at the reference is a - d. Zeros of d stay zeros, so that no rounding makes a change of what has none.

That alone would make r + d = a true by construction, also where a rule before the layer gave a wrong value. So every such
difference is held against the product of the reference itself, at some output units and all rows: a wrong value
before the layer, another layer's result and a wrong product all show there. If it differs, by rounding or not, or if an input
has no weight to any of these units, the layer is multiplied in full, and the output says whether a rule is wrong.

So is a layer that gives the same at several places of the reference, such as a convolution of an image of one colour: a maximum
over these places (``winners``) has them share, and a - d, which is rounded otherwise at each of them, would have one win.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .tolerance import widest

WORTH = 2**22  # products of two numbers in a layer from which on the comparison costs far less than what it saves
FEW, EVERY = 8, 64  # of so many units of a layer one is computed twice, and at least so many in all
ROUNDING = 256  # how far both may differ, in units in the last place of the largest result of the layer,
DIGITS = 1e-3  # and beside the largest result of each row: less is left of what has nearly cancelled

Layer = Callable[..., Tensor]  # of the value, the weight and perhaps the bias


class LayerValues:
    """Results of a plain run by the weights that made them, in the order of the calls; each is used once.

    ``rows``: how many are explained, of which each is by itself.
    """

    def __init__(self, rows: int = 1) -> None:
        self._rows = rows
        self._found: dict[Any, deque[tuple[Tensor, int]]] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._found.clear()

    def add(self, value: Tensor, weight: Tensor, result: Tensor) -> None:
        """Remember what a layer with this weight gave for a value."""
        if result.numel() * weight[0].numel() >= WORTH and not result.is_inference():
            self._found.setdefault(_key(value, weight), deque()).append((result, result._version))

    def at_reference(
        self, layer: Layer, units: int, start: Tensor, delta: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor | None:
        """What ``layer`` gives at ``start``, where it takes a change to ``delta``; its units are dimension ``units`` of that.

        None if no such layer was met, if the model has written into its result, or if the difference is not the product.
        """
        left = self._found.get(_key(start, weight))
        if not left or weight.shape[1] != start.shape[units] or (start.shape[0] > 1 and start.stride(0) == 0):
            return None  # not met, in groups, or one row for all, which costs next to nothing
        result, version = left.popleft()
        if result._version != version or result.shape != delta.shape or result.dtype is not delta.dtype:
            return None
        return self._compare(result.detach() - delta.detach(), layer, units, start, weight, bias)

    def _compare(
        self, found: Tensor, layer: Layer, units: int, start: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor | None:
        """``found``, if some of its units are what the layer gives at ``start``."""
        step = max(1, min(EVERY, len(weight) // FEW))
        few = weight[::step]
        if not bool((few != 0).transpose(0, 1).flatten(1).any(1).all()):
            return None  # an input that none of these units reads would not be held against anything
        right = layer(start, few, None if bias is None else bias[::step])
        if self._repeats(right, units):
            return None
        place: Any = (..., slice(None, None, step), *(slice(None),) * (-1 - units))
        mine = found[place]
        sizes = right.abs().amax(units)
        rounding = ROUNDING * torch.finfo(found.dtype).eps * sizes.amax()
        far = (mine - right).abs_().amax(units)
        return found if bool((far <= torch.minimum(rounding, DIGITS * sizes)).all()) else None

    def _repeats(self, right: Tensor, units: int) -> bool:
        """Whether a layer gives the same at several places of a row."""
        low, high = (one.to(widest(right.device)) for one in right.aminmax(dim=units))
        mark = low * math.pi + high  # two numbers in one, so that chance makes no two the same
        places = mark.reshape(self._rows if mark.ndim and len(mark) == self._rows else 1, -1)
        return bool((places.sort(1).values.diff(dim=1) == 0).any())


def _key(value: Tensor, weight: Tensor) -> Any:
    return weight.data_ptr(), weight.shape, value.shape, value.dtype
