"""Whole models as the tests have them."""

from __future__ import annotations

from functools import partial

import torch
from dtypes import DTYPES, label, like, seeded
from explaining import BIASES, NETTINGS, attribute, explain

from architectures import ARCHITECTURES
from cafexai import supported

LAYERS = {  # a layer to start from or to report at, and a unit to explain
    "multi-layer perceptron": ("1", "2", 5),
    "residual CNN": ("maxpool", "stages.1", (1, 0, 1)),
    "FT-Transformer": ("blocks.0", "blocks.1.qkv", (0, 3)),
    "nn.TransformerEncoder": ("body.layers.0", "body.layers.1.linear1", (1, 3)),
    "LSTM": ("body", "head", 2),
}
GROUPS = {
    "multi-layer perceptron": {"first two": [0, 1]},
    "residual CNN": torch.arange(768).view(3, 16, 16) // 64,
    "CNN with many kinds of layers": torch.arange(64).view(1, 8, 8) // 8,
    "FT-Transformer": {"block": [2, 3, 4], "numbers": [0, 1]},
}
MANY = 200  # features beyond which all pairs of them are too much to keep


def runs():
    """(name, computation) of every architecture in every dtype."""
    for name, architecture in ARCHITECTURES.items():
        for dtype in DTYPES:
            model, inputs, random, stack = prepared(architecture, name, dtype)
            head = f"{name}/{label(dtype)}"
            yield from explained(head, model, inputs, random, {"target": 1, **architecture.options})
            yield from attributed(head, model, inputs, stack, architecture.options.get("output"))
            yield f"{head}/supported", lambda model=model, inputs=inputs: str(supported(model, inputs))
            if name in LAYERS:
                yield from inside(head, model, inputs[0], *LAYERS[name])
            if name in GROUPS:
                yield from in_groups(head, model, inputs[0], GROUPS[name])


def prepared(architecture, name, dtype):
    """A model, its inputs, random baselines and three of them in a stack."""

    def build():
        model = architecture.build()
        model = model if name.startswith("exported") else model.eval().to(dtype)
        inputs = architecture.inputs()
        return model, inputs, tuple(map(like, inputs)), tuple(torch.stack([like(x) for _ in range(3)]) for x in inputs)

    return seeded(build, dtype)


def explained(head, model, inputs, random, options):
    """Explanations of a model against zeros and random baselines."""
    run = partial(explain, model, inputs, **options)
    few = sum(x[0].numel() for x in inputs) <= MANY
    for start, baselines in (("zero", None), ("random", random)):
        yield from carried(f"{head}/{start}", partial(run, baselines), pairs=few)
    yield f"{head}/several c", partial(run, random, several=[0.0, 0.5, 1.0])
    yield f"{head}/linear mean", partial(run, random, norm_mean="linear")


def carried(head, run, pairs):
    """All ways to carry influence through a model."""
    for biases in BIASES:
        for c in (0.0, 0.5, 1.0):
            yield f"{head}/path/{biases}/c={c}", partial(run, c=c, biases=biases)
        yield f"{head}/feature/{biases}", partial(run, netting="feature", biases=biases)
        if pairs:
            yield f"{head}/pairs/{biases}", partial(run, netting="feature", biases=biases, pairs=True)


def attributed(head, model, inputs, stack, output):
    """Attributions of a model, or of one of its outputs, against several baselines."""
    chosen = model if output is None else lambda *given: model(*given)[output]
    for netting in NETTINGS:
        yield f"{head}/attribute/{netting}", partial(attribute, chosen, inputs, stack, 1, netting=netting)


def inside(head, model, x, layer, target_layer, unit):
    """From a layer, at a layer, and to a unit of a layer."""
    for netting in NETTINGS:
        run = partial(explain, model, x, netting=netting)
        yield f"{head}/layer/{netting}", partial(run, target=1, layer=layer)
        yield f"{head}/at layer/{netting}", partial(run, target=1, layer=layer, start=False)
        yield f"{head}/target layer/{netting}", partial(run, target=unit, target_layer=target_layer)


def in_groups(head, model, x, groups):
    """Scores of groups of features."""
    run = partial(explain, model, x, target=1, feature_groups=groups)
    yield f"{head}/groups/path", run
    yield f"{head}/groups/feature", partial(run, netting="feature")
    yield f"{head}/groups/pairs", partial(run, netting="feature", pairs=True)
