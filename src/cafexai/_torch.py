"""What this package uses of torch beyond its public interface, with a fallback where an older release lacks it.

No other file imports private names of torch (``tests/repository/test_imports.py``). Private attributes of single objects
(``tensor._base``, ``storage._cdata``, ``module._modules``, ``operator._schema``) are read where they are needed: every
supported release has them. ``make matrix`` runs the tests with the oldest and the newest release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd.grad_mode import _unsafe_preserve_version_counter as preserve_version
from torch.nn.modules import module as _modules
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.conv import _ConvNd as Convolution
from torch.nn.modules.dropout import _DropoutNd as Dropout
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _pop_mode as pop_mode
from torch.utils._python_dispatch import _push_mode as push_mode
from torch.utils._pytree import tree_any, tree_leaves, tree_map_only

__all__ = [
    "DRAWS_LIKE",
    "NATIVE_NN",
    "NEW_NAMES",
    "BatchNorm",
    "Convolution",
    "DisableTorchFunction",
    "Dropout",
    "OpOverload",
    "OpOverloadPacket",
    "TorchDispatchMode",
    "any_autocast",
    "count_function_modes",
    "global_hooks",
    "keep_out_of_torch_function",
    "make_wrapper",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pop_mode",
    "preserve_version",
    "push_mode",
    "saves_tensors_as_usual",
    "tree_any",
    "tree_leaves",
    "tree_map_only",
]

NEW_NAMES = frozenset({"_grouped_mm", "grouped_mm"})  # functions with a rule that the oldest supported release does not have
NATIVE_NN = torch._C._nn  # the namespace of functions that torch.nn.functional wraps or hands out

DisableTorchFunction = torch._C.DisableTorchFunction
any_autocast = torch._C._is_any_autocast_enabled
count_function_modes = torch._C._len_torch_function_stack
keep_out_of_torch_function: Any = torch._C._disabled_torch_function_impl  # as the __torch_function__ of a subclass
make_wrapper = torch.Tensor._make_wrapper_subclass
pack_padded_sequence = torch._pack_padded_sequence
pad_packed_sequence = torch._pad_packed_sequence

_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # torch 2.8 and newer


def saves_tensors_as_usual() -> bool:
    """No hooks for saved tensors (checkpointing, offloading) are known to be active; older releases cannot say, so False."""
    return _top_hooks is not None and _top_hooks(False) is None


def _draw_like(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``rand_like`` and the like with a generator: a tensor like the given one, filled in place, as torch does it."""

    def draw(given: Tensor, *args: Any, generator: torch.Generator, **options: Any) -> Tensor:
        return fill(torch.empty_like(given, **options), *args, generator=generator)

    return draw


# Operations that torch 2.9 and older draw from torch's own generator only.
DRAWS_LIKE: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.rand_like.default: _draw_like(Tensor.uniform_),
    torch.ops.aten.randn_like.default: _draw_like(Tensor.normal_),
    torch.ops.aten.randint_like.default: _draw_like(lambda made, high, generator: made.random_(0, high, generator=generator)),
    torch.ops.aten.randint_like.low_dtype: _draw_like(Tensor.random_),
}


def global_hooks() -> tuple[Any, ...]:
    """The global forward hooks and forward pre-hooks of modules."""
    return (*_modules._global_forward_pre_hooks.values(), *_modules._global_forward_hooks.values())
