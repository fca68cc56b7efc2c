"""Models made of decision trees have no layers to follow."""

from __future__ import annotations

from typing import Any

_PACKAGES = ("xgboost", "lightgbm", "catboost", "ngboost")
_ENSEMBLES = ("_forest", "_gb", "_iforest", "_hist_gradient_boosting")
_OF_SKLEARN = ("sklearn.tree.", *(f"sklearn.ensemble.{name}." for name in _ENSEMBLES))
_OF_ANY = ("BaggingClassifier", "BaggingRegressor", "AdaBoostClassifier", "AdaBoostRegressor")  # of trees by default


def is_tree(model: Any) -> bool:
    """A decision tree, a forest, or boosted trees, by the package of its class or of a base class."""
    if type(model).__name__ in _OF_ANY:
        inner = getattr(model, "estimators_", None) or [getattr(model, "estimator", None)]
        return inner[0] is None or is_tree(inner[0])
    for one in type(model).__mro__:
        if one.__module__.split(".")[0] in _PACKAGES or f"{one.__module__}.".startswith(_OF_SKLEARN):
            return True
    return False


def refuse_trees(model: Any, call: str) -> None:
    """Name the methods that are made for trees."""
    if is_tree(model):
        raise ValueError(
            f"{call}: a {type(model).__name__} is made of decision trees, and CAFE follows the layers of neural networks and "
            "linear models. For trees use TreeSHAP (shap.TreeExplainer) or InterpretML."
        )
