"""The data sets of the paper: ``load("adult")`` or ``adult()``; each comes as one frozen ``Dataset``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .cifar10 import cifar10
from .covertype import covertype
from .files import DataNotFound
from .mimic import mimic, mimic_table
from .mnist import concat_mnist, fashion_mnist, mnist
from .openxai import adult, compas, german, heloc, openxai_weights
from .record import Dataset, Scaler
from .shapes import shapes
from .snippets import Snippets, movie_snippets
from .synthetic import PROCEDURAL, TRAINED, synthetic_conflicts, synthetic_shift
from .titanic import titanic


class Entry(NamedTuple):
    """An entry of ``DATASETS``.

    Args:
        loader: The function that loads the data set.
        needs: The files that it needs.
        size: Their size, in words.
    """

    loader: Callable[..., Dataset]
    needs: str
    size: str


DATASETS: dict[str, Entry] = {
    "compas": Entry(compas, "openxai/compas-train.csv, openxai/compas-test.csv", "0.1 MB"),
    "heloc": Entry(heloc, "openxai/heloc-train.csv, openxai/heloc-test.csv", "1.2 MB"),
    "adult": Entry(adult, "openxai/adult-train.csv, openxai/adult-test.csv", "1.6 MB"),
    "german": Entry(german, "openxai/german-train.csv, openxai/german-test.csv", "0.1 MB"),
    "titanic": Entry(titanic, "titanic/titanic_train.csv", "0.1 MB"),
    "covertype": Entry(covertype, "covertype/covtype.data.gz", "11 MB"),
    "mimic": Entry(
        mimic, "mimic-iv/ with the tables of PhysioNet (credentialed); demo=True: mimic-iv-demo/", "3 GB; demo 5 MB"
    ),
    "mnist": Entry(mnist, "mnist/ with the four idx files", "11 MB"),
    "fashion_mnist": Entry(fashion_mnist, "fashion-mnist/ with the four idx files", "30 MB"),
    "concat_mnist": Entry(concat_mnist, "mnist/ and fashion-mnist/", "41 MB"),
    "cifar10": Entry(cifar10, "cifar10/cifar-10-binary.tar.gz", "170 MB"),
    "shapes": Entry(shapes, 'nothing; textures="dtd": dtd/ with JPEG files or dtd-r1.0.1.tar.gz', "0; dtd 625 MB"),
    "synthetic_conflicts": Entry(synthetic_conflicts, "nothing", "0"),
    "synthetic_shift": Entry(synthetic_shift, "nothing", "0"),
}


def load(name: str, **options: Any) -> Dataset:
    """Load a data set by its name.

    Args:
        name: A name of ``DATASETS``.
        **options: Options of its loader, such as ``folder=``.

    Returns:
        The data set.

    Raises:
        ValueError: There is no such data set.
        DataNotFound: Its files are missing; the message says where to get them.

    Example:
        >>> from cafexai.datasets import load
        >>> load("synthetic_shift", rows=10).x_train.shape[1]
        11
    """
    if name not in DATASETS:
        raise ValueError(f"load({name!r}): unknown data set. Allowed values: {', '.join(DATASETS)}.")
    return DATASETS[name].loader(**options)


__all__ = [
    "DATASETS",
    "PROCEDURAL",
    "TRAINED",
    "DataNotFound",
    "Dataset",
    "Entry",
    "Scaler",
    "Snippets",
    "adult",
    "cifar10",
    "compas",
    "concat_mnist",
    "covertype",
    "fashion_mnist",
    "german",
    "heloc",
    "load",
    "mimic",
    "mimic_table",
    "mnist",
    "movie_snippets",
    "openxai_weights",
    "shapes",
    "synthetic_conflicts",
    "synthetic_shift",
    "titanic",
]
