"""Elementwise functions: all of them follow the one activation rule."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.extrema import LOWEST
from .._core.math_functions import pointwise
from .._core.provenance import BOUNDED, FINAL, INVERSE, ROOT, SCALE, SUM, TERMS, kind_of, record
from .._core.tensors import Softmaxed
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .conversion import as_dtype
from .recognise import logits_of_log_softmax, rate_of, sparse_softmax
from .registry import Rule, plain_function, rule, variants
from .registry import add as register
from .softmax import dim_of, is_open, open_softmax

_EVERYWHERE = """
    relu relu6 gelu silu mish tanh sigmoid softplus logsigmoid softsign tanhshrink hardswish hardsigmoid hardshrink
    softshrink hardtanh threshold elu celu selu leaky_relu expm1 abs absolute square sin cos sinh cosh
    asinh arcsinh atan arctan erf erfc sign sgn floor ceil round trunc fix frac deg2rad rad2deg sinc expit
    clamp clip clamp_min clamp_max nan_to_num i0 heaviside fmod remainder floor_divide
    atan2 arctan2 hypot copysign logaddexp logaddexp2
""".split()
_PARTIAL = """
    log log2 log10 log1p sqrt pow tan asin arcsin acos arccos atanh arctanh acosh arccosh
    logit erfinv lgamma digamma
""".split()


_ACTIVATIONS = frozenset(
    "relu relu6 gelu silu mish tanh sigmoid softplus logsigmoid softsign hardswish hardsigmoid hardtanh elu celu selu "
    "leaky_relu".split()
)
_BOUNDS = frozenset("clamp clip clamp_min".split())
_RAMPS = frozenset("clamp clip clamp_min square".split())
_OFFSETS = frozenset("clamp clip clamp_min clamp_max remainder floor_divide".split())


LOWEST |= {  # of functions that fall and then rise
    **dict.fromkeys(("abs", "absolute", "square", "cosh"), 0.0),
    "gelu": -0.7517915246935645,
    "gelu tanh": -0.7524614220710162,
    "silu": -1.278464542761074,
    "mish": -1.1924312145154952,
    "hardswish": -1.5,
}
_DOMAINS: dict[str, tuple[float | None, float | None]] = {  # of functions that are finite at its ends
    **dict.fromkeys(("sqrt", "std"), (0, None)),
    **dict.fromkeys(("asin", "arcsin", "acos", "arccos"), (-1, 1)),
    **dict.fromkeys(("acosh", "arccosh"), (1, None)),
}


def finite(x: Scores, name: str, phi: Callable[[Tensor], Tensor], domain: Any = None) -> Callable[[Tensor], Tensor]:
    """phi, taken at the end of its domain by arguments beyond; elsewhere that it is not finite is remembered, with a reason.

    Scores may lead out of the domain where no value can: a variance less all that pushed it down is below 0.
    """
    low, high = domain or _DOMAINS.get(name, (None, None))

    def checked(value: Tensor) -> Tensor:
        result = phi(value if low is None and high is None else value.clamp(low, high))
        bad = ~result.isfinite() & value.isfinite()
        if bool(bad.any()):
            x.run.note_infinite(
                f"{name} is not finite at {value[bad][0].item():.6g}. The activation rule needs it at the "
                "value, at the reference, and at the reference moved by the positive or the negative scores alone. "
                f"Choose baselines at which {name} is defined on all of these, or a function that is (log1p for log)."
            )
        return result

    return checked


@functools.lru_cache(maxsize=1024)
def _at_zero(function: Callable[..., Tensor], args: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> bool:
    return bool(function(torch.zeros((), dtype=torch.float64), *args, **dict(options)) == 0)


def keeps_zero(function: Callable[..., Tensor], args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether the function is 0 at 0; False if its constants are tensors."""
    if any(isinstance(part, Tensor) for part in (*args, *options.values())):
        return False
    return _at_zero(function, args, tuple(sorted(options.items())))


def spread(x: Scores, *others: Any) -> Scores:
    """x in the shape that it takes together with tensors among the other arguments."""
    shape = torch.broadcast_shapes(x.shape, *(part.shape for part in others if isinstance(part, Tensor)))
    return x if shape == x.shape else x.reshape(lambda v: v.expand(shape))


def _apply(function: Callable[..., Tensor], name: str, partial: bool) -> Callable[..., Any]:
    def apply(x: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Scores) or any(isinstance(part, Scores) for part in (*args, *options.values())):
            raise UnsupportedOperation("only its first argument may depend on the input")
        if any(isinstance(part, Tensor) for part in (*args, *options.values())):
            x = spread(x, *args, *options.values())
        phi = pointwise(function, args, options)
        zero = keeps_zero(function, args, options)
        if name in _BOUNDS and kind_of(x) == ROOT:
            return record(x.elementwise(phi, zero, routing=True), BOUNDED, x, phi)
        if not partial:
            result = x.elementwise(phi, zero)
            return sparse_softmax(x, result) if name in _RAMPS else result
        result = x.elementwise(finite(x, name, phi), zero, routing=True)
        return record(result, ROOT, x) if name == "sqrt" else result

    return apply


for _name in _EVERYWHERE + _PARTIAL:
    for _function, _writes in variants(_name):
        _plain = plain_function(_name) if _writes else _function
        _kinds = {"activation": _name in _ACTIVATIONS, "offset": _name in _OFFSETS}
        register(
            _function,
            Rule(_name, _apply(_plain, _name, _name in _PARTIAL), _writes, kinds=frozenset(filter(_kinds.get, _kinds))),
        )

absolute, logarithm = _apply(torch.abs, "abs", False), _apply(torch.log, "log", True)
_root = _apply(torch.sqrt, "sqrt", True)

# The forms of ReLU share the one function that carriers know a closed form for.
rule("relu", kinds=["activation"])(lambda x: x.elementwise(torch.relu, True))


@rule("sigmoid", "expit", kinds=["activation", "final"])
def sigmoid(x: Scores) -> Any:
    """Elementwise; as the output of a model it is dropped and the logit explained."""
    return record(x.elementwise(torch.sigmoid), FINAL, x, "sigmoid")


@rule("exp")
def exp(x: Scores) -> Any:
    """Elementwise, and lazy: over a sum of the same exponentials it is a softmax, of a log_softmax that itself."""
    logits = logits_of_log_softmax(x)
    if logits is not None:
        if is_open(logits) and is_open(logits, dim := dim_of(logits, x)):
            return open_softmax(logits, dim)
        return Softmaxed.of(x.freeze("softmax", torch.exp, "softmax"), logits)
    return _exponentials(x, torch.exp, 1.0)


@rule("exp2")
def exp2(x: Scores) -> Any:
    return _exponentials(x, torch.exp2, math.log(2))


def _exponentials(x: Scores, phi: Callable[[Tensor], Tensor], rate: float) -> Any:
    """phi(x) = exp(rate * x)."""
    hidden = x.value == -torch.inf
    if not bool(hidden.any()):
        return record(x.elementwise(phi, routing=True), TERMS, x, rate)
    there = x.reshape(lambda v: v.masked_fill(hidden, 0))  # what a mask has put to minus infinity is 0, whatever it was
    result = record(there.elementwise(phi, routing=True), TERMS, x, rate)
    return result.reshape(lambda v: v.masked_fill(hidden, 0))


def invert(x: Scores, result: Scores) -> Scores:
    """1 / x, which remembers if x is a sum of exponentials."""
    if kind_of(x) != SUM:
        return result
    assert x.made_by is not None
    result.made_by = dataclasses.replace(x.made_by, kind=INVERSE)
    return result


@rule("rsqrt", in_place=False)
def inverse_root(x: Scores) -> Any:
    """The scale of a normalisation: frozen, or, if norms are open, followed along its secant between reference and value."""
    if x.run.settings.norms != "open":
        return x.freeze("rsqrt", torch.rsqrt, "routing")
    with x.run.secants():
        here, start = x.value.sqrt(), x.start.clamp_min(0).sqrt()  # scores that have waited, as of squares, are made now
    slope = -1 / (here * start * (here + start))
    slope = slope.masked_fill_(start == 0, 0)  # the model has no value at such a reference: as if frozen
    return record(x.scale(slope).add_constant(torch.addcmul(1 / here, slope, x.value, value=-1)), SCALE, x)


@rule("__rpow__")
def rpow(x: Scores, base: Any) -> Any:
    """base ** x for a constant base."""
    x, rate = spread(x, base), rate_of(base)
    phi = finite(x, "pow", lambda v: torch.pow(base, v))
    return x.elementwise(phi) if rate is None else record(x.elementwise(phi, routing=True), TERMS, x, rate)


def _power(plain: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, exponent: Any) -> Any:
        if isinstance(exponent, (Scores, Tensor)):
            return rpow(exponent, x) if not isinstance(x, Scores) else plain(x, exponent)
        if exponent == -0.5:
            return inverse_root(x)
        if exponent == 0.5:
            return _root(x)
        if exponent == 2:
            return sparse_softmax(x, x.elementwise(torch.square, True, routing=True))
        phi = finite(x, "pow", pointwise(torch.pow, (exponent,), {}), None if exponent % 1 == 0 or exponent < 0 else (0, None))
        result = x.elementwise(phi, exponent > 0, routing=True)
        return invert(x, result) if exponent == -1 and kind_of(x) == SUM else sparse_softmax(x, result)

    return apply


for _function, _writes in variants("pow"):
    register(_function, Rule("pow", _power(_apply(torch.pow, "pow", True)), in_place=_writes))


@rule("float_power")
def float_power(x: Any, exponent: Any) -> Any:
    """A power in float64, whatever x is."""
    result = _power(_apply(torch.pow, "float_power", True))(_double(x), _double(exponent))
    result.nominal = torch.float64
    return result


def _double(part: Any) -> Any:
    return as_dtype(part, torch.float64) if isinstance(part, Scores) else part.double() if isinstance(part, Tensor) else part


@rule("prelu", in_place=False)
def prelu(x: Any, weight: Any) -> Any:
    if isinstance(weight, Scores):
        raise UnsupportedOperation("its weight depends on the input")
    return x.elementwise(lambda v: F.prelu(v, weight), True)


@rule("rrelu")
def rrelu(x: Scores, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    if training:
        raise ValueError("explain(...): rrelu draws random slopes in training mode. Call model.eval() first.")
    return x.elementwise(lambda v: F.rrelu(v, lower, upper), True)


@rule("glu")
def glu(x: Scores, dim: int = -1) -> Any:
    """A product of one half with the sigmoid of the other."""
    value, gate = x.reshape(lambda v: v.chunk(2, dim))
    return value.product(gate.elementwise(torch.sigmoid), torch.mul)
