"""Architecture and recipe of every network that the paper trains, by data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from .ft_transformer import FTTransformer
from .networks import mlp, seeded
from .training import Recipe


@dataclass(frozen=True)
class Setup:
    """A network for tables, ready to build for the layout of a data set, and how it is trained.

    Args:
        family: "mlp" or "ft".
        outputs: The number of outputs.
        recipe: How it is trained.
        hidden: Widths of the hidden layers of an MLP.
        activation: The activation of an MLP.
        transformer: Options of ``FTTransformer``.
    """

    family: str
    outputs: int
    recipe: Recipe
    hidden: tuple[int, ...] = ()
    activation: type[nn.Module] = nn.ReLU
    transformer: dict[str, Any] = field(default_factory=dict)

    def build(self, layout: Sequence[int], seed: int, **options: Any) -> nn.Module:
        """The untrained network.

        Args:
            layout: The number of columns of each feature.
            seed: Decides the initial weights.
            **options: Further options of ``FTTransformer``.

        Returns:
            The network.
        """
        if self.family == "ft":
            return seeded(seed, lambda: FTTransformer(layout, self.outputs, **(self.transformer | options)))
        return seeded(seed, lambda: mlp(sum(layout), *self.hidden, self.outputs, activation=self.activation))

    def seeded_recipe(self, seed: int) -> Recipe:
        """The recipe with this seed, for dropout.

        Args:
            seed: The seed, for dropout.

        Returns:
            The recipe with that seed.
        """
        return replace(self.recipe, seed=seed)


# outputs, rows in a batch, loss
_TABLES: dict[str, tuple[int, int, str]] = {
    "compas": (2, 256, "cross_entropy"),
    "heloc": (2, 256, "cross_entropy"),
    "adult": (2, 256, "cross_entropy"),
    "german": (2, 256, "cross_entropy"),
    "titanic": (1, 64, "bce"),
    "covertype": (7, 256, "cross_entropy"),
    "mimic": (1, 256, "bce"),
}
_HIDDEN: dict[str, tuple[tuple[int, ...], type[nn.Module]]] = {
    "titanic": ((256, 256), nn.ReLU),
    "covertype": ((256, 256, 256, 256), nn.GELU),
    "mimic": ((32, 32), nn.ReLU),
}
CONFLICT_WIDTHS = {2: 16, 3: 24, 4: 32, 5: 40}  # by the dimension of synthetic_conflicts
SHIFT_WIDTHS = (16, 24, 32, 40)
SHIFT_TRANSFORMERS = ((4, 32), (4, 64), (8, 32), (8, 64))  # heads and width


def setup(name: str, family: str = "mlp") -> Setup:
    """How the paper trains on a data set.

    Args:
        name: The name of a data set.
        family: "mlp" (the four of OpenXAI come trained: ``openxai_mlp``) or "ft".

    Returns:
        The network and its recipe.

    Raises:
        ValueError: The paper trains no such network.

    Example:
        >>> from cafexai.models import setup
        >>> setup("titanic").family
        'mlp'
    """
    if name not in {"mlp": tuple(_HIDDEN), "ft": tuple(_TABLES)}.get(family, ()):
        choices = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in (("mlp", _HIDDEN), ("ft", _TABLES)))
        raise ValueError(f"setup({name!r}, {family!r}): there is no such network in the paper; choose among {choices}.")
    outputs, batch, loss = _TABLES[name]
    if family == "ft":
        return Setup("ft", outputs, Recipe(100, batch, 1e-3, loss))
    hidden, activation = _HIDDEN[name]
    return Setup("mlp", outputs, Recipe(100, batch, 1e-4, loss), hidden, activation)


def conflict_setup(dimension: int, activation: type[nn.Module] = nn.ReLU) -> Setup:
    """The networks trained on ``synthetic_conflicts``: two hidden layers, 2000 epochs, the last one counts.

    For data of seed 42 + k the authors train the seeds 101 + 5k to 105 + 5k and keep the network with the lowest loss on
    validation (``evaluate``).

    Args:
        dimension: The number of pairs of features.
        activation: The activation.

    Returns:
        The network and its recipe.
    """
    if dimension not in CONFLICT_WIDTHS:
        raise ValueError(f"conflict_setup({dimension}): the paper trains on dimensions {', '.join(map(str, CONFLICT_WIDTHS))}.")
    width = CONFLICT_WIDTHS[dimension]
    return Setup("mlp", 1, Recipe(2000, 64, 1e-3, "mse"), (width, width), activation)


def shift_setup(width: int, heads: int | None = None) -> Setup:
    """The networks trained on ``synthetic_shift``: a perceptron, or with ``heads`` an FT-Transformer of one block.

    Args:
        width: The width of the layers.
        heads: Heads of attention, for an FT-Transformer; None is a perceptron.

    Returns:
        The network and its recipe.
    """
    recipe = Recipe(25, 512, 1e-3)
    if heads is None:
        return Setup("mlp", 5, recipe, (width, width))
    return Setup("ft", 5, recipe, transformer={"width": width, "heads": heads, "blocks": 1})


IMAGE_RECIPE = Recipe(25, 16, 1e-3)  # of the four networks for concat_mnist
