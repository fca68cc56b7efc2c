"""One sample call for every rule. A new rule needs a line here; a test holds the two sets equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cafexai.rules import registry


@dataclass(frozen=True)
class S:
    """A scored argument. ``low`` and ``high`` bound its reference; scores are at most ``scores``."""

    shape: tuple[int, ...]
    low: float = -1.5
    high: float = 1.5
    scores: float = 2.0


@dataclass(frozen=True)
class K:
    """A constant argument with random numbers."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True)
class Case:
    """How to call a rule, and which naive twin it has."""

    name: str
    twin: str  # linear, elementwise, largest, smallest, soft, product, constant, shaped, softmax (open)
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    frozen: Callable[..., Any] | None = None  # the linear function at frozen values: frozen(values) -> f
    where: Callable[[Any], bool] = lambda function: True

    @property
    def settings(self) -> dict[str, str]:
        """Those that differ from the published method."""
        return {"attention": "open"} if self.twin == "softmax" else {}


CASES: list[Case] = []


def case(names: str, twin: str, *args: Any, frozen: Any = None, where: Any = None, **kwargs: Any) -> None:
    for name in names.split():
        CASES.append(Case(name, twin, args, kwargs, frozen, where or (lambda function: True)))


def is_method(function: Any) -> bool:
    return hasattr(function, "__objclass__") or getattr(function, "__qualname__", "").startswith("Tensor.")


def is_functional(function: Any) -> bool:
    return getattr(function, "__module__", "") == "torch.nn.functional"


def out_of_place(function: Any) -> bool:
    return not registry.find(function).in_place


def index(*values: int) -> Tensor:
    return torch.tensor(values)


# ---- layers ----------------------------------------------------------------------------------------------------------
case("linear", "linear", S((2, 3)), K((4, 3)), K((4,)))
case("linear", "linear", S((2, 2, 3)), K((4, 3)))
case("linear", "product", S((2, 3)), S((4, 3)))
case("bilinear", "linear", S((2, 3)), K((2, 4)), K((5, 3, 4)), K((5,)))
case("bilinear", "linear", K((2, 3)), S((2, 4)), K((5, 3, 4)))
case("conv1d", "linear", S((2, 2, 5)), K((3, 2, 2)), K((3,)), 2, 1)
case("conv2d", "linear", S((2, 2, 4, 3)), K((2, 1, 2, 2)), K((2,)), padding=1, groups=2)
case("conv2d", "product", S((1, 1, 3, 3)), S((2, 1, 2, 2)))
case("conv3d", "linear", S((1, 1, 3, 3, 2)), K((2, 1, 2, 2, 2)), K((2,)))
case("conv_transpose1d", "linear", S((2, 2, 3)), K((2, 2, 2)), K((2,)), 2)
case("conv_transpose2d", "linear", S((2, 1, 2, 2)), K((1, 2, 2, 2)), K((2,)), stride=2, output_padding=1)
case("conv_transpose3d", "linear", S((1, 1, 2, 2, 2)), K((1, 2, 2, 2, 2)), K((2,)))
case("batch_norm", "linear", S((2, 3)), K((3,)), K((3,), 0.5, 2), K((3,)), K((3,)), False, 0.1, 1e-5, where=is_functional)
case("batch_norm", "linear", S((2, 2, 2, 2)), K((2,)), K((2,), 0.5, 2), where=is_functional)
case(
    "batch_norm",
    "linear",
    S((2, 3)),
    K((3,)),
    K((3,)),
    K((3,)),
    K((3,), 0.5, 2),
    False,
    0.1,
    1e-5,
    False,
    where=lambda f: f is torch.batch_norm,
)
case("avg_pool1d", "linear", S((2, 1, 5)), 2)
case("avg_pool2d", "linear", S((2, 1, 4, 3)), 2, 1, 1)
case("avg_pool3d", "linear", S((1, 1, 2, 3, 3)), 2)
case("adaptive_avg_pool1d", "linear", S((2, 1, 5)), 2)
case("adaptive_avg_pool2d", "linear", S((2, 1, 4, 3)), (2, 1))
case("adaptive_avg_pool3d", "linear", S((1, 1, 2, 3, 3)), 2)
case("fold", "linear", S((1, 4, 4)), (3, 3), (2, 2))
case("interpolate", "linear", S((2, 1, 2, 3)), scale_factor=2)
case("interpolate", "linear", S((2, 1, 3)), size=5, mode="linear", align_corners=True)
case("interpolate", "linear", S((1, 1, 2, 3)), size=(4, 4), mode="bilinear")
case("interpolate", "linear", S((1, 1, 2, 2, 2)), size=(3, 3, 3), mode="trilinear")
case("interpolate", "linear", S((2, 1, 3, 4)), size=(5, 3), mode="bicubic")
case("interpolate", "linear", S((1, 2, 3, 2)), scale_factor=(1.5, 2.0), mode="bicubic", align_corners=True)
case("interpolate", "linear", S((1, 1, 5, 4)), size=(2, 3), mode="bilinear", antialias=True)
case("interpolate", "linear", S((1, 1, 5, 4)), scale_factor=0.5, mode="bicubic", antialias=True)
case("grid_sample", "linear", S((2, 1, 3, 3)), K((2, 2, 2, 2)), align_corners=False)
case(
    "grid_sample",
    "linear",
    S((2, 1, 3, 3)),
    S((2, 2, 2, 2)),
    align_corners=False,
    frozen=lambda a, g: lambda x, y: F.grid_sample(x, g, align_corners=False),
)

# ---- matrix products -------------------------------------------------------------------------------------------------
case("matmul mm", "linear", S((2, 3)), K((3, 2)))
case("matmul mm", "linear", K((4, 2)), S((2, 3)))
case("__rmatmul__", "linear", S((3, 2)), K((4, 3)))
case("matmul", "linear", S((2, 3)), K((2, 3, 2)))
case("matmul", "product", S((2, 3)), S((3, 2)))
case("bmm", "linear", S((2, 2, 3)), K((2, 3, 2)))
case("bmm", "linear", K((2, 2, 3)), S((2, 3, 2)))
case("mv", "linear", S((2, 3)), K((3,)))
case("mv", "linear", K((4, 3)), S((3,)))
case("dot vdot inner outer ger", "linear", S((3,)), K((3,)))
case("dot vdot inner outer ger", "linear", K((3,)), S((3,)))
case("addmm", "linear", K((4,)), S((2, 3)), K((3, 4)), where=out_of_place, beta=0.5, alpha=-2)
case("addmm", "linear", S((2, 4)), S((2, 3)), K((3, 4)))
case("addmv", "linear", S((2,)), S((2, 3)), K((3,)))
case("baddbmm", "linear", S((2, 2, 2)), K((2, 2, 3)), S((2, 3, 2)), beta=2)
case("addbmm", "linear", S((2, 2)), K((2, 2, 3)), S((2, 3, 2)), beta=2, alpha=0.5)
case("addr", "linear", S((2, 3)), S((2,)), K((3,)))
case("einsum", "linear", "bi,io->bo", S((2, 3)), K((3, 2)))
case("einsum", "linear", "io,bi,o->bo", K((3, 2)), S((2, 3)), K((2,)))
case("einsum", "linear", "bi, ij, jo", S((2, 3)), K((3, 4)), K((4, 2)))
case("einsum", "linear", "...i,io", S((2, 2, 3)), K((3, 2)))
case("einsum", "linear", "bii->b", S((2, 3, 3)))
case("einsum", "product", "bi,bj->bij", S((2, 3)), S((2, 2)))
ENDS = torch.tensor([1, 1, 3], dtype=torch.int32)  # of three experts, of which one gets no token; the last token goes to none


def by_expert(w):
    return lambda x: torch.stack([x[0] @ w[0], x[1] @ w[2], x[2] @ w[2], 0 * x[3] @ w[2]])


EXPERTS = torch.linspace(-1, 1, 24, dtype=torch.float64).view(3, 4, 2)
PLACES = torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4)
case("_grouped_mm grouped_mm", "linear", S((4, 4)), EXPERTS, offs=ENDS, frozen=lambda a: by_expert(EXPERTS))
case("_grouped_mm grouped_mm", "linear", PLACES, S((3, 4, 2)), offs=ENDS, frozen=lambda w: lambda w: by_expert(w)(PLACES))
case("_grouped_mm grouped_mm", "product", S((4, 4)), S((3, 4, 2)), offs=ENDS, frozen=lambda a, w: lambda x, w: by_expert(w)(x))
case(
    "_grouped_mm grouped_mm",
    "linear",
    S((3, 2, 4)),
    PLACES,
    offs=ENDS,
    frozen=lambda a: lambda x: torch.cat([x[0] @ PLACES[:, :1], x[2] @ PLACES[:, 1:3], torch.zeros(2, 1)], 1),
)
case(
    "_grouped_mm grouped_mm",
    "linear",
    S((2, 4)),
    PLACES,
    offs=ENDS,
    frozen=lambda a: lambda x: torch.stack([x[:, :1] @ PLACES[:1], torch.zeros(2, 4), x[:, 1:3] @ PLACES[1:3]]),
)
case("_grouped_mm grouped_mm", "linear", S((3, 2, 4)), EXPERTS, frozen=lambda a: lambda x: x @ EXPERTS)
case("tensordot", "linear", S((2, 3)), K((3, 2)), 1)
case("kron", "linear", K((2, 2)), S((2, 2)))
case("diff", "linear", S((2, 4)), 2)
case("trace", "linear", S((3, 3)))

# ---- sums ------------------------------------------------------------------------------------------------------------
case("sum mean", "linear", S((2, 3)), 1)
case("sum mean", "linear", S((2, 3, 2)), (1, 2), True)
case("sum mean", "linear", S((2, 3)))
case("cumsum", "linear", S((2, 3)), 1)

# ---- arithmetic ------------------------------------------------------------------------------------------------------
case("add sub subtract rsub", "linear", S((2, 3)), K((3,)))
case("add sub subtract", "linear", S((2, 3)), S((2, 3)), alpha=-0.5, where=lambda f: "__" not in str(f))
case("add", "linear", K((2, 3)), S((2, 3)), where=out_of_place)
case("add sub", "linear", S((2, 3)), 2.5)
case("__rsub__", "linear", S((2, 3)), 1.0)
case("rsub", "linear", S((2, 3)), S((2, 3)))
case("neg negative", "linear", S((2, 3)))
case("positive", "linear", S((2, 3)))
case("mul multiply", "linear", S((2, 3)), K((3,)))
case("mul", "linear", S((2, 3)), -2.0)
case("mul multiply", "product", S((2, 3)), S((2, 3)))
case("div divide true_divide", "linear", S((2, 3)), K((3,), -2, -1))
case("div", "linear", S((2, 3)), -4.0)
case("div", "linear", S((2, 3)), S((2, 3), 3, 4, 0.5), frozen=lambda a, b: lambda x, y: x / b)
case("div", "elementwise", K((2, 3)), S((2, 3), 3, 4, 0.5), where=out_of_place)
case("__rtruediv__", "elementwise", S((2, 3), 3, 4, 0.5), 2.0)
case("addcmul", "linear", S((2, 3)), S((2, 3)), K((2, 3)), value=-0.5)
case("addcdiv", "linear", S((2, 3)), S((2, 3)), K((2, 3), 1, 2), value=2)
case("lerp", "linear", S((2, 3)), S((2, 3)), 0.25)
case("lerp", "linear", S((2, 3)), K((2, 3)), K((2, 3), 0, 1))

# ---- elementwise functions -------------------------------------------------------------------------------------------
X = S((2, 5))
case(
    "relu relu6 gelu silu mish tanh sigmoid softplus logsigmoid softsign tanhshrink hardswish hardsigmoid hardshrink "
    "softshrink hardtanh elu celu selu leaky_relu exp exp2 expm1 abs absolute square sin cos sinh cosh asinh arcsinh atan "
    "arctan erf erfc sign sgn floor ceil round trunc fix frac deg2rad rad2deg sinc expit nan_to_num i0 rrelu",
    "elementwise",
    X,
)
case("gelu", "elementwise", X, approximate="tanh")
case("leaky_relu", "elementwise", X, 0.3)
case("elu", "elementwise", X, 2.0)
case("hardtanh", "elementwise", X, 0.5, 1.5)
case("softplus", "elementwise", X, 2, 1)
case("threshold", "elementwise", X, 0.1, 20.0)
case("clamp clip", "elementwise", X, -0.5, 0.7)
case("clamp", "elementwise", X, K((5,), -1, 0), K((5,), 0, 1))
case("clamp_min clamp_max", "elementwise", X, 0.3)
case("pow float_power", "elementwise", X, 3)
case("pow", "elementwise", X, 2)
case("fmod remainder floor_divide", "elementwise", X, 0.7)
case("atan2 arctan2 hypot copysign logaddexp logaddexp2", "elementwise", X, K((2, 5)))
case("heaviside", "elementwise", X, K((5,)))
case("prelu", "elementwise", S((2, 3, 2)), K((3,)))
case("__rpow__", "elementwise", X, 2.0)
POSITIVE = S((2, 5), 2, 3, 0.9)
case("log log2 log10 log1p sqrt reciprocal lgamma digamma acosh arccosh", "elementwise", POSITIVE)
case("pow", "constant", POSITIVE, -0.5)
INNER = S((2, 5), 0.4, 0.6, 0.3)
case("logit tan asin arcsin acos arccos atanh arctanh erfinv", "elementwise", INNER)
case("maximum minimum fmax fmin max min", "elementwise", X, K((5,)))
case("glu", "product", S((2, 4)), 1, frozen="glu")

# ---- selection -------------------------------------------------------------------------------------------------------
P1, P2, P3 = S((2, 1, 5)), S((1, 2, 4, 3)), S((1, 1, 2, 3, 3))
case("max_pool1d max_pool1d_with_indices", "largest", P1, 2, 1, where=is_functional)
case("max_pool2d max_pool2d_with_indices", "largest", P2, 2, where=is_functional)
case("max_pool2d", "largest", P2, 3, 2, 1, 1, True, where=is_functional)
case("max_pool2d", "largest", S((1, 1, 5, 5)), 2, 1, 0, 2, where=is_functional)
case("max_pool3d max_pool3d_with_indices", "largest", P3, 2, where=is_functional)
case("max_pool1d", "largest", P1, 2, where=lambda f: f is torch.max_pool1d)
case("max_pool1d_with_indices", "largest", P1, 2, where=lambda f: not is_functional(f))
case("max_pool2d", "largest", P2, 2, where=lambda f: f is torch.max_pool2d)
case("max_pool2d_with_indices", "largest", P2, 2, where=lambda f: not is_functional(f))
case("max_pool3d", "largest", P3, 2, where=lambda f: f is torch.max_pool3d)
case("max_pool3d_with_indices", "largest", P3, 2, where=lambda f: not is_functional(f))
case("adaptive_max_pool1d adaptive_max_pool1d_with_indices", "largest", P1, 2)
case("adaptive_max_pool2d adaptive_max_pool2d_with_indices", "largest", P2, (3, 2))
case("adaptive_max_pool3d adaptive_max_pool3d_with_indices", "largest", P3, (2, 2, 2))
case("amax", "largest", S((2, 3, 2)), (1, 2))
case("amin", "smallest", S((2, 3, 2)), 1, True)
case("max", "largest", S((2, 3)), 1)
case("max", "largest", S((2, 3)))
case("min", "smallest", S((2, 3)), 1)
case("maximum fmax max", "largest", S((2, 3)), S((2, 3)))
case("minimum fmin", "smallest", S((2, 3)), S((2, 3)))
case("clamp_min", "largest", S((2, 3)), S((2, 3)))
case("clamp_max", "smallest", S((2, 3)), S((2, 3)))
case("clamp clip", "largest", S((2, 3)), S((2, 3)), None)
case("clamp clip", "smallest", S((2, 3)), max=S((2, 3)))
case("scatter_reduce", "largest", S((2, 3)), 1, torch.tensor([[2, 0, 2], [1, 1, 1]]), S((2, 3)), "amax")
case("scatter_reduce", "smallest", S((2, 3)), 0, torch.tensor([[1, 0], [1, 1]]), S((2, 3)), "amin", include_self=False)
case("logsumexp", "soft", S((2, 3, 2)), (1, 2))
case("logsumexp", "soft", S((2, 3, 2)), 1, True)
case("logsumexp", "soft", S((2, 3), scores=1e-6), 1)
case("cross_entropy", "soft", S((2, 3)), index(2, 0), reduction="none")
case("cross_entropy", "soft", S((2, 3, 2)), torch.tensor([[2, 0], [1, -100]]), reduction="none")
case("nll_loss", "linear", S((2, 3)), index(2, 0))
case("sort", "linear", S((2, 3)), 1, frozen=lambda a: lambda x: x.gather(1, a.sort(1).indices))
case("msort", "linear", S((3, 2)), frozen=lambda a: lambda x: x.gather(0, a.sort(0).indices))
case("topk", "linear", S((2, 4)), 2, frozen=lambda a: lambda x: x.gather(1, a.topk(2).indices))

# ---- moves -----------------------------------------------------------------------------------------------------------
M = S((2, 3, 2))
case("view reshape", "linear", M, (2, 6), where=is_method)
case("reshape", "linear", M, (6, 2))
case("view reshape", "linear", M, 3, -1, where=is_method)
case("flatten", "linear", M, 1)
case("ravel", "linear", M)
case("transpose swapaxes swapdims", "linear", M, 0, 1)
case("t T", "linear", S((2, 3)))
case("H", "linear", S((2, 3)))
case("mT mH adjoint", "linear", M)
case("permute", "linear", M, (2, 0, 1))
case("movedim moveaxis", "linear", M, 0, 2)
case("squeeze", "linear", S((2, 1, 3)), 1)
case("unsqueeze", "linear", M, 1)
case("expand", "linear", S((2, 1, 2)), (2, 3, 2))
case("expand_as view_as reshape_as", "linear", S((2, 3)), K((2, 3)))
case("select", "linear", M, 1, 2)
case("narrow", "linear", M, 1, 1, 2)
case(
    "narrow_copy", "linear", M, 1, 1, 2, frozen=lambda value: lambda v: v.narrow(1, 1, 2)
)  # older torch has no derivative of it
case("diagonal", "linear", S((2, 3, 3)))
case("unflatten", "linear", S((2, 6)), 1, (2, 3))
case("chunk tensor_split unsafe_chunk", "linear", S((2, 4)), 2, 1)
case("split unsafe_split", "linear", S((2, 4)), 2, 1)
case("split_with_sizes unsafe_split_with_sizes", "linear", S((2, 4)), [1, 3], 1)
case("hsplit", "linear", S((2, 4)), 2)
case("vsplit", "linear", S((2, 4)), 2)
case("dsplit", "linear", S((2, 3, 2)), 2)
case("unbind", "linear", M, 1)
case("broadcast_to", "linear", S((2, 1)), (2, 3))
case("atleast_1d atleast_2d atleast_3d", "linear", S((2, 3)))
case("as_strided", "linear", S((2, 5)), (2, 2, 3), (5, 2, 1))
case("as_strided", "linear", S((2, 5)), (4,), (2,), 1)
case("unfold", "linear", S((2, 5)), 1, 2, 1, where=is_method)
case("unfold", "linear", S((2, 1, 3, 3)), 2, 1, 1, where=is_functional)
case("__getitem__", "linear", M, (slice(None), index(0, 2), None))
case("real conj resolve_conj resolve_neg", "linear", S((2, 3)))
case("flip", "linear", M, (1,))
case("fliplr flipud", "linear", S((2, 3)))
case("roll", "linear", M, 1, 1)
case("rot90", "linear", S((2, 3)))
case("repeat", "linear", S((2, 3)), 1, 2)
case("tile", "linear", S((2, 3)), (1, 2))
case("repeat_interleave", "linear", S((2, 3)), 2, 1)
case("gather", "linear", S((2, 3)), 1, torch.tensor([[0, 2], [1, 1]]))
case("index_select", "linear", M, 1, index(2, 0))
case("masked_select", "linear", S((2, 3)), torch.tensor([[True, False, True], [False, True, True]]))
case("take", "linear", S((2, 3)), index(0, 4, 5))
case("take_along_dim", "linear", S((2, 3)), torch.tensor([[0, 2], [1, 1]]), 1)
case("tril triu", "linear", S((3, 3)))
case("diag diagflat diag_embed", "linear", S((3,)))
case("pixel_shuffle", "linear", S((1, 4, 2, 2)), 2)
case("pixel_unshuffle", "linear", S((1, 1, 4, 2)), 2)
case("channel_shuffle", "linear", S((1, 4, 2, 2)), 2)
case("cat concat concatenate stack", "linear", [S((2, 3)), K((2, 3)), S((2, 3))], 1)
case("cat", "linear", [S((2, 3)), S((1, 3))])
case("hstack vstack dstack row_stack column_stack", "linear", [S((2, 3)), K((2, 3))])
case("broadcast_tensors", "linear", S((2, 3)), K((3,)))
case("__reversed__", "linear", S((2, 3)))
case("block_diag", "linear", S((2, 2)), K((1, 2)))
case("pad", "linear", S((2, 1, 3, 2)), (1, 0, 0, 2), value=1.5)
case("pad", "linear", S((2, 1, 3, 3)), (1, 1, 2, 0), mode="reflect")
case("pad", "linear", S((2, 1, 3, 3)), (1, 1, 2, 0), mode="replicate")
case("pad", "linear", S((2, 1, 3, 3)), (1, 1, 2, 0), mode="circular")
case("max_unpool1d", "linear", S((1, 1, 2)), torch.tensor([[[1, 2]]]), 2)
case("max_unpool2d", "linear", S((1, 1, 1, 1)), torch.tensor([[[[3]]]]), 2)
case("max_unpool3d", "linear", S((1, 1, 1, 1, 1)), torch.tensor([[[[[5]]]]]), 2)

# ---- writing ---------------------------------------------------------------------------------------------------------
MASK = torch.tensor([[True, False, True], [False, True, True]])
case("where", "linear", MASK, S((2, 3)), S((2, 3)), where=lambda f: f is torch.where)
case("where", "linear", MASK, S((2, 3)), 1.5, where=lambda f: f is torch.where)
case("where", "linear", S((2, 3)), MASK, S((2, 3)), where=is_method)
case("where", "linear", S((2, 3)), MASK, K((2, 3)), where=is_method)
case("masked_fill", "linear", S((2, 3)), MASK, -3.0)
case("masked_scatter", "linear", S((2, 3)), MASK, S((2, 3)))
case("fill_", "linear", S((2, 3)), 2.5)
case("zero_", "linear", S((2, 3)))
case("select_scatter", "linear", S((2, 3)), S((2,)), 1, 0)
case("slice_scatter", "linear", S((2, 3)), S((2, 2)), 1, 1)
case("diagonal_scatter", "linear", S((3, 3)), S((3,)))
case("__setitem__", "linear", S((2, 3)), (slice(None), 0), S((2,)))
case("__setitem__", "linear", S((2, 3)), (slice(None), index(0, 2)), 4.0)
case("copy_", "linear", S((2, 3)), S((3,)))
case("index_put", "linear", S((2, 3)), (index(0, 1), index(2, 0)), S((2,)))
case("index_copy", "linear", S((2, 3)), 1, index(2, 0), S((2, 2)))
case("index_fill", "linear", S((2, 3)), 1, index(0, 2), 2.5)
case("index_add", "linear", S((2, 3)), 1, index(2, 2), S((2, 2)), alpha=-0.5)
case("index_add", "linear", S((2, 3)), 1, index(2, 0), K((2, 2)))
case("scatter", "linear", S((2, 3)), 1, torch.tensor([[2, 0], [1, 2]]), S((2, 2)))
case("scatter", "linear", S((2, 3)), 1, torch.tensor([[2, 0], [1, 2]]), value=1.5)
case("scatter_add", "linear", S((2, 3)), 1, torch.tensor([[2, 2], [1, 1]]), S((2, 2)))
PAIRS = torch.tensor([[2, 2], [1, 0]])
case("scatter_reduce", "linear", S((2, 3)), 1, PAIRS, S((2, 2)), "sum")
case("scatter_reduce", "linear", S((2, 3)), 1, PAIRS, S((2, 2)), "mean", include_self=False)
case("scatter_reduce", "linear", S((2, 3)), 0, torch.tensor([[1, 1], [1, 0]]), K((2, 3)), "mean")
case(
    "scatter",
    "linear",
    S((2, 3)),
    1,
    PAIRS,
    S((2, 3)),
    reduce="add",
    frozen=lambda a, b: lambda x, y: x.scatter_add(1, PAIRS, y[:, :2]),
)
case("pad_sequence", "linear", [S((2, 2)), S((3, 2))], True)
case("_pack_padded_sequence", "linear", S((2, 3, 2)), torch.tensor([3, 2]), True)
case("_pad_packed_sequence", "linear", S((4, 2)), torch.tensor([2, 1, 1]), True, 0.5, 4)

# ---- conversions and constants ---------------------------------------------------------------------------------------
case("to", "linear", S((2, 3)), torch.float64)
case("torch.Tensor.double contiguous clone requires_grad_", "linear", S((2, 3)))
case("torch.Tensor.float torch.Tensor.half torch.Tensor.bfloat16", "rounded", S((2, 3)))
case(
    "torch.Tensor.long torch.Tensor.int torch.Tensor.short torch.Tensor.char torch.Tensor.byte torch.Tensor.bool",
    "constant",
    S((2, 3)),
)
case("as_tensor", "linear", S((2, 3)))
case("type", "linear", S((2, 3)), torch.float64)
case("type_as", "linear", S((2, 3)), K((1,)))
case("dropout alpha_dropout feature_dropout feature_alpha_dropout", "linear", S((2, 3)), 0.5, False)
case("dropout1d", "linear", S((2, 3, 2)), 0.5, False)
case("dropout2d", "linear", S((2, 3, 2, 2)), 0.5, False)
case("dropout3d", "linear", S((1, 3, 2, 2, 1)), 0.5, False)
case("eq ne lt le gt ge not_equal less less_equal greater greater_equal isclose", "constant", S((2, 3)), K((2, 3)))
case("equal allclose", "constant", S((2, 3)), K((2, 3)))
case("logical_and logical_or logical_xor", "constant", S((2, 3)), K((2, 3)))
case(
    "isnan isinf isfinite isposinf isneginf isreal logical_not signbit any all nonzero count_nonzero argmax argmin "
    "argsort tolist detach data",
    "constant",
    S((2, 3)),
)
case("bucketize", "constant", S((2, 3)), index(0, 1).double())
case("searchsorted", "constant", index(0, 1).double(), S((2, 3)))
case("histc", "constant", S((2, 3)), 4)
case("item __bool__ __nonzero__ __float__ __int__", "constant", S((1,)))
case("__contains__", "constant", S((2,)), 1.0)
case("zeros_like ones_like", "shaped", S((2, 3)))
case("full_like", "shaped", S((2, 3)), 2.0)
case("new_zeros new_ones", "shaped", S((2, 3)), (2,))
case("new_full", "shaped", S((2, 3)), (2,), 1.0)
case("new_tensor", "shaped", S((2, 3)), [1.0])
case("softmax", "constant", S((2, 3)), 1)
case("softmax", "softmax", S((2, 3)), 1)
case("log_softmax", "softmax", S((2, 3)), 1)
case("log_softmax", "linear", S((2, 3)), 1, frozen=lambda a: lambda x: x - a.logsumexp(1, keepdim=True))
case("softmin", "constant", S((2, 3)), 1)


def cosine(a, b, x, y):
    return (x * y).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


case("normalize", "linear", S((2, 3)), frozen=lambda a: lambda x: x / a.norm(2, 1, keepdim=True))
case("cosine_similarity", "product", S((2, 3)), S((2, 3)), frozen=lambda a, b: lambda x, y: cosine(a, b, x, y))
case("local_response_norm", "linear", S((1, 4, 2)), 2, frozen=lambda a: lambda x: x * F.local_response_norm(a, 2) / a)


# ---- normalisations --------------------------------------------------------------------------------------------------
def normalised(a, dims, eps=1e-5):
    """x -> (x - mean) / sigma with the statistics of a."""
    variance, mean = torch.var_mean(a, dims, correction=0, keepdim=True)
    return lambda x: (x - mean) / (variance + eps).sqrt()


W3, B3 = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64), torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64)
W4, B4 = torch.tensor([0.5, -1.0, 2.0, 1.5], dtype=torch.float64), torch.tensor([0.1, 0.2, -0.3, 0.4], dtype=torch.float64)
case("layer_norm", "linear", S((2, 2, 3)), (3,), W3, B3, frozen=lambda a: lambda x: normalised(a, -1)(x) * W3 + B3)
case("layer_norm", "linear", S((2, 2, 3)), (2, 3), frozen=lambda a: normalised(a, (1, 2)))
case(
    "rms_norm",
    "linear",
    S((2, 3)),
    (3,),
    W3,
    1e-6,
    frozen=lambda a: lambda x: x * W3 / (a.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
)
case(
    "group_norm",
    "linear",
    S((2, 4, 3)),
    2,
    W4,
    B4,
    frozen=lambda a: lambda x: normalised(a.view(2, 2, 6), -1)(x.view(2, 2, 6)).view(2, 4, 3) * W4[:, None] + B4[:, None],
)
case(
    "instance_norm",
    "linear",
    S((2, 3, 4)),
    None,
    None,
    W3,
    B3,
    frozen=lambda a: lambda x: normalised(a, -1)(x) * W3[:, None] + B3[:, None],
    where=is_functional,
)
case(
    "instance_norm",
    "linear",
    S((2, 3, 4)),
    W3,
    B3,
    None,
    None,
    True,
    0.1,
    1e-5,
    False,
    frozen=lambda a: lambda x: normalised(a, -1)(x) * W3[:, None] + B3[:, None],
    where=lambda f: not is_functional(f),
)
case("rsqrt", "constant", POSITIVE)

# ---- attention -------------------------------------------------------------------------------------------------------
case("scaled_dot_product_attention", "linear", K((2, 3, 4)), K((2, 5, 4)), S((2, 5, 2)))
case("scaled_dot_product_attention", "linear", K((2, 3, 4)), K((2, 3, 4)), S((2, 3, 2)), is_causal=True)
case(
    "scaled_dot_product_attention",
    "linear",
    K((2, 2, 3)),
    K((2, 4, 3)),
    S((2, 4, 2)),
    attn_mask=torch.tensor([True, True, False, True]),
    scale=0.3,
)
case("scaled_dot_product_attention", "linear", K((2, 4, 3, 2)), K((2, 2, 3, 2)), S((2, 2, 3, 2)), enable_gqa=True)

LOWER = torch.tensor([[1.5, 0.0, 0.0], [0.5, 2.0, 0.0], [-1.0, 0.3, 1.2]], dtype=torch.float64)
case("solve_triangular", "linear", LOWER, S((3, 2)), upper=False)
case("solve_triangular", "linear", LOWER.T.contiguous(), S((2, 3, 2)), upper=True, unitriangular=True)
case("solve_triangular", "linear", LOWER, S((2, 3)), upper=False, left=False)

# Made of several operations: compared step by step in test_composed.py.
COMPOSED = set(
    "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell multi_head_attention_forward "
    "embedding embedding_bag one_hot var std var_mean std_mean vector_norm norm linalg.norm matrix_norm cdist "
    "pairwise_distance prod cumprod mse_loss l1_loss smooth_l1_loss".split()
)

# ---- exported programs -----------------------------------------------------------------------------------------------
case("aten.slice", "linear", S((2, 4)), 1, 1, 3)
case("aten.alias aten.lift_fresh_copy", "linear", S((2, 3)))
case("aten._unsafe_view", "linear", S((2, 3)), (3, 2))
case("aten.index", "linear", S((2, 3)), [None, torch.tensor([2, 0])])
case("aten.upsample_nearest1d", "linear", S((1, 1, 3)), None, [2.0])
case("aten.upsample_nearest2d", "linear", S((1, 1, 2, 2)), None, [2.0, 2.0])
case("aten.upsample_nearest3d", "linear", S((1, 1, 2, 2, 1)), None, [2.0, 2.0, 1.0])
case("aten.upsample_linear1d", "linear", S((1, 1, 3)), None, False, [2.0])
case("aten.upsample_bilinear2d", "linear", S((1, 1, 2, 2)), (3, 3), True, None)
case("aten.upsample_bicubic2d", "linear", S((1, 1, 3, 2)), (4, 3), False, None)
case("aten.upsample_trilinear3d", "linear", S((1, 1, 2, 2, 2)), (3, 3, 2), False, None)

# Without a sample: they have random or no numbers, raise, or are no operation on numbers.
WITHOUT_NUMBERS = {
    "metadata",
    "_nested_tensor_from_mask_left_aligned",
    "aten._assert_tensor_metadata",
    "aten.sym_size",
    "aten.sym_numel",
    "empty_like",
    "rand_like",
    "randn_like",
    "new_empty",
    "numpy",
    "__array__",
    "cpu",
    "cuda",
    "retain_grad",
    "__index__",
    "__repr__",
    "__format__",
}
