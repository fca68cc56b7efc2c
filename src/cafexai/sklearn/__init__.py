"""Models of scikit-learn as PyTorch modules: perceptrons, linear models, and what is calibrated, voted or stacked of these."""

from .convert import from_sklearn
from .model import SklearnModel

SklearnMLP = SklearnModel  # as it was called while there were perceptrons alone

__all__ = ["SklearnMLP", "SklearnModel", "from_sklearn"]
