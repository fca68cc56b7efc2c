"""The models that are measured, with random weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cafexai.models import FTTransformer


@dataclass(frozen=True)
class Case:
    """A model, its input, and whether Captum's DeepLIFT is right on it."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    deeplift: str = "right"  # or why it is not
    quick: bool = True
    promised: bool = True  # held against the limits

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The model, the input and the predicted classes, the same in every process."""
        torch.manual_seed(0)
        model = self.build().eval()
        x = torch.randn(self.shape)
        with torch.no_grad():
            return model, x, model(x).argmax(1)


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


class WrittenOut(nn.Module):
    """The same with a forward of its own, as most models are written: followed call by call."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.activations = nn.ModuleList(nn.ReLU() for _ in widths[2:])

    def forward(self, x: Tensor) -> Tensor:
        """(rows, inputs) to (rows, classes)."""
        for layer, activation in zip(self.layers, self.activations, strict=False):
            x = activation(layer(x))
        scores: Tensor = self.layers[-1](x)
        return scores


def deep_cnn() -> nn.Module:
    """The "deep" net of the image study: four convolutions of 128 channels on 56 x 28 pixels, one pool, five classes."""
    layers: list[nn.Module] = []
    for place, channels in enumerate((1, 128, 128, 128)):
        layers += [nn.Conv2d(channels, 128, 3, padding=1), nn.ReLU()] + ([nn.MaxPool2d(2)] if place == 1 else [])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 28 * 14, 128), nn.ReLU(), nn.Linear(128, 5))


class Encoder(nn.Module):
    """BERT-base with random weights and two classes, from its embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        self.bert: Any = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2))

    def forward(self, embedded: Tensor) -> Tensor:
        """(rows, tokens, 768) to (rows, 2)."""
        logits: Tensor = self.bert(inputs_embeds=embedded).logits
        return logits


NO_GELU = "has no rule for GELU and takes its gradient"
NO_FUNCTIONS = "does not see functional calls, has no rule for GELU"
CASES = (
    Case("7-100-2 ReLU, 1235 rows", lambda: mlp(7, 100, 2), (1235, 7)),
    Case("7-256x2-2 ReLU, 256 rows", lambda: mlp(7, 256, 256, 2), (256, 7)),
    Case("54-256x4-7 GELU, 1000 rows", lambda: mlp(54, *[256] * 4, 7, activation=nn.GELU), (1000, 54), NO_GELU),
    Case("54-1024x4-7 ReLU, 1000 rows", lambda: mlp(54, *[1024] * 4, 7), (1000, 54)),
    Case("FT-Transformer, 256 rows", lambda: FTTransformer([1] * 20, 2), (256, 20), NO_FUNCTIONS),
    Case("deep CNN, 32 images", deep_cnn, (32, 1, 56, 28), quick=False),
    Case("BERT-base size, 4 x 128 tokens", Encoder, (4, 128, 768), NO_FUNCTIONS, quick=False),
    Case("7-100-2 ReLU, 1 row", lambda: mlp(7, 100, 2), (1, 7)),
    Case("7-256x2-2 ReLU, 1 row", lambda: mlp(7, 256, 256, 2), (1, 7)),
    Case("7-100-2 ReLU with its own forward, 1 row", lambda: WrittenOut(7, 100, 2), (1, 7), promised=False),
    Case("54-256x4-7 GELU, 1 row", lambda: mlp(54, *[256] * 4, 7, activation=nn.GELU), (1, 54), NO_GELU),
)


def calm(model: nn.Module) -> nn.Module:
    """Square weights near the identity: signals and totals of 64 layers then stay within what float32 holds.

    With torch's own weights totals grow and signals fade with each layer; beyond some 40 of them rows are explained again in
    float64, or products underflow, which processors are slow at. Both are about numbers, not about the work per layer.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2 and parameter.shape[0] == parameter.shape[1]:
                parameter.mul_(0.05).add_(torch.eye(len(parameter)), alpha=0.95)
    return model


def growth(quick: bool) -> dict[str, list[tuple[int, Case]]]:
    """One size grows at a time; 54 features, ReLU."""
    rows = (10, 100, 1000, 10_000) if quick else (10, 100, 1000, 10_000, 100_000)
    depths = (2, 8, 32) if quick else (2, 4, 8, 16, 32, 64)
    widths = (64, 256, 1024) if quick else (32, 64, 128, 256, 512, 1024, 2048)

    def case(rows: int, depth: int, width: int) -> Case:
        return Case(f"54-{width}x{depth}-7 ReLU, {rows} rows", lambda: calm(mlp(54, *[width] * depth, 7)), (rows, 54))

    return {
        "rows": [(n, case(n, 4, 256)) for n in rows],
        "depth": [(n, case(256, n, 128)) for n in depths],
        "width": [(n, case(256, 4, n)) for n in widths],
    }
