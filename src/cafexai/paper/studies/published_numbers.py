"""The paper's figures, to stand beside ours."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


class _Titles(dict[str, str]):
    """A method that the paper does not have goes by its name."""

    def __missing__(self, name: str) -> str:
        return name


METHOD_TITLES = _Titles(
    {
        "gradient_x_input": "Gradient x Input",
        "lrp": "LRP",
        "deeplift_rescale": "DeepLIFT Rescale",
        "deeplift_revealcancel": "DeepLIFT RevealCancel",
        "cp_lrp": "CP-LRP",
        "attn_lrp": "AttnLRP",
        "gim": "GIM",
        "gradient_shap": "GradientSHAP",
        "integrated_gradients": "Integrated Gradients",
        "smoothgrad": "SmoothGrad",
        "kernel_shap": "KernelSHAP",
        "shapley_value_sampling": "Shapley Value Sampling",
        "lime": "LIME",
        "bias_backpropagation": "Bias back-propagation",
        "cafe": "CAFE",
        "cafe c=0": "CAFE (c = 0)",
        "cafe c=0.25": "CAFE (c = 0.25)",
        "cafe c=0.5": "CAFE (c = 0.5)",
        "cafe c=0.75": "CAFE (c = 0.75)",
        "cafe c=1": "CAFE (c = 1)",
        **{
            f"{way} c={c}": f"CAFE, {words} (c = {c})"
            for way, words in (("feature", "feature netting"), ("unit", "unit netting"), ("deep", "default of deep models"))
            for c in ("0", "0.25", "0.5", "0.75", "1")
        },
    }
)
SAMPLING = ("kernel_shap", "shapley_value_sampling", "lime")  # far slower than CAFE in the paper


@functools.cache
def paper() -> dict[str, dict[str, dict[str, float]]]:
    """table -> method -> column -> number."""
    text = resources.files("cafexai.paper").joinpath("paper.json").read_text()
    tables: dict[str, Any] = json.loads(text)
    return tables


def figure_of_paper(table: str, method: str, column: str) -> float | None:
    """One number of the paper, or None where it has none."""
    return paper().get(table, {}).get(method, {}).get(column)
