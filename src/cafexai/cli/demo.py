"""``cafexai demo``: a model and data to try the other commands on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .._extras import needs
from ..loading.file_errors import OutputProblem
from .output import check_out, write_out
from .status import Status

Folder = Annotated[Path, typer.Argument(help="Where the files are put.")]
CODE = '''\
"""A network that says whether a tumour is malignant: its output is above 0 then."""

from torch import nn


def network() -> nn.Module:
    """It takes measurements as they are in the table, and standardises them first."""
    hidden = [nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()]
    return nn.Sequential(nn.BatchNorm1d(30, affine=False), *hidden, nn.Linear(16, 1))
'''


def demo(folder: Folder = Path("cafexai-demo")) -> None:
    """A small network and a table to try it all on.

    Trains a network on measurements of tumours, puts it into a folder with a table, explains a row, and shows what to try next.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputProblem(f"demo {folder}: the folder cannot be made ({error.strerror}). Give another.") from error
    files = {name: folder / name for name in ("network.py", "network.safetensors", "tumours.csv")}
    for file in files.values():
        check_out(file, (file.suffix,))
    with Status().running() as status:
        status.doing("training a small network")
        ledger = _make_demo(files)
    typer.echo(ledger)
    typer.echo(f"\nIn {folder} are a network, its weights and 171 tumours that it has not seen. Try:\n")
    typer.echo(f"  cd {shlex.quote(str(folder))}")
    asked = "network:network tumours.csv --weights network.safetensors --baseline mean"
    for command in (f"explain {asked} --rows 0:3", f"explain {asked} --out scores.csv", f"report {asked}"):
        typer.echo(f"  cafexai {command}")


def _make_demo(files: dict[str, Path]) -> str:
    """Train, write the files, and explain the first malignant tumour."""
    datasets = needs("sklearn.datasets", "sklearn")
    safetensors = needs("safetensors.torch", "io")
    needs("pandas", "tabular")
    from ..cafe import CAFE
    from ..loading import load_model

    table = datasets.load_breast_cancer(as_frame=True)
    train = table.frame.sample(frac=0.7, random_state=0)
    test = table.data.drop(train.index)
    write_out(files["network.py"], lambda part: part.write_text(CODE, encoding="utf-8"))
    write_out(files["tumours.csv"], lambda part: test.to_csv(part, index=False))
    model = load_model(f"{files['network.py']}:network")
    _train(model, train.drop(columns="target"), 1 - train["target"])
    write_out(files["network.safetensors"], lambda part: part.write_bytes(safetensors.save(model.state_dict())))
    explanation = CAFE(model, background=test).explain(test, "mean")
    return str(explanation[[int((explanation.output > 0).int().argmax())]].ledger())


def _train(model: Any, measured: Any, malignant: Any) -> None:
    import torch

    x, y = torch.tensor(measured.to_numpy(), dtype=torch.float32), torch.tensor(malignant.to_numpy(), dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.uniform_(-(parameter.shape[-1] ** -0.5), parameter.shape[-1] ** -0.5, generator=generator)
    model[0].running_mean.copy_(x.mean(0))
    model[0].running_var.copy_(x.var(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.003)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
