"""The options that commands share, described once.

A command takes groups of options as parameters (``source: Source``); ``expand`` gives each of their fields an option.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from . import parsing
from .errors import UseProblem

if TYPE_CHECKING:
    from .._engine.request import Request
    from ..cafe import CAFE

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
Against = Annotated[str | None, typer.Option(help='Explain why the target rather than this output; "others": their mean.')]
Baseline = Annotated[
    str,
    typer.Option(
        help="What rows are compared with: zero; mask (texts; usual there); mean, median, mode, background (50 rows) "
        "or row:N of DATA; or a file."
    ),
]
Output = Annotated[str | None, typer.Option(help="Which of several outputs: its name, such as logits, or its place.")]
Sensitivity = Annotated[str, typer.Option("--c", help="Conflict sensitivity, 0 to 1; several as 0,0.5,1.")]
Variant = Annotated[
    str | None,
    typer.Option(help="How influence is propagated: default, published (the paper), feature (keeps features apart)."),
]
Netting = Annotated[str | None, typer.Option(help="Option of the variant: path, unit or feature.")]
Flows = Annotated[str | None, typer.Option(help="Option of the variant: peak, mean or extrema.")]
Biases = Annotated[str | None, typer.Option(help="Option of the variant: scores or reference.")]
Norms = Annotated[str | None, typer.Option(help="Option of the variant: frozen or open.")]
NormMean = Annotated[str | None, typer.Option(help="Option of the variant, for frozen norms: bias or linear.")]
Attention = Annotated[str | None, typer.Option(help="Option of the variant: frozen or open.")]
Conflict = Annotated[
    str | None, typer.Option(help="How conflict is computed: measured (by two evaluations per row) or net (from net scores).")
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows at a time; chosen to fit the cache if not given.")]
LogLevel = Annotated[str, typer.Option(help="What is logged to standard error: debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: one object a line.")]
AllowNan = Annotated[
    bool, typer.Option("--allow-nan", help="Take missing numbers, if the model handles them; their score is 0.")
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output, for machines.")]


@dataclass(frozen=True)
class Source:
    """A model and data, as files."""

    model: Model
    data: DataFile
    weights: Weights = None
    columns: Columns = None
    schema: SchemaFile = None
    tokenizer: Tokenizer = None
    preprocess: Preprocess = None
    encoding: Encoding = None
    trust: Trust = False


@dataclass(frozen=True)
class How:
    """How a model is explained: the variant and c."""

    c: Sensitivity = "0.5"
    variant: Variant = None  # the default
    netting: Netting = None
    flows: Flows = None
    biases: Biases = None
    norms: Norms = None
    norm_mean: NormMean = None
    attention: Attention = None
    allow_nan: AllowNan = False

    def explainer(self, model: Any, **info: Any) -> CAFE:
        """The explainer of a model. Several values of c start at 0.5."""
        from ..cafe import CAFE

        single = parsing.sensitivity(self.c)
        options = {name: value for name, value in vars(self).items() if name not in ("c", "variant")}
        return CAFE(model, 0.5 if isinstance(single, list) else single, self.variant or "default", **options, **info)

    def __post_init__(self) -> None:
        """Write a note if options of the variant without --variant gave other scores before 0.2."""
        others = ("c", "variant", "allow_nan")
        named = {name: value for name, value in vars(self).items() if name not in others and value is not None}
        if self.variant is not None or not named:
            return
        from .._old_forms import changed_default

        if changed_default(named) is not None:
            words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in named.items())
            typer.echo(
                f"cafexai: note: {words} now starts from the default variant; before 0.2 it started from the paper. For the "
                "new scores without this note, add --variant default. For the old scores, add --variant published.",
                err=True,
            )

    def one_c(self, why: str) -> float:
        """The single c that a command needs; ``why`` ends the error."""
        number = parsing.sensitivity(self.c)
        if isinstance(number, list):
            raise UseProblem(f"--c {self.c}: {why}")
        return float(number)


@dataclass(frozen=True)
class Asked:
    """What is asked of each row: options of ``CAFE.explain``."""

    target: Target = None
    against: Against = None
    output: Output = None
    conflict: Conflict = None
    batch_size: BatchSize = None

    def request(self, classes: tuple[str, ...] | None, **more: Any) -> Request:
        """The request; a target of "all" is left to the caller."""
        from .._engine.request import Request

        target = parsing.output(self.target, "target", classes)
        return Request(
            target=None if target == "all" else target,
            against=parsing.output(self.against, "against", classes),
            output=parsing.part(self.output),
            conflict=self.conflict,
            batch_size=self.batch_size,
            **more,
        )


GROUPS = (Source, How, Asked)


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option for each field of its groups."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hint in GROUPS}
    parameters: dict[str, inspect.Parameter] = {}
    for one in inspect.signature(command).parameters.values():
        if one.name in groups:
            fields = get_type_hints(groups[one.name], include_extras=True)
            for field in dataclasses.fields(groups[one.name]):
                default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
                parameters[field.name] = _parameter(field.name, default, fields[field.name])
        else:
            parameters[one.name] = _parameter(one.name, one.default, hints[one.name])

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return call


def _parameter(name: str, default: Any, hint: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
