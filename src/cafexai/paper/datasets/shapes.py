"""Geometric shapes on textures: the kind of shape is the label."""

from __future__ import annotations

import numpy as np
import torch

from .files import Folder
from .record import Dataset, Scaler
from .textures import backgrounds

SHAPES = ("triangle", "rectangle", "pentagon", "hexagon", "circle", "star")
CORNERS = {"triangle": 3, "pentagon": 5, "hexagon": 6}


def shapes(
    *, train: int = 6000, test: int = 1000, size: int = 64, textures: str = "generated", seed: int = 42, folder: Folder = None
) -> Dataset:
    """Triangle, rectangle, pentagon, hexagon, circle and star of random size, place, rotation and colour, (3, size, size).

    Args:
        train: Pictures for training.
        test: Pictures for testing.
        size: Their side.
        textures: The background: "generated" needs no file, "dtd" takes photographs of the Describable Textures Dataset.
        seed: Decides the draws.
        folder: Where the files of "dtd" are.

    Returns:
        The data set.

    Raises:
        DataNotFound: The files of "dtd" are missing.
    """
    random = np.random.default_rng(seed)
    n = train + test
    labels = random.permutation(np.arange(n) % len(SHAPES))
    images = draw(labels, backgrounds(n, size, random, textures, folder), random)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    scaler = Scaler(torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.25, dtype=torch.float64))
    x, y = scaler.transform(x), torch.from_numpy(labels.astype(np.int64))
    dtd = textures == "dtd"
    return Dataset(
        name="shapes",
        x_train=x[:train],
        y_train=y[:train],
        x_test=x[train:],
        y_test=y[train:],
        citation="drawn by cafexai" + (" on Cimpoi et al., Describing Textures in the Wild, CVPR 2014" if dtd else ""),
        terms="textures for research only, pictures from the web" if dtd else "none",
        class_names=SHAPES,
        scaler=scaler,
        notes=(f"{textures} textures",),
    )


def draw(labels: np.ndarray, images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One shape on each image, (n, size, size, 3) in [0, 1], with soft edges of one pixel."""
    n, size = images.shape[:2]
    radius = size * random.uniform(0.22, 0.42, (n,))
    place = random.uniform(radius, size - radius, (2, n))
    turn = random.uniform(0, 2 * np.pi, (n,))
    side = random.uniform(0.45, 0.75, (n,))  # of a rectangle, against its longer side
    colour = random.uniform(0, 1, (n, 3)).astype(np.float32)
    grid = np.arange(size) + 0.5
    out = images.copy()
    for i, label in enumerate(labels):
        x, y = grid[None] - place[0][i], grid[:, None] - place[1][i]
        across, along = np.cos(turn[i]) * x + np.sin(turn[i]) * y, np.cos(turn[i]) * y - np.sin(turn[i]) * x
        depth = _depth(SHAPES[label], across, along, radius[i], side[i])
        cover = np.clip(depth + 0.5, 0, 1).astype(np.float32)[..., None]
        out[i] = images[i] * (1 - cover) + colour[i] * cover
    return out


def _depth(shape: str, x: np.ndarray, y: np.ndarray, radius: float, side: float) -> np.ndarray:
    """How far each pixel lies inside the edge of the shape, in pixels; negative outside."""
    distance = np.hypot(x, y)
    if shape == "circle":
        return radius - distance
    if shape == "rectangle":
        length = radius / np.hypot(1, side)
        return np.minimum(length - np.abs(x), side * length - np.abs(y))
    if shape == "star":
        sector = np.pi / 5
        angle = np.abs((np.arctan2(y, x) + sector) % (2 * sector) - sector)  # 0 at a tip, pi / 5 between two
        inner = 0.45 * radius
        normal = np.array([inner * np.sin(sector), radius - inner * np.cos(sector)])
        normal /= np.hypot(*normal)
        return normal[0] * (radius - distance * np.cos(angle)) - normal[1] * distance * np.sin(angle)
    sector = np.pi / CORNERS[shape]
    angle = np.abs((np.arctan2(y, x) + sector) % (2 * sector) - sector)  # 0 at the middle of an edge
    return radius * np.cos(sector) - distance * np.cos(angle)
