"""Files as a new user of the command line has them: code, weights, tables, arrays, images."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import nn

CODE = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

def one():
    return nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))

def cnn():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))

class Odd(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x).sum(1)

class Two(nn.Module):
    def forward(self, b, a):
        return (2 * a + b).sum(1)

def sized(width):
    return nn.Linear(width, 1)

def broken():
    raise RuntimeError("the disk is on fire")

def halved(image):
    import numpy as np
    return torch.tensor(np.asarray(image.convert("L").resize((8, 8))), dtype=torch.float32)[None] / 510

NUMBER = 3
"""
NUMBERS = ["age", "income", "children"]


def network():
    """The network of ``shop:net``, with weights that are always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8, dtype=torch.float32), nn.ReLU(), nn.Linear(8, 2, dtype=torch.float32))


def write_all(folder):
    """Everything but what needs further packages."""
    (folder / "shop.py").write_text(CODE)
    (folder / "faulty.py").write_text("import torch\nx = 1 / 0\n")
    model = network()
    save_file(model.state_dict(), folder / "net.safetensors")
    torch.save(model.state_dict(), folder / "net.pt")
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, folder / "checkpoint.pt")
    torch.save(model, folder / "whole.pt")
    save_file({"0.weight": torch.ones(4, 3), "extra": torch.ones(1)}, folder / "other.safetensors")
    (folder / "corrupt.safetensors").write_bytes((folder / "net.safetensors").read_bytes()[:200])
    (folder / "corrupt.pt").write_bytes((folder / "net.pt").read_bytes()[:700])
    table = pd.DataFrame({"age": [45, 31, 62, 28, 51], "income": [5.2, 3.1, 4.0, 2.5, 6.1], "children": [2, 0, 3, 1, 2]})
    table.to_csv(folder / "people.csv", index=False)
    table.to_csv(folder / "counted.csv")
    table.rename(columns={"age": "возраст", "income": "年収", "children": "παιδιά"}).to_csv(folder / "letters.csv", index=False)
    mixed = table.assign(city=["Rome", "Oslo", None, "Rome", "Lima"], income=[5.2, np.nan, 4.0, 2.5, 6.1])
    mixed.to_csv(folder / "mixed.csv", index=False)
    mixed.drop(columns="city").to_csv(folder / "gaps.csv", index=False)
    table[:1].to_csv(folder / "single.csv", index=False)
    table[:0].to_csv(folder / "norows.csv", index=False)
    table[["age"]].to_csv(folder / "column.csv", index=False)
    table.drop(columns="income").to_csv(folder / "short.csv", index=False)
    (folder / "empty.csv").write_text("")
    (folder / "headless.csv").write_text("1,2.5,3\n4,5,6\n")
    (folder / "twice.csv").write_text("age,age,income\n1,2,3\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "semicolons.csv").write_text("age;income;children\n45;5.2;2\n31;3.1;0\n")
    (folder / "latin.csv").write_bytes("café,income,children\n1,2,3\n".encode("cp1252"))
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    np.savez(folder / "two.npz", a=x, b=2 * x, y=np.arange(4))
    np.savez(folder / "objects.npz", x=np.array([{}], dtype=object))
    (folder / "words.txt").write_text("a good film\n\na bad film\n")
    return folder


def write_images(folder, sizes=((8, 8), (8, 8))):
    """Grey images, as files."""
    from PIL import Image

    folder.mkdir()
    for place, size in enumerate(sizes):
        pixels = np.random.default_rng(place).integers(0, 256, size=size[::-1], dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"image{place}.png")
    return folder


def process(folder, *words, **environment):
    """The command as a user starts it, in a process of its own: code, standard output, standard error."""
    kept = {name: value for name, value in os.environ.items() if name != "CAFEXAI_DATA"}
    done = subprocess.run(
        [sys.executable, "-m", "cafexai", *map(str, words)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
