"""MNIST, Fashion-MNIST, and digits stacked on digits whose lower half can change its meaning."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from .files import Folder, find
from .reading import read_idx
from .record import Dataset, Scaler
from .sources import IDX

MEAN, STD = 0.1307, 0.3081
MNIST = "LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998"
FASHION = "Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017"
FASHION_CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def mnist(*, folder: Folder = None, rows: int | None = None) -> Dataset:
    """Handwritten digits, 60 000 + 10 000 of (1, 28, 28).

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        rows: Keep the first rows of each split; None keeps all.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    return _images("mnist", "mnist", MNIST, "commonly given as CC BY-SA 3.0", tuple("0123456789"), folder, rows)


def fashion_mnist(*, folder: Folder = None, rows: int | None = None) -> Dataset:
    """Articles of clothing, 60 000 + 10 000 of (1, 28, 28), normalised as MNIST is.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        rows: Keep the first rows of each split; None keeps all.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    return _images("fashion_mnist", "fashion-mnist", FASHION, "MIT, Zalando SE", FASHION_CLASSES, folder, rows)


def concat_mnist(
    *,
    folder: Folder = None,
    source: str = "test",
    rows: int | None = None,
    seed: int = 42,
    clothes: Iterable[str] | None = None,
) -> Dataset:
    """A digit 0-4 above a digit 5-9, (1, 56, 28); the label is the upper digit.

    In training the lower digit is the upper one + 5. ``shifts["correlation"]``: the lower digit is any of 5-9;
    ``shifts["semantic"]``: it is an article of clothing. The test rows are other pairs of the same kind as in training.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        source: The split of MNIST that all splits are made from: the paper took "test", also for training.
        rows: Keep the first rows of each split; None keeps all.
        seed: Decides the pairs.
        clothes: The articles of clothing under ``shifts["semantic"]``, named as in ``FASHION_CLASSES``; None takes all. The
            paper does not say which it took.

    Returns:
        The data set.

    Raises:
        DataNotFound: The files of MNIST or Fashion-MNIST are missing.
        ValueError: There is no such source or article.
    """
    wanted = FASHION_CLASSES if clothes is None else tuple(clothes)
    if unknown := [article for article in wanted if article not in FASHION_CLASSES]:
        raise ValueError(f"concat_mnist(clothes=...): unknown {unknown[0]!r}. Allowed values: {', '.join(FASHION_CLASSES)}.")
    if not wanted:
        raise ValueError("concat_mnist(clothes=()): name at least one article of clothing, or None for all.")
    if source not in ("train", "test"):
        raise ValueError(f'concat_mnist(source={source!r}): unknown value. Allowed values: "train", "test".')
    images, labels = _split("concat_mnist", "mnist", source, folder)
    articles, kinds = _split("concat_mnist", "fashion-mnist", source, folder)
    articles = articles[np.isin(kinds, [FASHION_CLASSES.index(article) for article in wanted])]
    random = np.random.default_rng(seed)
    tops = random.permutation(np.flatnonzero(labels < 5))[:rows]
    lower = np.flatnonzero(labels >= 5)
    by_digit = {digit: np.flatnonzero(labels == digit + 5) for digit in range(5)}

    def partners() -> np.ndarray:
        return images[[random.choice(by_digit[digit]) for digit in labels[tops].tolist()]]

    bottoms = [
        partners(),
        partners(),
        images[random.choice(lower, len(tops))],
        articles[random.choice(len(articles), len(tops))],
    ]
    train, test, correlation, semantic = (_normalise(np.concatenate([images[tops], below], 1)) for below in bottoms)
    y = torch.from_numpy(labels[tops].astype(np.int64))
    return Dataset(
        name="concat_mnist",
        x_train=train,
        y_train=y,
        x_test=test,
        y_test=y.clone(),
        citation=f"{MNIST}; {FASHION}",
        terms="commonly given as CC BY-SA 3.0 (MNIST); MIT (Fashion-MNIST)",
        class_names=tuple("01234"),
        scaler=_scaler(),
        shifts={"correlation": (correlation, y.clone()), "semantic": (semantic, y.clone())},
        notes=(f"all made from the {source} splits; train and test share their upper digits",),
    )


def _images(
    name: str, home: str, citation: str, terms: str, classes: tuple[str, ...], folder: Folder, rows: int | None
) -> Dataset:
    (x_train, y_train), (x_test, y_test) = (_split(name, home, part, folder) for part in ("train", "test"))
    return Dataset(
        name=name,
        x_train=_normalise(x_train[:rows]),
        y_train=torch.from_numpy(y_train[:rows].astype(np.int64)),
        x_test=_normalise(x_test[:rows]),
        y_test=torch.from_numpy(y_test[:rows].astype(np.int64)),
        citation=citation,
        terms=terms,
        class_names=classes,
        scaler=_scaler(),
    )


def _split(name: str, home: str, part: str, folder: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, as bytes."""
    files = IDX[:2] if part == "train" else IDX[2:]
    images, labels = (
        read_idx(find(f"load({name!r})", f"{home}/{file}", f"{home}/{file.removesuffix('.gz')}", folder=folder))
        for file in files
    )
    if len(images) != len(labels):
        raise ValueError(f"load({name!r}): {len(images)} images and {len(labels)} labels in {home}, {part}.")
    return images, labels


def _scaler() -> Scaler:
    return Scaler(torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64))


def _normalise(images: np.ndarray) -> Tensor:
    """(n, h, w) bytes to (n, 1, h, w), mean 0 and deviation 1 over MNIST."""
    return (torch.from_numpy(images.astype(np.float32))[:, None] / 255 - MEAN) / STD
