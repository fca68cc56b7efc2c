"""Models with a forward of their own, sizes that are cut into chunks, other arguments, and what is refused."""

from __future__ import annotations

from functools import partial

import torch
from dtypes import DTYPES, label, like, seeded
from explaining import NETTINGS, attribute, cafe, explain
from small_models import OWN, own_inputs, perceptron
from torch import nn

from cafexai import elementwise_module, from_sklearn

REFUSED = {  # arguments of an explanation
    "baseline of words": {"baselines": "mean"},
    "target": {"target": 3},
    "targets": {"target": [0, 1]},
    "netting": {"netting": "paths"},
    "biases": {"biases": "both"},
    "norm mean": {"norm_mean": "mean"},
    "c": {"c": 2.0},
    "no c": {"several": []},
    "check": {"check": "all"},
    "pairs": {"pairs": True},
    "layer": {"layer": "9"},
    "target layer": {"target_layer": "9"},
    "groups": {"feature_groups": {"one": [0, 9]}},
    "batch size": {"batch_size": 0},
}


def runs():
    """(name, computation) of all of these in every dtype."""
    for dtype in DTYPES:
        for name, (build, shape, target) in OWN.items():
            model = seeded(lambda build=build: build().eval(), dtype)
            for rows in (1, 5, 40):
                inputs = seeded(partial(own_inputs, shape, rows), dtype, rows)
                yield from against(f"{name}/{label(dtype)}/{rows} rows", model, inputs, target)
        for group in (large, arguments, refusals):
            for name, run in group(dtype):
                yield f"{group.__name__}/{name}/{label(dtype)}", partial(seeded, run, dtype)


def against(head, model, inputs, target):
    """One model against several kinds of baselines."""
    torch.manual_seed(1)
    starts = {
        "zero": None,
        "row": tuple(like(x[:1]) for x in inputs),
        "each": tuple(like(x) for x in inputs),
        "stack": tuple(torch.stack([like(x), like(x)]) for x in inputs),
    }
    for netting in NETTINGS:
        for start, baselines in starts.items():
            run = partial(explain, model, inputs, baselines, netting=netting)
            yield f"{head}/{netting}/{start}", partial(run, target=target)
        yield f"{head}/{netting}/reference", partial(run, target=target, biases="reference")
        yield f"{head}/{netting}/every class", partial(run, target="all")
        yield f"{head}/{netting}/predicted", run
        yield f"{head}/{netting}/attribute", partial(attribute, model, inputs, starts["each"], target, netting=netting)
    yield f"{head}/check each", partial(explain, model, inputs, starts["each"], target=target, check="each")


def large(dtype):
    """More numbers than are worked on at once."""
    net, x = seeded(lambda: (one_hidden(54, 512, nn.ReLU), torch.randn(3000, 54)), dtype)
    yield "path", lambda: explain(net, x, target=0)
    yield "path, row", lambda: explain(net, x, x.mean(0), target=0, biases="reference")
    yield "attribute", lambda: attribute(net, x)
    yield "rows that mix", lambda: explain(lambda v: net(v - v.mean(0)), x[:2100], target=0)
    yield "rows with a place", lambda: explain(lambda v: net(v * torch.linspace(1, 2, len(v))[:, None]), x[:2100], target=0)
    small, y = seeded(lambda: (one_hidden(24, 64, nn.GELU), torch.randn(12_000, 24)), dtype)
    yield "feature", lambda: explain(small, y, target=0, netting="feature")
    yield "GELU", lambda: explain(small, y[:1000], y[1:1001], target=0, several=[0.0, 1.0])
    layers = seeded(lambda: (nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8464, 2)), dtype)
    images = seeded(lambda: torch.randn(40, 3, 48, 48), dtype)
    yield "CNN", lambda: explain(nn.Sequential(*layers).eval(), images, target=0)


def one_hidden(inputs, width, activation):
    """A perceptron of one hidden layer and two classes."""
    return nn.Sequential(nn.Linear(inputs, width), activation(), nn.Linear(width, 2)).eval()


def arguments(dtype):
    """Arguments that other parts leave at their defaults."""
    net, x = seeded(lambda: (perceptron(nn.GELU), torch.randn(7, 6)), dtype)
    yield "c by name", lambda: explain(net, x, c={"1": 0.0, "3": 1.0}, target=1)
    yield "classes and c", lambda: explain(net, x, several=[0.0, 0.5, 1.0], target="all")
    yield "several c by name", lambda: explain(net, x, several=[{"1": 0.0}, 0.5], target=2)
    yield "batch size", lambda: explain(net, x, batch_size=2, target=torch.arange(7) % 3)
    yield "number", lambda: explain(net, x, 0.3)
    for word in ("mean", "median", "mode"):
        yield word, lambda word=word: cafe(net, background=torch.arange(30.0).view(5, 6).sin()).explain(x, word)
    yield "callable", lambda: explain(net, x, lambda given: given * 0.5)
    yield from more_arguments(net, x)
    yield "key", lambda: explain(lambda a: {"scores": net(a), "other": a}, x, target=0, output="scores")
    yield "names", lambda: explain(net, x, feature_names=list("abcdef")).ledger(2)
    yield "frame", lambda: explain(net, x, target=1).to_frame().to_string()
    for netting in NETTINGS:
        beside = partial(explain, lambda v: torch.ones(1, 3) + v.sum(), x[:1], target=0, netting=netting)
        yield f"number beside constants, {netting}", beside
    yield "inference mode", lambda: without_gradients(net, x)
    yield "declared", lambda: explain(nn.Sequential(net, elementwise_module(Squared)(), nn.Linear(3, 2)), x, target=0)
    yield "scikit-learn", fitted


def more_arguments(net, x):
    """Models that take more than their inputs."""
    run = partial(explain, target=0)
    scaled, shifted = lambda a, b, scale: torch.tanh(net(a) + b) * scale, lambda a, shift: net(a) + shift
    yield "more arguments", lambda: run(scaled, (x, x[:, :3]), additional_forward_args=2.0)
    yield "keywords", lambda: run(shifted, x, additional_forward_args={"shift": torch.arange(7.0)[:, None]})


class Squared(nn.Module):
    """An elementwise function in two operations."""

    def forward(self, x):
        """x |x|, written out."""
        return x * torch.abs(x)


def without_gradients(net, x):
    """An explanation where the caller has switched gradients off."""
    with torch.inference_mode():
        return explain(net, x, target=1)


def fitted():
    """The explanation of a scikit-learn pipeline."""
    from sklearn.datasets import load_iris
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, classes = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(8,), max_iter=30, random_state=0))
    return explain(from_sklearn(pipeline.fit(data, classes)), data[::30])


def refusals(dtype):
    """Calls that end in an error."""
    net, x = seeded(lambda: (perceptron(), torch.randn(7, 6)), dtype)
    for name, options in REFUSED.items():
        yield name, partial(explain, net, x, **options)
    yield "no rule", lambda: explain(lambda v: torch.cumprod(v, 1) + torch.linalg.det(v[:, None] * v[:, :, None])[:, None], x)
    yield "training", lambda: explain(nn.Sequential(nn.Dropout(), net).train(), x)
    yield "batch norm", lambda: explain(nn.Sequential(nn.BatchNorm1d(6), net).train(), x)
    yield "not a number", lambda: explain(net, x * float("nan"))
    yield "baseline", lambda: explain(net, x, torch.zeros(5))
    yield "dtype", lambda: explain(net, x.half())
    yield "no rows", lambda: explain(net, x[:0])
    yield "logarithm", lambda: explain(lambda v: torch.log(v * v).sum(1), x)
    yield "random", lambda: explain(lambda v: net(v + torch.rand_like(v)), x)
    yield "scripted", lambda: explain(torch.jit.script(net), x)
    yield "no input", lambda: explain(lambda v: torch.ones(7, 2), x)
    yield "codes", lambda: explain(lambda c, v: v.sum(1) * (c > 0).sum(1), (torch.ones(7, 3, dtype=torch.long), x))
