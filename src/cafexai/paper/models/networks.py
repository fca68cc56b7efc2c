"""The multilayer perceptrons and convolutional networks of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

# Widths of the four networks for ConcatMNIST; the hidden linear layer is as wide as the last one.
CONCAT_WIDTHS: dict[str, tuple[int, ...]] = {
    "shallow": (128, 128),
    "deep": (128, 128, 128, 128),
    "narrow": (8, 16, 32, 64),
    "wide": (16, 32, 64, 128),
}


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between any two.

    Args:
        *widths: The widths, inputs and outputs included.
        activation: The activation.

    Returns:
        The network.

    Example:
        >>> mlp(4, 8, 1)[0]
        Linear(in_features=4, out_features=8, bias=True)
    """
    if len(widths) < 2:
        raise ValueError(f"mlp{widths}: give at least the numbers of inputs and outputs.")
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """x + W2 relu(W1 x + b1) + b2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) to (rows, width)."""
        return x + self.body(x)


def residual_mlp(inputs: int, width: int, layers: int, outputs: int) -> nn.Sequential:
    """A linear map, residual blocks with one ReLU layer each, and a linear map to the outputs.

    Args:
        inputs: The number of inputs.
        width: The width of the blocks.
        layers: The number of blocks.
        outputs: The number of outputs.

    Returns:
        The network.
    """
    return nn.Sequential(nn.Linear(inputs, width), *(Residual(width) for _ in range(layers)), nn.Linear(width, outputs))


def procedural(weights: Tensor, strength: float = 50.0, depth: int = 2) -> nn.Sequential:
    """The network that solves ``synthetic_conflicts`` by its own rule: 2D-3D-2D-1 with ReLU and no biases.

    Layer 1 gives w x, -w x and the cancelling features, layer 2 subtracts the latter ``strength`` times, the output is the
    difference. It is exact while no w x is larger than the strength.

    Args:
        weights: The weights of the rule, ``Dataset.weights``.
        strength: How strongly a cancelling feature closes a unit.
        depth: ReLU layers. More than two repeat values that are never negative by layers that change nothing, half of them
            behind each layer: the same function, the same truth.

    Returns:
        The network.
    """
    if depth < 2:
        raise ValueError(f"procedural(..., depth={depth}): the rule takes two layers of ReLU; give at least 2.")
    d = len(weights)
    one, zero, w = torch.eye(d, dtype=weights.dtype), torch.zeros(d, d, dtype=weights.dtype), torch.diag(weights)
    first = torch.cat([torch.cat([w, zero], 1), torch.cat([-w, zero], 1), torch.cat([zero, one], 1)])
    second = torch.cat([torch.cat([one, zero, -strength * one], 1), torch.cat([zero, one, -strength * one], 1)])
    last = torch.cat([torch.ones(1, d, dtype=weights.dtype), -torch.ones(1, d, dtype=weights.dtype)], 1)
    layers: list[nn.Module] = []
    before, behind = (depth - 2) // 2, (depth - 1) // 2
    same = [[torch.eye(len(m), dtype=weights.dtype) for _ in range(n)] for m, n in ((first, before), (second, behind))]
    for matrix in (first, *same[0], second, *same[1], last):
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        linear.weight = nn.Parameter(matrix)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def concat_cnn(name: str, size: tuple[int, int] = (56, 28), outputs: int = 5) -> nn.Sequential:
    """A network for ``concat_mnist``: ``[0]`` gives the latent features, ``[1]`` is the classifier on them.

    Args:
        name: "shallow", "deep", "narrow" or "wide".
        size: Height and width of the pictures.
        outputs: The number of classes.

    Returns:
        The network.
    """
    if name not in CONCAT_WIDTHS:
        raise ValueError(f"concat_cnn({name!r}): unknown name. Allowed values: {', '.join(CONCAT_WIDTHS)}.")
    widths = CONCAT_WIDTHS[name]
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise((1, *widths))):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU()]
        if i + 1 == len(widths) // 2:
            layers.append(nn.MaxPool2d(2))
    flat = widths[-1] * (size[0] // 2) * (size[1] // 2)
    classifier = nn.Sequential(nn.Linear(flat, widths[-1]), nn.ReLU(), nn.Linear(widths[-1], outputs))
    return nn.Sequential(nn.Sequential(*layers, nn.Flatten(1)), classifier)


def small_cnn(channels: int, size: int, outputs: int, widths: tuple[int, ...] | None = None, hidden: int = 64) -> nn.Sequential:
    """Convolution, batch-norm, ReLU and max-pool for each width, then two linear layers: for MNIST, CIFAR-10 and shapes.

    Args:
        channels: Channels of the pictures.
        size: Their side.
        outputs: The number of classes.
        widths: Channels of the convolutions; None chooses them by the size.
        hidden: Units of the hidden linear layer.

    Returns:
        The network.
    """
    widths = widths or ((16, 32, 64) if size <= 32 else (16, 32, 64, 64))
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise((channels, *widths)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        size //= 2
    flat = widths[-1] * size * size
    return nn.Sequential(*layers, nn.Flatten(1), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class ResidualConv(nn.Module):
    """Two convolutions with batch-norm, and a way around them, then ReLU."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        around = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.around = nn.Identity() if channels == width and stride == 1 else around
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(rows, channels, height, width) to the next such."""
        return self.relu(self.body(x) + self.around(x))


def residual_cnn(channels: int, outputs: int, width: int = 16) -> nn.Sequential:
    """A small residual network for images: five blocks, the size halved and the width doubled twice, the mean, a linear map.

    Args:
        channels: Channels of the pictures.
        outputs: The number of classes.
        width: Channels of the first block.

    Returns:
        The network.
    """
    first = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    steps = ((width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1), (2 * width, 4 * width, 2))
    blocks = [ResidualConv(*step) for step in (*steps, (4 * width, 4 * width, 1))]
    return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(4 * width, outputs))


def openxai_mlp(source: str | Path | Mapping[str, Tensor], dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A pre-trained network of OpenXAI, d-100-2 with ReLU and logits.

    Args:
        source: Its file (.pt, .safetensors), or the state dictionary.
        dtype: The precision of the weights.

    Returns:
        The network.
    """
    state = source if isinstance(source, Mapping) else _read(Path(source))
    expected = ("input1.weight", "input1.bias", "input2.weight", "input2.bias")
    if set(state) != set(expected):
        raise ValueError(
            f"openxai_mlp({source if isinstance(source, str | Path) else '...'}): holds {', '.join(state)}; "
            f"expected {', '.join(expected)}."
        )
    hidden, inputs = state["input1.weight"].shape
    model = mlp(inputs, hidden, state["input2.weight"].shape[0])
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    model.load_state_dict({name: state[key] for name, key in zip(names, expected, strict=True)})
    return model.to(dtype).eval()


def _read(path: Path) -> Mapping[str, Tensor]:
    if path.suffix == ".safetensors":
        from .checkpoint import safetensors

        state: Mapping[str, Tensor] = safetensors().load_file(path)
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
    return state


def seeded(seed: int, build: Callable[[], nn.Module]) -> nn.Module:
    """A model with the initial weights of a seed. The global generator stays as it was.

    Args:
        seed: The seed.
        build: A function that makes the model.

    Returns:
        The model.

    Example:
        >>> a, b = (seeded(3, lambda: nn.Linear(2, 1)) for _ in range(2))
        >>> torch.equal(a.weight, b.weight)
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
