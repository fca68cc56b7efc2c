"""Backgrounds: generated patterns, or crops of photographed textures."""

from __future__ import annotations

import io
import tarfile

import numpy as np

from .files import Folder, find, folders


def backgrounds(n: int, size: int, random: np.random.Generator, kind: str, folder: Folder) -> np.ndarray:
    """(n, size, size, 3) in [0, 1]: "generated" or "dtd"."""
    if kind == "generated":
        return np.stack([pattern(size, random) for _ in range(n)])
    if kind != "dtd":
        raise ValueError(f'shapes(textures={kind!r}): unknown value. Allowed values: "generated", "dtd".')
    pictures = photographs(folder, 2 * size)
    return np.stack([_crop(pictures[i], size, random) for i in random.integers(len(pictures), size=n)])


def pattern(size: int, random: np.random.Generator) -> np.ndarray:
    """Stripes, checks and clouds of random direction and scale between two random colours."""
    grid = np.linspace(0, 1, size, dtype=np.float32)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    value = np.zeros((size, size), np.float32)
    for _ in range(3):
        turn, waves, phase = random.uniform(0, np.pi), random.uniform(2, 14), random.uniform(0, 2 * np.pi)
        value += np.sin(2 * np.pi * waves * (np.cos(turn) * x + np.sin(turn) * y) + phase).astype(np.float32)
    if random.random() < 0.5:
        cells = random.integers(3, 10)
        value += np.sign(np.sin(np.pi * cells * x) * np.sin(np.pi * cells * y))
    cloud = random.normal(size=(size // 8 + 1, size // 8 + 1)).repeat(8, 0).repeat(8, 1)[:size, :size]
    value = value + cloud.astype(np.float32) + 0.5 * random.normal(size=value.shape).astype(np.float32)
    share = (1 / (1 + np.exp(-value)))[..., None]
    low, high = random.uniform(0, 1, (2, 3)).astype(np.float32)
    return (share * low + (1 - share) * high).astype(np.float32)


def photographs(folder: Folder, least: int, limit: int = 600) -> list[np.ndarray]:
    """Pictures of the Describable Textures Dataset with sides of at least so many pixels, in the order of their names."""
    for place in folders(folder):
        files = sorted((place / "dtd").rglob("*.jpg"))
        if files:
            step = -(-len(files) // limit)
            return _large([file.read_bytes() for file in files[::step]], least)
    path = find('load("shapes", textures="dtd")', "dtd/dtd-r1.0.1.tar.gz", folder=folder)
    with tarfile.open(path) as archive:
        members = sorted((m for m in archive.getmembers() if m.name.endswith(".jpg")), key=lambda m: m.name)
        step = -(-len(members) // limit)
        opened = (archive.extractfile(member) for member in members[::step])
        return _large([file.read() for file in opened if file is not None], least)


def _large(contents: list[bytes], least: int) -> list[np.ndarray]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError("shapes(textures='dtd') needs pillow to read JPEG: pip install 'cafexai[data]'.") from None
    pictures = [np.asarray(Image.open(io.BytesIO(content)).convert("RGB")) for content in contents]
    kept = [picture for picture in pictures if min(picture.shape[:2]) >= least]
    if not kept:
        raise ValueError(f"shapes(size={least // 2}): no texture has sides of {least} pixels; choose a smaller size.")
    return kept


def _crop(picture: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """A random square of twice the size, halved by averaging."""
    top, left = (int(random.integers(side - 2 * size + 1)) for side in picture.shape[:2])
    square = picture[top : top + 2 * size, left : left + 2 * size].astype(np.float32) / 255
    return square.reshape(size, 2, size, 2, 3).mean((1, 3))
