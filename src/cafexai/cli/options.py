"""The options that commands share, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        help="package.module:factory (or file.py:factory), .skops, .onnx; with --trust also .pt2, .pt, .pkl and .joblib.",
        metavar="MODEL",
    ),
]
DataFile = Annotated[
    str, typer.Argument(help="A table (.csv, .parquet), arrays (.npz), a folder of images, or texts (.txt).", metavar="DATA")
]
Weights = Annotated[Path | None, typer.Option(help="Weights for the model: .safetensors, or .pt read without running code.")]
Trust = Annotated[bool, typer.Option("--trust", help="Read model files that can run code. Only for files you trust.")]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="A TOML file that says what the columns are.")]
ShowSchema = Annotated[bool, typer.Option("--show-schema", help="Show what the columns are taken for, and end.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the table, or arrays, that the model takes: age,income,...")]
Encoding = Annotated[str | None, typer.Option(help="How a text file is written, if not in UTF-8.")]
Tokenizer = Annotated[Path | None, typer.Option(help="Folder with the tokenizer of the model, for texts.")]
Preprocess = Annotated[str | None, typer.Option(help="package.module:function from an image to what the model takes.")]
Rows = Annotated[str | None, typer.Option(help="Which rows: 0:100, or 3,5, or both; all if not given.")]
Target = Annotated[
    str | None, typer.Option(help='The output to explain: number or class name; "all"; else the predicted class.')
]
Against = Annotated[str | None, typer.Option(help="Explain why the target rather than this output.")]
Baseline = Annotated[
    str,
    typer.Option(
        help="What rows are compared with: zero; mask (texts; usual there); mean, median, mode, row:N of DATA; or a file."
    ),
]
Output = Annotated[str | None, typer.Option(help="Which of several outputs: its name, such as logits, or its place.")]
Sensitivity = Annotated[str, typer.Option("--c", help="Conflict sensitivity, 0 to 1; several as 0,0.5,1.")]
Netting = Annotated[
    str | None, typer.Option(help="path (as published), feature or unit; if none of these four is named, the model decides.")
]
Flows = Annotated[str | None, typer.Option(help="peak (as published) or mean.")]
Biases = Annotated[str | None, typer.Option(help="scores (as published) or reference.")]
Norms = Annotated[str | None, typer.Option(help="frozen (as published) or, with --biases reference, open.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows at a time; chosen to fit the cache if not given.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output, for machines.")]
