"""scikit-learn's multi-layer perceptrons as PyTorch modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
_DROPPED = ("identity", "logistic", "softmax")  # output activations: the model ends in the logits


class _Exp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


class SklearnMLP(nn.Module):
    """The layers of a fitted perceptron, and the steps that stand before it in its pipeline."""

    def __init__(self, perceptron: Any, steps: Any = None) -> None:
        super().__init__()
        for name, layer in _layers(perceptron).items():
            self.add_module(name, layer)
        self.steps = steps
        self.count = int(perceptron.n_features_in_)
        self.known = _names_of(perceptron, "feature_names_in_")
        classes = list(getattr(perceptron, "classes_", []))
        self.notes: tuple[str, ...] = ()
        if len(classes) == 2 and perceptron.n_outputs_ == 1:
            self.notes = (f"Output 0 is the logit of class {classes[1]}; below 0 the model predicts {classes[0]}.",)

    def forward(self, x: Tensor) -> Tensor:
        """Transformed features (rows, features) -> (rows, outputs)."""
        for layer in self.children():
            x = layer(x)
        return x

    def from_raw(
        self, inputs: Any, feature_names: Sequence[str] | None = None
    ) -> tuple[np.ndarray, Tensor | None, list[str] | None]:
        """Raw rows -> the input of ``forward``, the values in original units, and a name for each feature.

        The values are None where the columns do not correspond one to one to what the perceptron gets.
        """
        given = None if feature_names is None else list(feature_names)
        raw = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
        ready = raw if self.steps is None else self.steps.transform(raw)
        self._check_columns(_columns(ready))
        features = _numbers(ready)
        if features.ndim != 2 or features.shape[1] != self.count:
            raise ValueError(
                f"explain(...): the perceptron takes (rows, {self.count}) and was given {features.shape}. "
                "Pass the rows that estimator.predict takes."
            )
        if self.steps is None:
            return features, None, given or _columns(raw) or self.known
        made = _columns(ready) or _names_of(self.steps, "get_feature_names_out")
        origin = _columns(raw) or _names_of(self.steps, "feature_names_in_") or [f"x{i}" for i in range(raw.shape[1])]
        order = _places(origin, made, self.count)
        if order is None:
            return features, None, given or made
        names = given or origin
        in_order = [names[place] for place in order] if len(names) == self.count else names
        return features, _in_units(raw, order), in_order

    def _check_columns(self, columns: list[str] | None) -> None:
        if columns is not None and self.known is not None and columns != self.known:
            raise ValueError(
                f"explain(frame): the perceptron was fitted with the columns {self.known} and is given {columns}. "
                "Pass the same columns in the same order."
            )


def from_sklearn(estimator: Any) -> SklearnMLP:
    """A fitted MLPClassifier or MLPRegressor, or a Pipeline that ends in one, as a PyTorch module in float64.

    The output is what the scores add up to: the logit of ``classes_[1]`` for two classes, one logit per class for more
    (per label for several labels: give ``target``), the prediction for a regressor. Shape (rows, outputs).

    Of a pipeline, the steps before the perceptron stay outside of the model: ``CAFE(model).explain`` takes raw rows and
    transforms them. Scores, baselines and the background are about the transformed features: after a StandardScaler the
    default baseline 0 is the mean of the training data. Values are shown in original units where every feature still is
    one column of the raw data; ``feature_names`` then name these columns, else the transformed features.
    """
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import Pipeline

    kind = type(estimator).__name__
    steps, last = (estimator[:-1], estimator[-1]) if isinstance(estimator, Pipeline) else ([], estimator)
    if not isinstance(last, (MLPClassifier, MLPRegressor)):
        ending = "" if last is estimator else f" that ends in a {type(last).__name__}"
        remedy = f" Pass {kind}.best_estimator_." if hasattr(estimator, "best_estimator_") else ""
        raise ValueError(
            f"from_sklearn({kind}): a {kind}{ending} is not supported. Supported are MLPClassifier, MLPRegressor and a "
            f"Pipeline that ends in one: only these are neural networks.{remedy}"
        )
    if not hasattr(last, "coefs_"):
        raise ValueError(f"from_sklearn({kind}): the estimator is not fitted, so it has no weights. Call fit(X, y) first.")
    return SklearnMLP(last, steps if len(steps) else None).eval()


def _layers(perceptron: Any) -> dict[str, nn.Module]:
    """hidden1, activation1, hidden2, ..., output."""
    layers: dict[str, nn.Module] = {}
    for place, (weight, bias) in enumerate(zip(perceptron.coefs_, perceptron.intercepts_, strict=True), start=1):
        linear = nn.utils.skip_init(nn.Linear, *weight.shape, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
            linear.bias.copy_(torch.from_numpy(bias))
        if place == len(perceptron.coefs_):
            layers["output"] = linear
        else:
            layers[f"hidden{place}"] = linear
            layers[f"activation{place}"] = _ACTIVATIONS[perceptron.activation]()
    if perceptron.out_activation_ == "exp":  # a regressor with Poisson loss
        layers["exp"] = _Exp()
    elif perceptron.out_activation_ not in _DROPPED:
        raise ValueError(f"from_sklearn(...): the output activation {perceptron.out_activation_!r} is not known.")
    return layers


def _columns(data: Any) -> list[str] | None:
    """The column names of a data frame."""
    return [str(name) for name in data.columns] if hasattr(data, "columns") else None


def _names_of(fitted: Any, attribute: str) -> list[str] | None:
    """Names that a fitted estimator knows, as an attribute or by a method; None if it does not."""
    try:
        names = getattr(fitted, attribute)
        return list(map(str, names() if callable(names) else names))
    except (AttributeError, ValueError):  # a step without names, or names that need the input's
        return None


def _numbers(data: Any) -> np.ndarray:
    """Arrays, sparse arrays and data frames as dense float64."""
    try:
        return np.asarray(data.toarray() if hasattr(data, "toarray") else data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"explain(...): what the perceptron gets is not all numbers ({error}). Encode it as for estimator.predict."
        ) from error


def _places(origin: list[str], made: list[str] | None, count: int) -> list[int] | None:
    """For each feature its column of the raw data, by name; None unless they correspond one to one."""
    if len(origin) != count or (made is not None and len(made) != count):
        return None
    if made is None:
        return list(range(count))
    place_of = {name: place for place, name in enumerate(origin)}
    places = [place_of.get(_without_prefix(name, place_of)) for name in made]
    return [p for p in places if p is not None] if None not in places and len(set(places)) == count else None


def _without_prefix(name: str, known: dict[str, int]) -> str:
    """The name as it was before a ColumnTransformer put the name of a step in front ("num__age")."""
    while name not in known and "__" in name:
        name = name.split("__", 1)[1]
    return name


def _in_units(raw: Any, order: list[int]) -> Tensor | None:
    """The raw values in the order of the features; None if they are not numbers."""
    try:
        return torch.from_numpy(_numbers(raw)[:, order])
    except ValueError:
        return None
