"""Every method on small models."""

from __future__ import annotations

from functools import partial

import torch
from dtypes import DTYPES, label, seeded
from explaining import NETTINGS, method, of_method
from small_models import ResidualMLP, ft_transformer, perceptron, small_cnn
from torch import nn

from cafexai.methods import METHODS

SUBJECTS = {  # a model and the shape of its input
    "ReLU": (perceptron, (4, 6)),
    "GELU": (lambda: perceptron(nn.GELU), (4, 6)),
    "CNN": (small_cnn, (3, 1, 8, 8)),
    "residual": (lambda: ResidualMLP().eval(), (4, 6)),
    "FT-Transformer": (ft_transformer, (4, 6)),
}
OWN_TARGETS = ("cafe", "deeplift_rescale", "deeplift_revealcancel", "lrp")  # methods that are given a target for each row


def runs():
    """(name, computation) of every method, subject and dtype."""
    for dtype in DTYPES:
        for subject, (build, shape) in SUBJECTS.items():
            model, x, random = seeded(lambda build=build, shape=shape: (build(), torch.randn(shape), torch.randn(shape)), dtype)
            tail = f"{subject}/{label(dtype)}"
            yield from each_method(tail, model, x, random)
            yield from own_settings(tail, model, x, random)


def each_method(tail, model, x, random):
    """All methods with the arguments that they share."""
    mask = torch.arange(x[0].numel()).view(x[0].shape) // 2
    starts = {"zero": None, "row": random[:1], "each": random, "stack": torch.stack([random[:1], -random[:1]])}
    for name in METHODS:
        head, run = f"{name}/{tail}", partial(method(name), model, x)
        for start, baselines in starts.items():
            yield f"{head}/{start}", partial(run, target=1, baselines=baselines)
        yield f"{head}/predicted", run
        yield f"{head}/groups", partial(run, target=1, feature_mask=mask)


def own_settings(tail, model, x, random):
    """Targets of each row, and the settings that only CAFE has."""
    targets = torch.arange(len(x)) % 3
    for name in OWN_TARGETS:
        yield f"{name}/{tail}/each row", partial(method(name), model, x, target=targets, baselines=random)
    for netting in NETTINGS:
        options = of_method({"netting": netting, "biases": "reference", "c": 1.0})
        yield f"cafe/{tail}/{netting}/reference", partial(METHODS["cafe"], model, x, target=1, **options)
