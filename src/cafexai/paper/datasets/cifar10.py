"""CIFAR-10: small colour photographs of ten kinds of things."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .files import Folder, find
from .record import Dataset, Scaler

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.49139968, 0.48215841, 0.44653091)
STD = (0.24703223, 0.24348513, 0.26158784)


def cifar10(*, folder: Folder = None, rows: int | None = None) -> Dataset:
    """50 000 + 10 000 pictures of (3, 32, 32), each channel scaled to mean 0 and deviation 1.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        rows: Keep the first rows of each split; None keeps all.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    path = find("load('cifar10')", "cifar10/cifar-10-binary.tar.gz", "cifar10/cifar10_subset.npz", folder=folder)
    x_train, y_train, x_test, y_test = _subset(path) if path.suffix == ".npz" else _archive(path)
    scaler = Scaler(*(torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (MEAN, STD)))
    return Dataset(
        name="cifar10",
        x_train=_scale(x_train[:rows], scaler),
        y_train=torch.from_numpy(y_train[:rows].astype(np.int64)),
        x_test=_scale(x_test[:rows], scaler),
        y_test=torch.from_numpy(y_test[:rows].astype(np.int64)),
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        terms="none stated; customary research use with citation",
        class_names=CLASSES,
        scaler=scaler,
        notes=() if len(x_train) == 50000 else (f"a subset: {len(x_train)} train and {len(x_test)} test images",),
    )


def _scale(images: np.ndarray, scaler: Scaler) -> Tensor:
    return scaler.transform(torch.from_numpy(images.astype(np.float32)) / 255)


def _archive(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels from the binary version: a byte of label, then the three planes."""
    parts: dict[str, np.ndarray] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".bin") and (file := archive.extractfile(member)) is not None:
                parts[Path(member.name).stem] = np.frombuffer(file.read(), np.uint8).reshape(-1, 3073)
    if not {"data_batch_1", "test_batch"} <= set(parts):
        raise ValueError(f"load('cifar10'): {path} holds no data_batch_1.bin and test_batch.bin; is it the binary version?")
    train = np.concatenate([parts[name] for name in sorted(parts) if name.startswith("data_batch")])
    test = parts["test_batch"]
    return train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0], test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0]


def _subset(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same from arrays x_train, y_train, x_test, y_test with channels last."""
    with np.load(path, allow_pickle=False) as file:
        x_train, x_test = (file[name].transpose(0, 3, 1, 2) for name in ("x_train", "x_test"))
        return x_train, file["y_train"], x_test, file["y_test"]
