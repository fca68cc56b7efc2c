"""Many values in one other than by their sum: norms, distances, products, logarithms of sums of exponentials."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F

from .._core.provenance import LOG_OF_SUM, ROOT, record
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, bilinear_map, multiply, sub
from .conversion import as_dtype
from .elementwise import absolute, finite, logarithm
from .linear import total
from .norms import of_length_one
from .recognise import log_of_sum
from .registry import rule
from .selection import over
from .shape import move


def dims_of(x: Any, dim: Any) -> tuple[int, ...]:
    """The dimensions that are meant, counted from the front; None and () are all."""
    chosen = (dim,) if isinstance(dim, int) else tuple(range(x.ndim)) if dim is None or not len(dim) else tuple(dim)
    return tuple(one % max(x.ndim, 1) for one in chosen)


@rule("logsumexp", in_place=False)
def logsumexp(x: Scores, dim: Any, keepdim: bool = False) -> Any:
    """A maximum with soft edges; less its argument, and as the log of a softmax, it is that."""
    return record(x.soft_largest(dims_of(x, dim), keepdim), LOG_OF_SUM, x, dim)


@rule("log")
def log(x: Scores) -> Any:
    """Of a sum of exponentials, however that is written, it is logsumexp."""
    parts = log_of_sum(x)
    return logarithm(x) if parts is None else logsumexp(*parts)


@rule("logaddexp", in_place=False)
def logaddexp(a: Any, b: Any) -> Any:
    if not isinstance(a, Scores) or not isinstance(b, Scores):
        x, constant = (a, b) if isinstance(a, Scores) else (b, a)
        return x.elementwise(lambda v: torch.logaddexp(v, constant))
    shape = torch.broadcast_shapes(a.shape, b.shape)
    both = a.join(a.run, lambda *parts: torch.stack([part.expand(shape) for part in parts], -1), [a, b])
    return both.soft_largest((-1,))


@rule("vector_norm", in_place=False)
def vector_norm(x: Scores, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """(sum of |x| ** p) ** (1 / p), operation by operation; it is lazy, as it often only divides."""
    dims = dims_of(x, dim)
    x = x if dtype is None else as_dtype(x, dtype)
    if not dims or ord == 0:
        raise UnsupportedOperation("a norm of order 0 counts; compare and add up instead: (x != 0).sum(), which is a constant")
    if math.isinf(ord):
        return over(absolute(x), dims, keepdim, 1 if ord > 0 else -1)
    if ord == 1:
        return total(absolute(x), dims, keepdim)
    if ord == 2:
        squares = total(x.elementwise(torch.square, keeps_zero=True, routing=True), dims, keepdim)
        root = squares.elementwise(finite(x, "sqrt", torch.sqrt), keeps_zero=True, routing=True)
        return record(root, ROOT, squares)
    powers = total(absolute(x).elementwise(finite(x, "norm", lambda v: v.clamp_min(0) ** ord), ord > 0), dims, keepdim)
    return powers.elementwise(finite(x, "norm", lambda v: v.clamp_min(0) ** (1 / ord)), ord > 0, routing=True)


@rule("norm", in_place=False)
def norm(x: Scores, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Any:
    return vector_norm(x, _order(p), dim, keepdim, dtype=dtype)


@rule(torch.linalg.norm, name="linalg.norm")
def linalg_norm(x: Scores, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    of_matrix = ord is not None and len(dims_of(x, dim)) == 2
    return vector_norm(x, _order("fro" if ord is None else ord, of_matrix), dim, keepdim, dtype=dtype)


@rule("matrix_norm", in_place=False)
def matrix_norm(x: Scores, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    return vector_norm(x, _order(ord, True), dim, keepdim, dtype=dtype)


def _order(p: Any, of_matrix: bool = False) -> Any:
    if p in ("fro", None):
        return 2
    if of_matrix or isinstance(p, str):
        raise UnsupportedOperation(
            f"the norm {p!r} of a matrix is not followed; use the Frobenius norm, torch.linalg.vector_norm(x)"
        )
    return p


@rule("pairwise_distance", in_place=False)
def pairwise_distance(a: Any, b: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return vector_norm(add(sub(a, b), eps), p, -1, keepdim)


@rule("cdist", in_place=False)
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """The norms of all differences."""
    rows, columns = move(a, lambda v: v.unsqueeze(-2)), move(b, lambda v: v.unsqueeze(-3))
    return vector_norm(sub(rows, columns), p, -1)


@rule("cosine_similarity", in_place=False)
def cosine_similarity(a: Any, b: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The product of two values that are each divided by their norm."""

    def scaled(part: Any) -> Any:
        if isinstance(part, Scores):
            return of_length_one(part, "cosine_similarity (norms)", 2, dim, eps)
        return F.normalize(part, 2, dim, eps)

    shape = torch.broadcast_shapes(a.shape, b.shape)
    one, two = (scaled(move(part, lambda v: v.expand(shape)) if part.shape != shape else part) for part in (a, b))
    return bilinear_map(lambda u, v: (u * v).sum(dim), one, two)


@rule("prod", in_place=False)
def prod(x: Scores, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """As a loop would multiply: the first two, then their product and the third ..."""
    if dim is None:
        x, dim = x.reshape(torch.flatten), 0
    result = functools.reduce(multiply, _along(x, dim)) if x.shape[dim] > 1 else x.reshape(lambda v: v.select(dim, 0))
    result = result.reshape(lambda v: v.unsqueeze(dim)) if keepdim else result
    return result if dtype is None else as_dtype(result, dtype)


@rule("cumprod")
def cumprod(x: Scores, dim: int, *, dtype: Any = None) -> Any:
    first, *others = _along(x, dim)
    products = [first]
    for factor in others:
        products.append(multiply(products[-1], factor))
    result = x.join(x.run, lambda *parts: torch.stack(parts, dim), products)
    return result if dtype is None else as_dtype(result, dtype)


def _along(x: Scores, dim: int) -> tuple[Any, ...]:
    parts: tuple[Any, ...] = x.reshape(lambda v: v.unbind(dim))
    return parts
