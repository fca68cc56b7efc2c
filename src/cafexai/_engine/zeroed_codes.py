"""A plain pass in which the embeddings of some codes are zero: what codes without a baseline code are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._core.foreign import pass_on
from .._core.run import Run
from .._core.tensors import Coded
from .._torch import tree_leaves, tree_map_only
from ..errors import UnsupportedOperation
from ..rules import integer_codes as of_codes
from ..rules.registry import TABLE, find
from .call_info import in_order


class ZeroedCodes(Coded):
    """Integer codes of an input that know which of them have an embedding of zeros, through moves and offsets."""

    away: Tensor  # for every place of the input, flat

    @staticmethod
    def make(run: Run, codes: Tensor, away: Tensor, source: int) -> Tensor:
        """The codes as the model gets them; ``away`` is shaped like them."""
        like = Coded.of_input(run, codes.clone(), None, source).as_subclass(ZeroedCodes)
        whole = Coded.of_input(run, codes.clone(), None, source)
        like.run, like.source, like.width, like.reference = run, source, whole.width, None
        like.places, like.overwritten, like.away = whole.places, [], away.flatten()
        return like

    def with_codes(self, codes: Tensor, places: Tensor, reference: Tensor | None) -> ZeroedCodes:
        """Other codes of the same input."""
        moved = super().with_codes(codes, places, reference)
        new = moved.as_subclass(ZeroedCodes)
        for name in ("run", "source", "width", "places", "reference", "overwritten"):
            setattr(new, name, getattr(moved, name))
        new.away = self.away
        return new

    def leaf(self, embed: Callable[[Tensor], Tensor]) -> Any:
        """What is made of the codes, with zeros where they are away."""
        value = embed(self.plain())
        if value.shape[: self.places.ndim] != self.places.shape:
            raise UnsupportedOperation("codes are summed before their embeddings can be set to zero")
        gone = (self.places >= 0) & self.away[self.places.clamp_min(0)]
        return value.masked_fill(gone.view(*gone.shape, *(1,) * (value.ndim - gone.ndim)), 0)


class ZeroedPass(TorchFunctionMode):
    """Follows codes to their embeddings; every other call is torch's own."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        codes = [part for part in tree_leaves((args, kwargs)) if isinstance(part, ZeroedCodes)]
        if not codes:
            return pass_on(func, args, kwargs)
        if not args or "input" in kwargs:
            args, kwargs = in_order(func, args, kwargs)
        rule = TABLE.get(func) or find(func)
        if rule is not None and "metadata" in rule.kinds:
            return pass_on(func, args, kwargs)
        if not of_codes.makes_numbers(rule, args, kwargs):
            return of_codes.follow(func, rule, args, kwargs)
        if len(codes) > 1:
            raise UnsupportedOperation("several codes are looked up in one call")

        def call(ids: Tensor) -> Any:
            own, named = tree_map_only(ZeroedCodes, lambda _: ids, (args, kwargs))
            return pass_on(func, own, named)

        return codes[0].leaf(call)
