"""Rows in files and a network for them, and a process that scores them, which can be killed."""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from torch import nn

from cafexai import CAFE
from cafexai.batch import score

WIDTH = 5
NAMES = [f"x{place}" for place in range(WIDTH)]


def network(seed=0, inputs=WIDTH, width=16):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(inputs, width, dtype=torch.float32), nn.ReLU(), nn.Linear(width, 3, dtype=torch.float32)
    ).eval()


def rows(count, seed=0, inputs=WIDTH):
    return np.random.default_rng(seed).normal(size=(count, inputs)).astype(np.float32)


def table(x, start=0):
    names = [f"x{place}" for place in range(x.shape[1])]
    return pa.table({"id": np.arange(start, start + len(x)), **{name: x[:, place] for place, name in enumerate(names)}})


def write(path, x, start=0, group=100):
    pq.write_table(table(x, start), path, row_group_size=group)
    return path


def read(folder):
    """All scored rows, in the order of the input."""
    return ds.dataset(folder, format="parquet").to_table().sort_by([("source_file", "ascending"), ("source_row", "ascending")])


def hidden(folder):
    """The bookkeeping of a folder of results."""
    return folder.with_name(f"_{folder.name}.cafexai")


def refused(folder):
    side = hidden(folder) / "refused"
    return ds.dataset(side, format="parquet").to_table().to_pylist() if side.exists() else []


def nets(found, names=NAMES):
    return np.stack([found[f"net_{name}"].to_numpy() for name in names], 1)


def main(source, sink, options):
    """As a script of a user does it."""
    torch.set_num_threads(1)
    options = json.loads(options)
    model = network(width=options.pop("width", 16), inputs=options.pop("inputs", WIDTH))
    print(score(CAFE(model), source, sink, keep=["id"], **options))


if __name__ == "__main__":
    main(*sys.argv[1:])
