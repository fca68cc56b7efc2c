"""Random networks of many kinds, each against a zero, a shared and an own reference; some have dead units and equal values."""

from __future__ import annotations

import itertools
from functools import partial

import torch
import torch.nn.functional as F
from dtypes import DTYPES, label, like, seeded
from explaining import cafe
from small_models import Own
from torch import nn

EACH = 60  # networks of every kind
ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.LeakyReLU)


def runs():
    """(name, computation) of all networks in every dtype."""
    for dtype in DTYPES:
        for kind, build in KINDS.items():
            for seed in range(EACH):
                yield from explained(f"{kind}/{label(dtype)}/{seed}", *seeded(build, dtype, seed), seed)


def explained(head, model, x, seed):
    """One network against a reference of each kind; half of the networks have units that are never active."""
    model = model.eval()
    torch.manual_seed(seed)
    if seed % 2:
        dampen(model)
    starts = {"zero": None, "row": like(x[:1]), "each": like(x)}
    for name, start in starts.items():
        yield f"{head}/{name}", partial(cafe(model).explain, x, start, target=0)
        yield f"{head}/{name}/attribute", partial(cafe(model).attribute, x, start, target=0)
    netting = ("path", "feature")[seed % 2]
    yield f"{head}/{netting}", partial(cafe(model, netting=netting).explain, x, starts["row"], target=0)


def dampen(model):
    """Lower some biases, so that their units are silent, and repeat a row of weights, so that values are equal."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.Conv1d)) and module.bias is not None and len(module.bias) > 3:
            with torch.no_grad():
                module.bias[::3] -= 5
                module.weight[1], module.bias[1] = module.weight[2], module.bias[2]
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            for own in (module.running_mean, module.running_var, module.weight, module.bias):
                own.data.copy_(torch.rand_like(own) + 0.1)


def pick(low, high):
    """A random number from low to high, both included."""
    return int(torch.randint(low, high + 1, ()))


def activation():
    """One of the usual ones; ReLU half of the time."""
    return nn.ReLU() if torch.rand(()) < 0.5 else ACTIVATIONS[pick(0, len(ACTIVATIONS) - 1)]()


def chain():
    """Linear layers in a row."""
    sizes = [pick(2, 9) for _ in range(pick(2, 5))]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 2)), torch.randn(pick(1, 5), sizes[0])


def residual():
    """Blocks that are added to what they take, with norms of two kinds, maxima and scales."""
    width, blocks, features = pick(3, 8), pick(1, 3), pick(2, 6)
    norms = nn.BatchNorm1d, nn.LayerNorm, lambda _: nn.Identity()
    parts = {f"b{i}": nn.Sequential(norms[pick(0, 2)](width), nn.Linear(width, width), activation()) for i in range(blocks)}
    larger = torch.rand(()) < 0.3

    def f(m, x):
        x = m.first(x)
        for i in range(blocks):
            y = getattr(m, f"b{i}")(x)
            x = torch.maximum(x, y) if larger else x + 0.7 * y
        return m.last(F.relu(x))

    model = Own(f, first=nn.Linear(features, width), last=nn.Linear(width, 2), **parts)
    return model, torch.randn(pick(1, 5), features)


def pool():
    """A max pool, with or without padding, gaps and a last window that is cut; an average or adaptive pool."""
    kernel = pick(2, 3)
    options = {"kernel_size": kernel, "stride": pick(1, kernel), "padding": pick(0, 1), "ceil_mode": bool(pick(0, 1))}
    if torch.rand(()) < 0.2:
        return nn.AvgPool2d(**options)
    if torch.rand(()) < 0.2:
        return nn.AdaptiveMaxPool2d(pick(2, 3))
    return nn.MaxPool2d(**options, dilation=pick(1, 2)) if pick(0, 1) else nn.MaxPool2d(2)


def images():
    """Convolutions, batch norms, pools, and blocks around which the value passes."""
    channels, depth, layers = pick(2, 5), pick(1, 3), []
    side = pick(8, 10)
    for i in range(pick(1, 3)):
        layers.append(nn.Conv2d(depth if not i else channels, channels, 3, padding=1, bias=pick(0, 1) == 1))
        layers += [nn.BatchNorm2d(channels)] * pick(0, 1) + [activation()]
        layers += [pool()] * (i < 2 and (pick(0, 2) > 0))
    body, block = nn.Sequential(*layers), nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), activation())

    def f(m, x):
        x = m.body(x)
        x = F.relu(x + m.block(x))
        return m.last(x.mean((2, 3)))

    return Own(f, body=body, block=block, last=nn.Linear(channels, 2)), torch.randn(pick(1, 4), depth, side, side)


def attention():
    """A small encoder of tokens."""
    heads, inner = pick(1, 3), pick(4, 9)
    width, tokens = heads * pick(2, 4), pick(2, 6)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": pick(0, 1) == 1, "activation": ("relu", "gelu")[pick(0, 1)]}
    encoder = nn.TransformerEncoderLayer(width, heads, inner, **options)
    return Own(lambda m, x: m.last(m.encoder(x).mean(1)), encoder=encoder, last=nn.Linear(width, 2)), torch.randn(
        pick(1, 4), tokens, width
    )


KINDS = {"chain": chain, "residual": residual, "images": images, "attention": attention}
