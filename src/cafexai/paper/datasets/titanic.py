"""Titanic: who survived, by class, age, family, fare and sex."""

from __future__ import annotations

import numpy as np
import torch

from .files import Folder, find
from .reading import read_records
from .record import Dataset, split
from .tables import encode

NUMBERS = ("Pclass", "Age", "SibSp", "Parch", "Fare")


def titanic(*, folder: Folder = None, test: float = 0.2, seed: int = 43) -> Dataset:
    """891 passengers: 5 numbers by quantile range, sex one-hot; a missing age is the median age of all.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        test: The share of rows for testing.
        seed: Decides the split.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    path = find("load('titanic')", "titanic/titanic_train.csv", folder=folder)
    records = read_records(path, (*NUMBERS, "Sex", "Survived"))
    numbers = {name: np.array([float(record[name] or "nan") for record in records]) for name in NUMBERS}
    numbers["Age"] = np.where(np.isnan(numbers["Age"]), np.nanmedian(numbers["Age"]), numbers["Age"])
    sex = np.array([record["Sex"] for record in records])
    y = torch.tensor([int(record["Survived"]) for record in records])
    train_rows, test_rows = split(len(records), test, seed)
    x_train, x_test, scaler, names, blocks = encode(numbers, {"Sex": sex}, train_rows, test_rows)
    return Dataset(
        name="titanic",
        x_train=x_train,
        y_train=y[train_rows],
        x_test=x_test,
        y_test=y[test_rows],
        citation="Harrell and Cason, Titanic dataset, 2017; Kaggle, Titanic: Machine Learning from Disaster",
        terms="terms of the Kaggle competition; no open licence stated",
        feature_names=names,
        categories=blocks,
        class_names=("died", "survived"),
        scaler=scaler,
    )
