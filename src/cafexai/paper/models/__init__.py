"""The networks of the paper and their training."""

from __future__ import annotations

from .ft_transformer import Block, FTTransformer
from .group import train_group
from .networks import CONCAT_WIDTHS, concat_cnn, mlp, openxai_mlp, procedural, residual_cnn, residual_mlp, seeded, small_cnn
from .setups import CONFLICT_WIDTHS, IMAGE_RECIPE, SHIFT_TRANSFORMERS, SHIFT_WIDTHS, Setup, conflict_setup, setup, shift_setup
from .training import Diverged, Recipe, Training, evaluate, train
from .vit import ViT

__all__ = [
    "CONCAT_WIDTHS",
    "CONFLICT_WIDTHS",
    "IMAGE_RECIPE",
    "SHIFT_TRANSFORMERS",
    "SHIFT_WIDTHS",
    "Block",
    "Diverged",
    "FTTransformer",
    "Recipe",
    "Setup",
    "Training",
    "ViT",
    "concat_cnn",
    "conflict_setup",
    "evaluate",
    "mlp",
    "openxai_mlp",
    "procedural",
    "residual_cnn",
    "residual_mlp",
    "seeded",
    "setup",
    "shift_setup",
    "small_cnn",
    "train",
    "train_group",
]
