"""COMPAS, HELOC, Adult and German Credit as OpenXAI prepared them, and the networks trained on them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch

from .files import Folder, find
from .reading import read_table
from .record import Dataset, min_max

BENCHMARK = "Agarwal et al., OpenXAI: Towards a Transparent Evaluation of Model Explanations, NeurIPS 2022"
GERMAN_BLOCKS = (4, 5, 10, 5, 5, 4, 3, 4, 3, 3, 4, 2)  # columns of the one-hot features after eight numbers


def compas(*, folder: Folder = None, scaling: str = "split") -> Dataset:
    """Risk of recidivism: 3 numbers and 4 binary columns.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        scaling: "split" scales every split by itself, as OpenXAI does; "train" scales all by the training rows, which is
            sounder.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    return _load("compas", "risk", "two_year_recid c_charge_degree_F sex_Female race", ("high", "not high"), folder, scaling)


def heloc(*, folder: Folder = None, scaling: str = "split") -> Dataset:
    """Risk of a home equity loan: 23 numbers.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        scaling: See ``compas``.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    return _load("heloc", "RiskPerformance", "", ("bad", "good"), folder, scaling)


def adult(*, folder: Folder = None, scaling: str = "split") -> Dataset:
    """Income above 50 000 dollars: 6 numbers and 7 binary columns.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        scaling: See ``compas``.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    binary = (
        "sex_Male workclass_Private marital-status_Non-Married occupation_Other relationship_Non-Husband race_White "
        "native-country_US"
    )
    return _load("adult", "income", binary, ("at most 50K", "over 50K"), folder, scaling)


def german(*, folder: Folder = None, scaling: str = "split") -> Dataset:
    """Credit risk: 8 numbers and 12 one-hot blocks.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        scaling: See ``compas``.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    return _load("german", "credit-risk", None, ("bad", "good"), folder, scaling)


TERMS = {
    "compas": "ProPublica's published data; no licence stated",
    "heloc": "FICO, terms of the Explainable Machine Learning Challenge; no open licence",
    "adult": "UCI, CC BY 4.0",
    "german": "UCI, CC BY 4.0",
}


def _load(name: str, label: str, binary: str | None, classes: tuple[str, str], folder: Folder, scaling: str) -> Dataset:
    if scaling not in ("split", "train"):
        raise ValueError(f'{name}(scaling={scaling!r}): unknown value. Allowed values: "split", "train".')
    parts = [_table(name, part, label, folder) for part in ("train", "test")]
    (names, x_train, y_train), (_, x_test, y_test) = parts
    if binary is None:
        ends = np.cumsum((8, *GERMAN_BLOCKS)).tolist()
        categories = {names[a].rsplit("_", 1)[0]: tuple(range(a, b)) for a, b in itertools.pairwise(ends)}
    else:
        categories = {column: (names.index(column),) for column in binary.split()}
    scaler = min_max(x_train)
    test_scaler = scaler if scaling == "train" else min_max(x_test)
    return Dataset(
        name=name,
        x_train=scaler.transform(torch.from_numpy(x_train)),
        y_train=torch.from_numpy(y_train),
        x_test=test_scaler.transform(torch.from_numpy(x_test)),
        y_test=torch.from_numpy(y_test),
        citation=BENCHMARK,
        terms=TERMS[name],
        feature_names=names,
        categories=categories,
        class_names=classes,
        scaler=scaler,
        test_scaler=test_scaler,
        notes=(f"min-max scaling, fitted on {'train' if scaling == 'train' else 'each split by itself (OpenXAI)'}",),
    )


def _table(name: str, part: str, label: str, folder: Folder) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, raw features and labels of one split."""
    path = find(f"load({name!r})", f"openxai/{name}-{part}.csv", folder=folder)
    names, values = read_table(path)
    if label not in names:
        raise ValueError(f"load({name!r}): {path} has no column {label!r}, its columns are {', '.join(names)}.")
    at = names.index(label)
    return names[:at] + names[at + 1 :], np.delete(values, at, 1), values[:, at].astype(np.int64)


def openxai_weights(name: str, *, folder: Folder = None) -> Path:
    """The file with a pre-trained network of OpenXAI, for ``models.openxai_mlp``.

    Args:
        name: "compas", "heloc", "adult" or "german".
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.

    Returns:
        The path of the file.

    Raises:
        DataNotFound: The file is missing.
    """
    if name not in TERMS:
        raise ValueError(f"openxai_weights({name!r}): unknown name. Allowed values: {', '.join(TERMS)}.")
    names = (f"openxai_weights/ann_{name}.safetensors", f"openxai_weights/ann_{name}.pt")
    return find(f"openxai_weights({name!r})", *names, folder=folder)
