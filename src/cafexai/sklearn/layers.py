"""Perceptrons and linear models as layers."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._extras import needs

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
_DROPPED = ("identity", "logistic", "softmax")  # output activations: the model ends in the logits
PROBES = 8  # rows on which layers are held against the estimator


@dataclass(frozen=True)
class Network:
    """A fitted estimator as layers, and the steps before them."""

    layers: nn.Module  # (rows, width) -> (rows, outputs)
    width: int
    columns: list[str] | None = None  # the names that the layers were fitted with
    classes: tuple[Any, ...] = ()
    probability: str | None = None  # what makes probabilities of the outputs: "softmax" or "sigmoid"
    steps: Any = None

    def behind(self, steps: Any) -> Network:
        """The same layers behind these steps."""
        return dataclasses.replace(self, steps=steps)


class Exp(nn.Module):
    """The inverse of a logarithmic link."""

    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


def perceptron(estimator: Any, call: str) -> Network | None:
    """An MLPClassifier or MLPRegressor: hidden1, activation1, hidden2, ..., output."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    if not isinstance(estimator, (MLPClassifier, MLPRegressor)):
        return None
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for place, (weight, bias) in enumerate(zip(estimator.coefs_, estimator.intercepts_, strict=True), start=1):
        if place == len(estimator.coefs_):
            layers["output"] = linear_layer(weight.T, bias)
        else:
            layers[f"hidden{place}"] = linear_layer(weight.T, bias)
            layers[f"activation{place}"] = _ACTIVATIONS[estimator.activation]()
    if estimator.out_activation_ == "exp":  # a regressor with Poisson loss
        layers["exp"] = Exp()
    elif estimator.out_activation_ not in _DROPPED:
        raise ValueError(f"{call}: the output activation {estimator.out_activation_!r} is not known.")
    classes = tuple(getattr(estimator, "classes_", ()))
    probability = {"softmax": "softmax", "logistic": "sigmoid"}.get(estimator.out_activation_) if classes else None
    return Network(nn.Sequential(layers), estimator.n_features_in_, names_of(estimator), classes, probability)


def linear(estimator: Any, call: str) -> Network | None:
    """Whatever has ``coef_`` and ``intercept_`` and, on some rows, gives just what these say; links may be logarithmic."""
    if not hasattr(estimator, "coef_") or not hasattr(estimator, "intercept_"):
        return None
    weight = np.atleast_2d(_dense(estimator.coef_)).astype(np.float64)
    bias = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64).reshape(-1), len(weight))
    layers = nn.Sequential(OrderedDict(output=linear_layer(weight, bias)))
    rows = np.random.default_rng(0).normal(size=(PROBES, weight.shape[1]))
    named = _with_names(estimator, rows)
    own = np.asarray((estimator.decision_function if hasattr(estimator, "classes_") else estimator.predict)(named))
    expected = own.reshape(PROBES, -1)
    if not _gives(layers, rows, expected):
        layers.add_module("exp", Exp())
        if not _gives(layers, rows, expected):
            return None
    classes = tuple(getattr(estimator, "classes_", ()))
    return Network(layers, weight.shape[1], names_of(estimator), classes, _probability(estimator, named, expected))


LAYERS: tuple[Callable[[Any, str], Network | None], ...] = (perceptron, linear)


def linear_layer(weight: Any, bias: Any) -> nn.Linear:
    """A layer in float64 from arrays (outputs, inputs) and (outputs,)."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.array(weight, dtype=np.float64)))
        layer.bias.copy_(torch.from_numpy(np.array(bias, dtype=np.float64)))
    return layer


def names_of(fitted: Any, attribute: str = "feature_names_in_") -> list[str] | None:
    """Names that a fitted estimator knows, as an attribute or by a method; None if it does not."""
    try:
        names = getattr(fitted, attribute)
        return list(map(str, names() if callable(names) else names))
    except (AttributeError, ValueError):  # a step without names, or names that need the input's
        return None


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if hasattr(values, "toarray") else np.asarray(values)


def _with_names(estimator: Any, rows: np.ndarray) -> Any:
    """Rows in the form that the estimator was fitted with, of which it warns otherwise."""
    names = getattr(estimator, "feature_names_in_", None)
    return rows if names is None else needs("pandas", "tabular").DataFrame(rows, columns=names)


def _gives(layers: nn.Module, rows: np.ndarray, expected: np.ndarray) -> bool:
    with torch.no_grad():
        found = layers(torch.from_numpy(rows)).numpy()
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-9, atol=1e-9)


def _probability(estimator: Any, rows: Any, logits: np.ndarray) -> str | None:
    """What makes the probabilities of a classifier of its decision function, if a sigmoid or softmax does."""
    try:
        likely = np.asarray(estimator.predict_proba(rows))
    except (AttributeError, NotImplementedError):
        return None
    values = torch.from_numpy(logits)
    if logits.shape[1] == 1:
        return "sigmoid" if np.allclose(values.sigmoid()[:, 0], likely[:, 1], atol=1e-9) else None
    return "softmax" if np.allclose(values.softmax(1), likely, atol=1e-9) else None
