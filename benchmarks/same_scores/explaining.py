"""Explanations and attributions in one call, and the settings that most parts go through."""

from __future__ import annotations

from cafexai import CAFE

NETTINGS = ("path", "feature")
BIASES = ("scores", "reference")
OF_EXPLAINER = ("c", "netting", "biases", "norm_mean")


def explain(model, inputs, baselines=None, *, several=None, **options):
    """One explanation, with the options of the explainer beside those of the call; several c are those of the call."""
    own = {name: options.pop(name) for name in OF_EXPLAINER if name in options}
    return CAFE(model, **own).explain(inputs, baselines, c=several, **options)


def attribute(model, inputs, baselines=None, target=None, **options):
    """Combined scores and their convergence delta."""
    return CAFE(model, **options).attribute(inputs, baselines, target, return_convergence_delta=True)
