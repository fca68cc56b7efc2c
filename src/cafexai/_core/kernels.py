"""Elementwise formulas as single kernels, made by ``torch.compile`` when enough work has been done without to pay for it.

A kernel takes seconds to make and then saves most of the time of its formula. So the elements that pass through each formula
are counted, and its kernel is made when they would have paid for it; a few small models never get there. The environment
variable ``CAFEXAI_COMPILE`` says "auto" (this), "always" or "never". Where there is no compiler, or it fails, formulas run as
they are written.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from .math_functions import Function

Formula = Callable[..., tuple[Tensor, ...]]
PAYS = 2**28  # elements: a few seconds of work
SMALL = 2**12  # elements below which calling a kernel costs more than it saves

_lock = threading.Lock()
_work: dict[Any, int] = {}  # elements so far, by function and dtype
_kernels: dict[Any, Formula] = {}
_broken: str | None = None  # why no kernel can be made
_mode: ContextVar[str | None] = ContextVar("kernels", default=None)
_counter: ContextVar[list[int] | None] = ContextVar("elements", default=None)


def pays(delta: Tensor, phi: Function) -> bool:
    """Whether this function, one of torch alone, is worth kernels by now, on elements like these, at least SMALL of them."""
    size = delta.numel()
    if (counter := _counter.get()) is not None:
        counter.append(size)
    if _broken is not None or delta.device.type not in ("cpu", "cuda"):
        return False
    mode = _mode.get() or os.environ.get("CAFEXAI_COMPILE", "auto")
    if mode == "never":
        return False
    key = (phi, delta.dtype)
    with _lock:
        _work[key] = _work.get(key, 0) + size
    return mode == "always" or _work[key] >= PAYS


def run(formula: Formula, tensors: Sequence[Tensor], points: Sequence[Tensor], phi: Function, c: float) -> tuple[Tensor, ...]:
    """``formula(*tensors, points, phi, c)`` in one kernel; as it stands where that cannot be made."""
    first = tensors[0]
    if _broken is None:
        flat = [tensor.detach().reshape(-1) for tensor in (*tensors, *points)]
        number = torch.tensor(c, dtype=first.dtype, device=first.device)
        try:
            results = _kernel((formula, phi, first.dtype, first.device.type, len(tensors), len(points)))(*flat, number)
        except Exception as error:  # compilers raise anything. A fault of the formula comes again below
            _give_up(error)
        else:
            return tuple(result.view(first.shape) for result in results)
    return formula(*tensors, points, phi, c)


@contextlib.contextmanager
def use_kernels(mode: str) -> Iterator[None]:
    """In this thread kernels are used "always", "never" or by themselves ("auto"), whatever the environment says."""
    before = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(before)


@contextlib.contextmanager
def count_elements() -> Iterator[list[int]]:
    """The elements that pass through each formula in this thread, those of very small values left out."""
    sizes: list[int] = []
    before = _counter.set(sizes)
    try:
        yield sizes
    finally:
        _counter.reset(before)


def problem() -> str | None:
    """Why no kernel can be made here; None if one can, or could until now. To find out takes seconds, once."""
    return _broken or _try_kernel()


@functools.cache
def _try_kernel() -> str | None:
    try:
        made = torch.compile(lambda value: value + torch.compiler.is_compiling(), dynamic=True, fullgraph=True)(torch.zeros(8))
    except Exception as error:
        _give_up(error)
        return _broken
    return None if bool((made == 1).all()) else "torch.compile is switched off"


def _give_up(error: Exception) -> None:
    global _broken
    inner = getattr(error, "inner_exception", None) or error
    said = next((line.strip() for line in str(inner).splitlines() if line.strip()), "")
    _broken = f"{type(inner).__name__}: {said[:200]}"


def _kernel(key: tuple[Any, ...]) -> Formula:
    """The formula with phi filled in, compiled for vectors of any length."""
    known = _kernels.get(key)
    if known is not None:
        return known
    formula, phi, *_, count, _ = key

    def kernel(*arguments: Any) -> tuple[Tensor, ...]:
        return formula(*arguments[:count], arguments[count:-1], phi, arguments[-1])

    # A code object of its own: torch keeps few compiled versions of each.
    own = FunctionType(kernel.__code__.replace(), kernel.__globals__, "kernel", None, kernel.__closure__)
    with _lock:
        return _kernels.setdefault(key, torch.compile(own, dynamic=True, fullgraph=True))
