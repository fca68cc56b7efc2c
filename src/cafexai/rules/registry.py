"""The table of rules: which function of torch is explained how."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import resolve_name

from .._torch import NATIVE_NN, NEW_NAMES, OpOverload, OpOverloadPacket
from .targets import resolve_target

_NAMESPACES = (torch, torch.Tensor, F, NATIVE_NN, torch.special, torch.linalg)


KINDS = frozenset(
    {
        "metadata",  # it does not look at the numbers
        "identity",  # the result is the value itself, perhaps in another dtype, on another device or in another memory layout
        "cast",  # an identity whose dtype is an argument
        "floating",  # a cast to a floating point type
        "move",  # elements only move, also those of integer codes
        "padding",  # a move that puts constants beside or in place of elements
        "offset",  # codes that are shifted or bounded stay codes
        "index",  # places among its arguments choose among values
        "subscript",  # table[places]
        "write",  # its last argument is put into places of the first
        "shaped",  # only the outside of its first argument counts
        "lookup",  # codes become numbers
        "comparison",  # truth values and places, always constants
        "activation",  # an elementwise function that makes a unit of the linear layer before it
        "units",  # a linear or convolutional layer, whose results are units
        "biased",  # linear, with a bias of its own
        "draws",  # it draws random numbers
        "final",  # it makes probabilities of logits: as the output of a model it is left out
    }
)


@dataclass(frozen=True)
class Rule:
    """How one operation acts on scored values."""

    name: str
    apply: Callable[..., Any]
    in_place: bool = False  # the operation writes its result into its first argument
    view: bool = False  # the result may share memory with the first argument
    casts: bool = False  # the rule brings constants to the working precision itself
    kinds: frozenset[str] = frozenset()  # what else the engine may ask of it

    def __post_init__(self) -> None:
        if not self.kinds <= KINDS:
            raise ValueError(
                f"rule {self.name!r}: {sorted(self.kinds - KINDS)} are unknown kinds. Allowed values: {sorted(KINDS)}."
            )


TABLE: dict[Callable[..., Any], Rule] = {}


def functions_named(name: str) -> list[Callable[..., Any]]:
    """Every public function, method or property getter of torch with this name."""
    found: list[Callable[..., Any]] = []
    for namespace in (torch.Tensor,) if name.startswith("__") else _NAMESPACES:
        member = getattr(namespace, name, None)
        if member is None:
            continue
        if type(member).__name__ in ("getset_descriptor", "property"):
            member = member.__get__
        if callable(member) and member not in found:
            found.append(member)
    return found


_OPERATORS = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv"}  # where Python's name differs


def variants(name: str) -> Iterator[tuple[Callable[..., Any], bool]]:
    """All functions of this name with its operators, and whether they write into their first argument."""
    operator = _OPERATORS.get(name, name)
    for spelling, in_place in ((name, False), (f"__{operator}__", False), (f"{name}_", True), (f"__i{operator}__", True)):
        for function in functions_named(spelling):
            yield function, in_place


def plain_function(name: str) -> Callable[..., Any]:
    """The function to call on plain tensors for a rule of this name."""
    return functions_named(name)[0]


def rule(
    *targets: str | Callable[..., Any],
    in_place: bool = True,
    view: bool = False,
    name: str | None = None,
    casts: bool = False,
    kinds: Iterable[str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for functions, or for every function of torch with a given name.

    Args:
        *targets: Functions, or names of functions of torch.
        in_place: Also cover the variants that write into their argument (``relu_``).
        view: The result shares memory with the argument.
        name: The name of the operation in ``e.frozen`` and messages; None takes that of the target.
        casts: The rule takes care of the dtype.
        kinds: What the engine must know of the operation: names of ``cafexai.rules.registry.KINDS``. None keeps the kinds
            of a rule that is replaced.

    Returns:
        The decorator.

    Raises:
        ValueError: torch has no function of a given name.

    Example:
        >>> @cafexai.rule(torch.special.entr)  # doctest: +SKIP
        ... def entropy(x):
        ...     return x.elementwise(torch.special.entr)
    """

    def own(function: Any) -> frozenset[str]:
        if kinds is not None:
            return frozenset(kinds)
        return TABLE[function].kinds if function in TABLE else frozenset()

    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            if callable(target):
                target = resolve_target(target)
                TABLE[target] = Rule(name or resolve_name(target) or _name_of(target), apply, view=view, kinds=own(target))
                continue
            if not functions_named(target) and target not in NEW_NAMES:
                raise ValueError(f"rule({target!r}): torch has no function of this name")
            for function, writes in variants(target):
                if in_place or not writes:
                    TABLE[function] = Rule(name or target, apply, writes, view, casts, own(function))
        return apply

    return register


_elementwise_modules: set[str] = {
    f"transformers.activations.{name}"
    for name in (
        "AccurateGELUActivation", "ClippedGELUActivation", "FastGELUActivation", "GELUActivation", "GELUTanh",
        "LaplaceActivation", "LinearActivation", "MishActivation", "NewGELUActivation", "QuickGELUActivation",
        "ReLUSquaredActivation",
    )
}  # fmt: skip


def elementwise_module(module: type) -> type:
    """Declare that a module applies one elementwise function, whatever its forward is written with.

    Its output then follows the activation rule as a whole.

    Args:
        module: The class. The function is also a decorator of classes.

    Returns:
        The class.

    Example:
        >>> @cafexai.elementwise_module
        ... class Bent(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.where(x > 0, x, 0.1 * x)
    """
    _elementwise_modules.add(f"{module.__module__}.{module.__qualname__}")
    is_elementwise.cache_clear()
    return module


@functools.cache
def is_elementwise(kind: type) -> bool:
    """Modules of this type were declared to be elementwise."""
    return f"{kind.__module__}.{kind.__qualname__}" in _elementwise_modules


def add(function: Callable[..., Any], new: Rule) -> None:
    """Enter one function into the table."""
    TABLE[function] = new


def find(function: Callable[..., Any]) -> Rule | None:
    """The rule for a function, or None. Exported programs call overloads of aten, which share the names of torch."""
    known = TABLE.get(function)
    if known is None and isinstance(function, (OpOverload, OpOverloadPacket)):
        known = _of_overload(function)
        if known is not None:
            TABLE[function] = known
    return known


def _of_overload(function: Any) -> Rule | None:
    packet = getattr(function, "overloadpacket", None)
    if packet in TABLE:
        return TABLE[packet]
    namespace, _, rest = str(function).partition(".")
    if namespace != "aten":  # an operator of another library
        return None
    name = rest.partition(".")[0]
    places: list[Any] = [getattr(space, name, None) for space in (torch, NATIVE_NN, torch.Tensor, F)]  # aten's order first
    for prefix, space in (("special_", torch.special), ("linalg_", torch.linalg)):
        if name.startswith(prefix):
            places.append(getattr(space, name.removeprefix(prefix), None))
    return next((TABLE[place] for place in places if place in TABLE), None)


def _name_of(target: Callable[..., Any]) -> str:
    owner = getattr(target, "__self__", None)
    return f"{owner.__name__}.apply" if isinstance(owner, type) else getattr(target, "__name__", str(target))


def rules() -> Iterator[tuple[Callable[..., Any], Rule]]:
    """All functions that have a rule, with it."""
    return iter(TABLE.items())
