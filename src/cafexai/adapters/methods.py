"""Our methods in the forms that Captum and Quantus call. (``Explanation.to_shap`` is the one for SHAP.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._extras import needs
from .._inputs.prepare import model_dtype
from ..cafe import CAFE
from ..methods import METHODS, Method


def quantus_explain(method: str | Method = "cafe", **options: Any) -> Callable[..., np.ndarray]:
    """An ``explain_func`` for Quantus.

    Metrics of Quantus that take features one by one want tables as (rows, 1, features): see ``quantus_table``.

    Args:
        method: A name from ``METHODS``, or a function like them.
        **options: Options of the method; ``explain_func_kwargs`` of Quantus add to them.

    Returns:
        The function.

    Raises:
        ValueError: There is no such method.

    Example:
        >>> import torch
        >>> from cafexai.adapters import quantus_explain
        >>> quantus_explain("cafe")(torch.nn.Linear(2, 3), torch.ones(4, 2).numpy(), [0, 1, 2, 0]).shape
        (4, 2)
    """
    if isinstance(method, str) and method not in METHODS:
        raise ValueError(f"quantus_explain({method!r}): unknown method. Allowed values: {', '.join(METHODS)}.")
    run = METHODS[method] if isinstance(method, str) else method

    def explain(model: Any, inputs: Any, targets: Any, **given: Any) -> np.ndarray:
        dtype, device = model_dtype(model)
        x = torch.as_tensor(inputs).to(device, dtype)
        target = None if targets is None else torch.as_tensor(targets).long()
        given.pop("device", None)  # Quantus adds it; ours is the device of the model
        return run(model, x, target=target, **{**options, **given}).detach().cpu().numpy()

    return explain


class _Table(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.flatten(1))


def quantus_table(model: Any, x: Any) -> tuple[nn.Module, np.ndarray]:
    """A model of tables as Quantus wants it, with a channel between rows and features.

    Args:
        model: The model.
        x: The rows, (rows, features).

    Returns:
        The wrapped model, and its rows, (rows, 1, features).

    Raises:
        ValueError: x is not a table.

    Example:
        >>> import torch
        >>> from cafexai.adapters import quantus_table
        >>> wrapped, rows = quantus_table(torch.nn.Linear(2, 3), torch.ones(4, 2))
        >>> rows.shape
        (4, 1, 2)
    """
    rows = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
    if rows.ndim != 2:
        raise ValueError(f"quantus_table(model, x): x of shape {rows.shape} is no table (rows, features).")
    return _Table(model).train(getattr(model, "training", False)), rows[:, None]


def captum_attribution(cafe: CAFE) -> Any:
    """The explainer as a true ``captum.attr.Attribution``, for tools that need that class, such as NoiseTunnel.

    Args:
        cafe: The explainer.

    Returns:
        An object of that class.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> from cafexai.adapters import captum_attribution
        >>> captum_attribution(CAFE(torch.nn.Linear(2, 1))).attribute(torch.ones(3, 2), target=0).shape
        torch.Size([3, 2])
    """
    attr = needs("captum.attr", "captum")
    log_usage = needs("captum.log", "captum").log_usage  # Captum's tools reach for what this decorator wraps

    class CafeAttribution(attr.Attribution):  # type: ignore[name-defined]
        """CAFE in Captum's clothes."""

        def __init__(self) -> None:
            super().__init__(cafe.model)

        @log_usage()  # type: ignore[untyped-decorator]
        def attribute(self, *arguments: Any, **options: Any) -> Any:
            """The combined scores; the arguments are those of ``CAFE.attribute``."""
            return cafe.attribute(*arguments, **options)

        @property
        def multiplies_by_inputs(self) -> bool:
            return True

        def has_convergence_delta(self) -> bool:
            return True

        def compute_convergence_delta(self, *args: Any, **options: Any) -> Tensor:
            """Captum's own would take the share of the biases for an error."""
            raise NotImplementedError(
                "The scores of CAFE leave out the share of the biases. Ask for the delta with the scores: "
                "attribute(..., return_convergence_delta=True)."
            )

    return CafeAttribution()
