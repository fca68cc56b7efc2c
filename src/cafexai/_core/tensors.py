"""The tensors that the model sees while it is explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import keep_out_of_torch_function, make_wrapper, tree_map_only
from ..errors import UnsupportedOperation
from .provenance import origin_of
from .row_index import settle
from .run import Leaf, Run
from .value import Scores

View = Callable[[Tensor], Tensor]


class Memory:
    """What a value and its views share, so that a write to one of them is seen by all."""

    def __init__(self, root: Scores) -> None:
        self.root = root
        self.version = 0
        self._writes: list[tuple[View, Scores]] = []

    def read(self) -> Scores:
        """The root with all writes to its views carried out."""
        for view, new in self._writes:
            shape = self.root.shape
            places = torch.arange(shape.numel(), device=self.root.delta.device).view(shape)
            index = view(places).flatten()

            def put(root: Tensor, part: Tensor, index: Tensor = index, shape: torch.Size = shape) -> Tensor:
                return root.flatten().index_copy(0, index, part.flatten().to(root.dtype)).view(shape)

            self.root = self.root.join(self.root.run, put, [self.root, new])
        self._writes.clear()
        return self.root

    def write(self, view: View | None, new: Scores) -> None:
        """Replace the root (no view) or a part of it."""
        self.version += 1
        if view is None:
            self.root = new
            self._writes.clear()
        else:
            self._writes.append((view, new))


class Scored(Tensor):
    """Stands for one value in the model's own forward pass. It has a shape but no numbers of its own."""

    _state: Scores
    memory: Memory
    view_of_root: View | None = None
    version = 0

    @staticmethod
    def __new__(cls, state: Scores, dtype: torch.dtype) -> Scored:
        """An empty tensor with the outside of the value."""
        like = state.template
        return make_wrapper(cls, like.shape, strides=like.stride(), dtype=dtype, device=like.device)

    def __init__(self, state: Scores, dtype: torch.dtype) -> None:
        self._state = state
        self.memory = Memory(state)

    @property
    def state(self) -> Scores:
        """The scored value, as it is now."""
        if self.version != self.memory.version:
            root = self.memory.read()
            self._state = root if self.view_of_root is None else root.reshape(self.view_of_root)
            self.version = self.memory.version
        return self._state

    def write(self, new: Scores) -> None:
        """An operation in place."""
        _ = self.state  # what was written through other views before comes first
        self.memory.write(self.view_of_root, new)
        self._state, self.version = new, self.memory.version

    def share(self, base: Scored, view: View) -> None:
        """Make this value a view of base."""
        outer = base.view_of_root
        self.memory = base.memory
        self.version = base.version
        self.view_of_root = view if outer is None else lambda v: view(outer(v))

    __torch_function__ = keep_out_of_torch_function

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Reached only where the calls of the model cannot be seen: compiled code, scripts, other threads, afterwards."""
        raise UnsupportedOperation(
            f"{func} was called on a scored value where calls cannot be traced. Either scripted or compiled code, a C++ "
            "extension or another thread called it: explain the original eager module instead. Or forward() stored the value "
            "outside the module: clear it, and do not store activations there."
        )


class Softmaxed(Tensor):
    """A softmax: a constant for whatever follows, that remembers its logits in case it is the output."""

    logits: Scores
    __torch_function__ = keep_out_of_torch_function

    @staticmethod
    def of(value: Tensor, logits: Scores) -> Softmaxed:
        """The value as a constant with its logits."""
        frozen = value.detach().as_subclass(Softmaxed)
        frozen.logits = logits
        return frozen


class Complexed(Tensor):
    """Stands for a complex value: its real and its imaginary part, of which at least one is a scored value."""

    first: Tensor
    second: Tensor
    __torch_function__ = keep_out_of_torch_function
    __torch_dispatch__ = Scored.__torch_dispatch__  # type: ignore[assignment]

    @staticmethod
    def of(first: Tensor, second: Tensor) -> Complexed:
        """The value with these parts."""
        dtype = torch.complex(*(torch.zeros((), dtype=torch.promote_types(first.dtype, second.dtype)),) * 2).dtype
        new = make_wrapper(Complexed, first.shape, dtype=dtype, device=first.device)
        new.first, new.second = first, second
        return new

    def plain(self) -> Tensor:
        """The numbers alone."""
        return torch.complex(*plain((self.first, self.second)))


class Coded(Tensor):
    """Integer codes of the input; each knows its place there and its reference code, through moves and offsets.

    A code has no size: its score is what the change of its embedding does, against that of a reference code, or against zeros.
    """

    run: Run
    source: int
    width: int  # features per row
    places: Tensor  # the flat place in the input, -1 for constants that were joined to it
    reference: Tensor | None
    overwritten: list[bool] | None = (
        None  # shared by all that have the same memory: one of them was written to, and is another tensor since
    )
    __torch_function__ = keep_out_of_torch_function

    @staticmethod
    def of_input(run: Run, codes: Tensor, reference: Tensor | None, source: int) -> Coded:
        """The codes as the model gets them."""
        places = torch.arange(codes.numel(), device=codes.device).view(codes.shape)
        like = Coded.__new__(Coded)
        like.run, like.source, like.width = run, source, codes[0].numel()
        return like.with_codes(codes, places, reference)

    @staticmethod
    def of_value(x: Scores, dtype: torch.dtype) -> Coded:
        """Codes that the model itself makes of numbers, each of one of them."""
        origin, like = origin_of(x), Coded.__new__(Coded)
        assert origin is not None
        like.run, like.source, like.width = x.run, origin.source, origin.x[0].numel()
        return like.with_codes(x.value.to(dtype), origin.places(), origin.at_baseline().to(dtype))

    def with_codes(self, codes: Tensor, places: Tensor, reference: Tensor | None) -> Coded:
        """Other codes of the same input."""
        new = codes.detach().as_subclass(Coded)
        new.run, new.source, new.width = self.run, self.source, self.width
        new.places, new.reference = places.expand(codes.shape), reference
        shared = self.untyped_storage().data_ptr() == new.untyped_storage().data_ptr()
        new.overwritten = self.overwritten if shared and self.overwritten is not None else []
        return new

    def write(self, new: Tensor) -> None:
        """This object becomes other codes; what shares its memory cannot be used any more."""
        if self.overwritten is not None:
            self.overwritten.append(True)
        torch.utils.swap_tensors(self, new)

    def plain(self) -> Tensor:
        """The codes as a plain tensor."""
        if self.overwritten:
            raise UnsupportedOperation(
                "codes are used that share memory with others which were changed in place; change a copy (codes.clone())"
            )
        return self.as_subclass(Tensor)

    def leaf(self, embed: Callable[[Tensor], Tensor]) -> Scores:
        """The embedded codes as a scored value in which explanations end."""
        value = self.run.wide(embed(self.plain()))
        reference = None if self.reference is None else self.run.wide(self._at_baseline(embed))
        beyond = (1,) * (value.ndim - self.places.ndim)
        own = (self.places >= 0).view(*self.places.shape, *beyond)
        constant = None
        if not bool(own.all()):
            constant = value.masked_fill(own, 0)
            value, reference = value * own, None if reference is None else reference * own
        scores = self.run.settings.carrier.of_input(self.run, value, reference)
        if scores.by_feature:
            scores.belongs(self.source, (self.places.clamp_min(0) % self.width).view(*self.places.shape, *beyond))
        if self.run.batch > 1:
            index = torch.where(self.places >= 0, self.places // self.width + 1, 0)
            usual = torch.arange(1, self.run.batch + 1, device=index.device).view(-1, *(1,) * (index.ndim - 1))
            if len(index) != self.run.batch or not bool(((index == usual) | (index == 0)).all()):
                scores.rows = settle(index.view(*index.shape, *beyond).expand(value.shape), self.run.batch)
        if not self.run.closed:
            self.run.leaves.append(Leaf(scores, self.source, self.places))
        return scores if constant is None else scores.add_constant(constant)

    def _at_baseline(self, embed: Callable[[Tensor], Tensor]) -> Tensor:
        assert self.reference is not None
        try:
            return embed(self.reference)
        except (IndexError, RuntimeError) as error:
            low, high = (end.item() for end in self.reference.aminmax())
            raise ValueError(
                f"explain(..., baselines=...): at the baseline the codes of input {self.source} are {low} to {high}, which the "
                f"model does not take ({error}). Give baselines with codes that it knows."
            ) from error


PLAIN = frozenset((int, float, bool, str, type(None), slice, type(...), torch.dtype, torch.device, torch.Size))


def is_plain(value: Any) -> bool:
    """A number, a word or the like, or a tuple of these: nothing that holds a tensor or can change."""
    return type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value)))


def plain(values: Any) -> Any:
    """Arguments with the plain numbers of scored values in them, copied so that nothing is overwritten."""
    if type(values) is tuple and all(map(is_plain, values)):
        return values

    def convert(value: Tensor) -> Tensor:
        if isinstance(value, Scored):
            return value.state.value.to(value.dtype, copy=True)
        return value.plain() if isinstance(value, Complexed) else value.as_subclass(Tensor)

    return tree_map_only((Scored, Softmaxed, Coded, Complexed), convert, values)


def share(wrapped: Any, base: Scored, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Results of a call that share memory with its first argument become views of it."""
    rest, single = plain(args[1:]), isinstance(wrapped, Scored)
    memory = base._state.template.untyped_storage().data_ptr()
    for number, item in enumerate([wrapped] if single else wrapped):
        if isinstance(item, Scored) and item._state.template.untyped_storage().data_ptr() == memory:
            item.share(base, _view(func, rest, kwargs, None if single else number))


def _view(func: Callable[..., Any], rest: Any, kwargs: Any, number: int | None) -> Callable[[Tensor], Tensor]:
    def view(value: Tensor) -> Tensor:
        result = func(value, *rest, **kwargs)
        return result if number is None else result[number]

    return view


def elements_at(base: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor | None:
    """Which elements of a tensor stand at these places of its memory; None if some are none of its own."""
    own = _places(base.shape, base.stride(), int(base.storage_offset()))
    elements = torch.full((int(own.max()) + 1,), -1).index_copy(0, own.flatten(), torch.arange(own.numel()))
    wanted = _places(size, stride, offset)
    if int(wanted.max()) >= len(elements) or bool((elements[wanted] < 0).any()):
        return None
    return elements[wanted].to(base.device)


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
    return torch.arange(reach).as_strided(tuple(size), tuple(stride), offset)
