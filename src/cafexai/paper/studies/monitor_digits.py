"""The paper's stacked digits, for the study of the monitor: latent features are the inputs of a classifier that is watched."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..datasets import Dataset, concat_mnist
from ..models import IMAGE_RECIPE, concat_cnn, seeded, train
from .record import Settings, Workplace

NETWORK, SEED = "narrow", 42
POOLED = 14  # pixels along both sides of the areas over which feature maps are averaged: one for each digit
WATCHED = 0  # the output that is watched
HIDDEN = 64


@dataclass(frozen=True)
class Digits:
    """Latent features of digits of the training's kind and of both shifts, and the classifier on top of them."""

    table: Dataset
    classifier: nn.Module
    x: Tensor
    y: Tensor
    shifted: dict[str, Tensor]  # of the same upper digits as ``x``

    @classmethod
    def prepare(cls, settings: Settings, place: Workplace) -> Digits:
        """Train the network, if it is not yet; rows of all sets in the same random order."""
        data = concat_mnist(folder=place.data, rows=settings["digit_rows"], seed=SEED)
        recipe = dataclasses.replace(IMAGE_RECIPE, epochs=settings["digit_epochs"], seed=SEED)
        made = seeded(SEED, build).float()
        model = train(made, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress).model.eval()
        order = torch.randperm(len(data.x_test), generator=torch.Generator().manual_seed(0))
        x = latent(model, data.x_test[order])
        shifted = {f"digits, {name}": latent(model, images[order]) for name, (images, _) in data.shifts.items()}
        return cls(data, model.get_submodule("1").double(), x, data.y_test[order], shifted)


def build() -> nn.Sequential:
    """The smallest network of the paper, with feature maps averaged per digit: 128 latent features instead of 25 088."""
    layers = list(concat_cnn(NETWORK).get_submodule("0").children())[:-1]
    channels = next(layer.out_channels for layer in reversed(layers) if isinstance(layer, nn.Conv2d))
    classifier = nn.Sequential(nn.Linear(2 * channels, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 5))
    return nn.Sequential(nn.Sequential(*layers, nn.AvgPool2d(POOLED), nn.Flatten(1)), classifier)


def latent(model: nn.Module, images: Tensor) -> Tensor:
    """The latent features of images."""
    with torch.no_grad():
        return torch.cat([model.get_submodule("0")(part) for part in images.split(250)]).double()
