"""scikit-learn's multi-layer perceptrons as PyTorch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ._extras import needs
from ._inputs.encoders import sources
from ._inputs.groups import Grouping
from ._inputs.prepare import FromRaw
from ._inputs.table_values import column_of, read_values, typical_value, word

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

    def __init__(self, perceptron: Any, steps: Any = None, encoded: bool = False) -> None:
        super().__init__()
        for name, layer in _layers(perceptron).items():
            self.add_module(name, layer)
        self.steps = steps
        self.count = int(perceptron.n_features_in_)
        self.known = _names_of(perceptron, "feature_names_in_")
        classes = list(getattr(perceptron, "classes_", []))
        self.class_names = tuple(map(word, classes))
        self.probability = {"softmax": "softmax", "logistic": "sigmoid"}.get(perceptron.out_activation_) if classes else None
        self.explanation_notes: tuple[str, ...] = ()
        if len(classes) == 2 and perceptron.n_outputs_ == 1:
            self.explanation_notes = (f"Output 0 is the logit of class {classes[1]}; below 0 the model predicts {classes[0]}.",)
        self.labels: dict[int, tuple[str, ...]] = {}
        self.sources: list[frozenset[int]] = []  # for each feature the columns of the raw data that it is made of
        self.raw_names = None if steps is None else _names_of(steps, "feature_names_in_")
        width = None if steps is None or encoded else getattr(steps, "n_features_in_", None)
        if width is not None:
            self.raw_names = self.raw_names or [f"x{i}" for i in range(width)]
            self.sources = sources(steps, [frozenset([i]) for i in range(width)], self.count, self.labels)

    @property
    def original_columns(self) -> bool:
        """Scores and baselines are about the columns before the steps."""
        return bool(self.sources)

    def forward(self, x: Tensor) -> Tensor:
        """Transformed features (rows, features) -> (rows, outputs)."""
        for layer in self.children():
            x = layer(x)
        return x

    def from_raw(self, inputs: Any, feature_names: Sequence[str] | None = None, call: str = "explain(...)") -> FromRaw:
        """Raw rows as the input of ``forward``, with names and values of the features as people know them."""
        given = None if feature_names is None else list(map(str, feature_names))
        raw = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
        ready = raw if self.steps is None else self._transform(raw, call)
        self._check_columns(_columns(ready))
        features = _numbers(ready)
        if features.ndim != 2 or features.shape[1] != self.count:
            raise ValueError(
                f"explain(...): the perceptron takes (rows, {self.count}) and was given {features.shape}. "
                "Pass the rows that estimator.predict takes."
            )
        if self.steps is None:
            return FromRaw(features, given or _columns(raw) or self.known)
        made = _columns(ready) or _names_of(self.steps, "get_feature_names_out")
        if not self.original_columns:
            return FromRaw(features, given or made)
        return self._as_known(raw, features, made, given)

    def _transform(self, raw: Any, call: str) -> Any:
        """The rows behind the steps."""
        try:
            return self.steps.transform(raw)
        except (ValueError, TypeError, KeyError) as error:
            names = "" if self.raw_names is None else f", with the columns {', '.join(map(repr, self.raw_names[:20]))}"
            raise ValueError(
                f"{call}: the pipeline does not take these rows ({str(error).strip().splitlines()[0]}). Pass what "
                f"pipeline.predict takes{names}."
            ) from error

    def _as_known(self, raw: Any, features: np.ndarray, made: list[str] | None, given: list[str] | None) -> FromRaw:
        """One feature per column of the raw data; what mixes columns stays as the perceptron gets it."""
        assert self.raw_names is not None
        keys = [min(columns) if len(columns) == 1 else -1 - place for place, columns in enumerate(self.sources)]
        order = list(dict.fromkeys(keys))  # columns, and for what mixes them -1 - its place
        mixed = [-1 - key for key in order if key < 0]
        if len(mixed) == self.count:
            return FromRaw(features, given or made, notes=_note_mixed(made or []))
        names = given if given is not None and len(given) == len(self.raw_names) else self.raw_names
        own = [f"feature {place}" for place in range(self.count)] if made is None else _without_prefixes(made)
        shown = [names[key] if key >= 0 else own[-1 - key] for key in order]
        if given is not None and names is not given:
            if len(given) != len(order):
                raise ValueError(
                    f"explain(..., feature_names=...): {len(given)} names for {len(order)} features. Give one for each column "
                    f"of the raw data: {', '.join(map(repr, self.raw_names[:20]))}."
                )
            shown = given
        values = np.zeros((len(features), len(order)))
        categories: dict[str, tuple[str, ...]] = {}
        for place, (key, name) in enumerate(zip(order, shown, strict=True)):
            cells = features[:, -1 - key] if key < 0 else column_of(raw, key, self.raw_names[key])
            values[:, place], words = read_values(cells, self.labels.get(key, ()))
            if words:
                categories[name] = words
        index = torch.tensor([order.index(key) for key in keys])
        notes = _note_mixed([own[place] for place in mixed])
        if len(order) == self.count:
            return FromRaw(features, shown, torch.from_numpy(values), categories, None, notes)
        grouping = Grouping(index, tuple(shown), torch.from_numpy(values), categories)
        return FromRaw(features, made, None, {}, grouping, notes)

    def rows(self, given: Any, call: str) -> np.ndarray:
        """Rows of original values in any form, through the steps: (columns,), (rows, columns), or a stack of the latter."""
        assert self.raw_names is not None
        if isinstance(given, (tuple, list)) and len(given) == 1 and np.ndim(given[0]):
            given = given[0]
        if isinstance(given, Mapping):
            given = needs("pandas", "tabular").DataFrame([dict(given)])
        if hasattr(given, "to_frame") and hasattr(given, "index"):  # a series of one value per column
            given = given.to_frame().T.infer_objects()
        if _columns(given) is not None:
            return self.from_raw(given, call=call).ready
        plain = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        array = plain if isinstance(plain, np.ndarray) else np.array(plain, dtype=object)
        width = len(self.raw_names)
        if array.ndim == 0 or array.shape[-1] != width:
            raise ValueError(
                f"{call}: give values of the {width} original columns, {', '.join(map(repr, self.raw_names[:20]))}; this is "
                f"{f'of shape {array.shape}' if array.ndim else repr(given)}. None is the zero of what the perceptron gets; "
                "from_sklearn(pipeline, encoded=True) takes baselines in these features."
            )
        flat: Any = array.reshape(-1, width)
        if hasattr(self.steps, "feature_names_in_"):
            flat = needs("pandas", "tabular").DataFrame(flat, columns=self.raw_names).infer_objects()
        return self.from_raw(flat, call=call).ready.reshape(*array.shape[:-1], self.count)

    def typical(self, statistic: str, background: Any) -> Any:
        """A row of original values: mean, median or mode of numbers, the most frequent category."""
        assert self.raw_names is not None
        raw = background.detach().cpu().numpy() if isinstance(background, Tensor) else background
        cells = [column_of(raw, place, name) for place, name in enumerate(self.raw_names)]
        row = [typical_value(statistic, one) for one in cells]
        if _columns(raw) is None:
            return np.array(row, dtype=object if any(isinstance(one, str) for one in row) else np.float64)
        return needs("pandas", "tabular").DataFrame([row], columns=self.raw_names)

    def _check_columns(self, columns: list[str] | None) -> None:
        if columns is not None and self.known is not None and columns != self.known:
            raise ValueError(
                f"explain(frame): the perceptron was fitted with the columns {self.known} and is given {columns}. "
                "Pass the same columns in the same order."
            )


def from_sklearn(estimator: Any, encoded: bool = False) -> SklearnMLP:
    """A fitted MLPClassifier or MLPRegressor, or a Pipeline that ends in one, as a PyTorch module in float64.

    The output is what the scores add up to: the logit of ``classes_[1]`` for two classes, one logit per class for more
    (per label for several labels: give ``target``), the prediction for a regressor. Shape (rows, outputs).

    Of a pipeline, the steps before the perceptron stay outside of the model: ``CAFE(model).explain`` takes raw rows. There is
    one score for each column of these, shown with its own value; columns that are dropped have none, and features that are
    made of several columns, as by PCA, stay as they are. Baselines and background are rows of these columns; without any,
    the baseline is zero for all that the perceptron gets: behind a StandardScaler the mean of the training data, for
    one-hot columns no category. ``encoded=True`` has scores and baselines for what the perceptron gets instead.
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
    return SklearnMLP(last, steps if len(steps) else None, encoded).eval()


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


def _without_prefixes(names: list[str]) -> list[str]:
    """Names as they were before a ColumnTransformer put those of its steps in front ("pca__pca0"), if they stay different."""
    short = [name.rsplit("__", 1)[-1] for name in names]
    return [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]


def _note_mixed(names: list[str]) -> tuple[str, ...]:
    """A note on features that are made of several columns."""
    if not names:
        return ()
    some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (f"Made of several columns, and therefore shown as the model gets them: {some}.",)
