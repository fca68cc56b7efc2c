"""Covertype: the kind of forest on a patch of land."""

from __future__ import annotations

import numpy as np
import torch

from .files import Folder, find
from .reading import read_bytes
from .record import Dataset, Scaler, robust, split

NUMBERS = (
    "Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology "
    "Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm Horizontal_Distance_To_Fire_Points"
).split()
CLASSES = ("Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow", "Aspen", "Douglas-fir", "Krummholz")


def covertype(*, folder: Folder = None, test: float = 0.02, seed: int = 43, rows: int | None = None) -> Dataset:
    """581 012 patches of forest: 10 numbers scaled by quantile range, 4 areas and 40 soils one-hot.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        test: The share of rows for testing.
        seed: Decides the split.
        rows: Keep so many rows for training; None keeps all.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    path = find("load('covertype')", "covertype/covtype.data.gz", "covertype/covtype.data", folder=folder)
    flat = np.fromstring(read_bytes(path).replace(b"\n", b","), dtype=np.int32, sep=",")  # much faster than loadtxt
    if flat.size % 55:
        raise ValueError(f"load('covertype'): {path} has {flat.size} numbers, not a multiple of 55; the file is incomplete.")
    table = flat.reshape(-1, 55)
    train_rows, test_rows = split(len(table), test, seed)
    scaler = robust(table[train_rows, :54], 10)
    x = torch.from_numpy(table[:, :54]).float()
    numbers = Scaler(scaler.center[:10], scaler.scale[:10])  # the other 44 columns stay: half a million rows are large enough
    x[:, :10] = numbers.transform(torch.from_numpy(table[:, :10]).double()).float()
    y = torch.from_numpy(table[:, 54]).long() - 1
    names = (*NUMBERS, *(f"Wilderness_Area_{i}" for i in range(1, 5)), *(f"Soil_Type_{i}" for i in range(1, 41)))
    kept = train_rows[:rows]
    return Dataset(
        name="covertype",
        x_train=x[kept],
        y_train=y[kept],
        x_test=x[test_rows],
        y_test=y[test_rows],
        citation="Blackard and Dean, Comparative accuracies of artificial neural networks and discriminant analysis, 1999",
        terms="UCI, CC BY 4.0; copyright Jock A. Blackard and Colorado State University",
        feature_names=names,
        categories={"Wilderness_Area": tuple(range(10, 14)), "Soil_Type": tuple(range(14, 54))},
        class_names=CLASSES,
        scaler=scaler,
        notes=() if rows is None else (f"{len(kept)} of {len(train_rows)} rows for training",),
    )
