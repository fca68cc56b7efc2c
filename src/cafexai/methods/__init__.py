"""CAFE and the methods it is compared with, behind one signature.

``METHODS[name](model, x, *, target=None, baselines=None, feature_mask=None)`` gives scores shaped like x. Methods that need
no baseline or no groups take the arguments and leave them alone; methods with chance have a ``seed``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .bias import bias_backpropagation
from .engine import cafe, deeplift_rescale, deeplift_revealcancel, lrp
from .gradients import gradient_shap, gradient_x_input, integrated_gradients, smoothgrad
from .sampling import kernel_shap, lime, shapley_value_sampling

Method = Callable[..., Tensor]

METHODS: dict[str, Method] = {
    "cafe": cafe,
    "gradient_x_input": gradient_x_input,
    "lrp": lrp,
    "deeplift_rescale": deeplift_rescale,
    "deeplift_revealcancel": deeplift_revealcancel,
    "integrated_gradients": integrated_gradients,
    "gradient_shap": gradient_shap,
    "smoothgrad": smoothgrad,
    "kernel_shap": kernel_shap,
    "shapley_value_sampling": shapley_value_sampling,
    "lime": lime,
    "bias_backpropagation": bias_backpropagation,
}

GROUP_SCORES = (kernel_shap, lime, shapley_value_sampling)  # every element of a group gets the score of the group

__all__ = ["GROUP_SCORES", "METHODS", "Method", *METHODS]
