"""Explanations and attributions in one call, and the options that most parts go through.

Every option of CAFE is named, so that the defaults of a tree do not matter: those of ``base``, and what a run names itself.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from cafexai import CAFE
from cafexai.methods import METHODS

NETTINGS = ("path", "feature")
BIASES = ("scores", "reference")
OF_EXPLAINER = ("c", "netting", "biases", "norm_mean")
BASES = {
    "published": {"netting": "path", "flows": "peak", "biases": "scores", "norms": "frozen", "norm_mean": "bias"},
    "unit": {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open", "norm_mean": "bias"},
}
base = "published"


def knows(name, value):
    """Whether the CAFE of this tree has an option."""
    try:
        CAFE(nn.Identity(), **{name: value})
    except TypeError:
        return False
    return True


def named(own):
    """All options of an explainer: its own ones, else those of the base; attention is frozen, as in every tree."""
    options = BASES[base] | own
    if options["biases"] == "scores":
        options["norms"] = "frozen"  # open norms need the biases in the reference
    if knows("attention", "frozen"):
        options["attention"] = "frozen"
    return options


def cafe(model, **own):
    """An explainer with every option named."""
    return CAFE(model, **named(own))


def method(name):
    """A method of the package; CAFE with every option named."""
    return partial(METHODS[name], **of_method({})) if name == "cafe" else METHODS[name]


def of_method(own):
    """All options of the method "cafe", which had no ``norm_mean`` before 0.2."""
    options = named(own)
    return {name: value for name, value in options.items() if name != "norm_mean" or "attention" in options}


def explain(model, inputs, baselines=None, *, several=None, **options):
    """One explanation, with the options of the explainer beside those of the call; several c are those of the call."""
    own = {name: options.pop(name) for name in OF_EXPLAINER if name in options}
    return cafe(model, **own).explain(inputs, baselines, c=several, **options)


def attribute(model, inputs, baselines=None, target=None, **options):
    """Combined scores and their convergence delta."""
    return cafe(model, **options).attribute(inputs, baselines, target, return_convergence_delta=True)
