"""From a fitted estimator to a module: ``from_sklearn``."""

from __future__ import annotations

from typing import Any

from .._inputs.trees import refuse_trees
from .combine_steps import chain_steps
from .ensembles import ENSEMBLES
from .layers import LAYERS, Network
from .model import SklearnModel

KNOWN = (
    "MLPClassifier, MLPRegressor, linear models (LogisticRegression, LinearRegression, Ridge, Lasso, SGDClassifier, LinearSVC "
    "...), CalibratedClassifierCV, voting and stacking of these, and a Pipeline that ends in one"
)


def from_sklearn(estimator: Any, encoded: bool = False) -> SklearnModel:
    """A fitted model of scikit-learn as a PyTorch module in float64: a perceptron, a linear model, or several of them.

    The output is what the scores add up to, of shape (rows, outputs): the logit of ``classes_[1]`` for two classes, one logit
    per class for more (per label for several labels: give ``target``), the prediction for a regressor. Classifiers without
    probabilities (LinearSVC, Perceptron) have the values of their decision function.

    Of a pipeline, the steps before the last stay outside of the model: ``CAFE(model).explain`` takes raw rows. There is
    one score for each column of these, shown with its own value; columns that are dropped have none, and features that are
    made of several columns, as by PCA, stay as they are. Baselines and background are rows of these columns; without any,
    the baseline is zero for all that the last step gets: behind a StandardScaler the mean of the training data, for
    one-hot columns no category.

    Args:
        estimator: The fitted model.
        encoded: Scores and baselines for what the last step gets, instead of the columns before the pipeline.

    Returns:
        The module, in evaluation mode.

    Raises:
        ValueError: The estimator is not fitted, or is neither a neural network nor linear.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> model = from_sklearn(LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]))
        >>> model.count
        1
    """
    return SklearnModel(network_of(estimator, type(estimator).__name__), encoded).eval()


def network_of(estimator: Any, whole: str) -> Network:
    """The layers of an estimator and the steps before them; ``whole`` is the model that it is a part of."""
    from sklearn.exceptions import NotFittedError
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    if isinstance(estimator, Pipeline):
        inner = network_of(estimator[-1], whole)
        return inner.behind(chain_steps(estimator[:-1], inner.steps, inner.width))
    if type(estimator).__name__ == "FrozenEstimator":
        return network_of(estimator.estimator, whole)
    kind = type(estimator).__name__
    of = "" if kind == whole else f" of a {kind}"
    call = f"from_sklearn({whole})"
    refuse_trees(estimator, call)
    if hasattr(estimator, "best_estimator_"):
        raise ValueError(f"{call}: a search is no model. Pass {kind}.best_estimator_.")
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise ValueError(f"{call}: the estimator{of} is not fitted, so it has no weights. Call fit(X, y) first.") from None
    except TypeError:
        raise _unknown(kind, whole) from None
    if kind in ENSEMBLES:
        return ENSEMBLES[kind](estimator, lambda member: network_of(member, whole), call)
    for make in LAYERS:
        found = make(estimator, call)
        if found is not None:
            return found
    raise _unknown(kind, whole)


def _unknown(kind: str, whole: str) -> ValueError:
    ending = "" if kind == whole else f" that ends in a {kind}"
    return ValueError(
        f"from_sklearn({whole}): a {whole}{ending} is not supported. Supported are {KNOWN}: CAFE follows the layers of neural "
        "networks, and a linear model is one of them."
    )
