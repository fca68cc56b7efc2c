"""A model and data, loaded from files, and what is asked of them."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ..errors import CompletenessError
from ..loading import Data, DataProblem, ModelProblem, load_model, model_inputs, read_data
from ..loading.file_errors import existing
from ..loading.model_inputs import load_function, load_tokenizer
from ..loading.tables import list_names
from ..loading.user_code import describe_error
from . import parsing
from .errors import UseProblem, blame_option
from .options import Asked, How, Source
from .status import Status

if TYPE_CHECKING:
    from .._engine.request import Request
    from ..cafe import CAFE
    from ..explanation import Explanation, Explanations
    from ..monitor import Monitor

WORDS = ("mean", "median", "mode", "background")
ENOUGH = 20  # rows of a table that conflict is ranked among
USUAL = "usual"  # the default baseline: zero, and for texts the mask token


class Encoded(NamedTuple):
    """What methods take: a network behind its preprocessing, rows, their baseline, and which numbers are one feature."""

    model: Any
    x: Any
    baseline: Any  # None for zeros
    groups: Any  # like one row; None if every number is a feature


class Work:
    """The model and the data of a command, loaded one after the other."""

    cafe: CAFE  # the explainer, once rows are explained

    def __init__(self, source: Source, status: Status, rows: str | None = None, baseline: str = USUAL) -> None:
        self.source, self.status = source, status
        status.doing(f"reading {source.data}")
        self.schema = None if source.schema is None else read_schema(source.schema)
        self.all = self.read(source.data, "the data")
        self.data = self.all.take(parsing.rows(rows, len(self.all)))
        status.doing(f"loading {source.model}")
        self.model = load_model(source.model, source.weights, source.trust)
        if self.all.form == "texts" and source.tokenizer is None and not hasattr(self.model, "from_raw"):
            raise UseProblem(f"{source.data}: texts need the tokenizer of the model: --tokenizer FOLDER.")
        self.preprocess = load_function(source.preprocess)
        self.tokenizer = load_tokenizer(source.tokenizer)
        masked = self.all.form == "texts" and getattr(self.tokenizer, "mask_token_id", None) is not None
        self.baseline = baseline if baseline != USUAL else "mask" if masked else "zero"
        self.usual = baseline == USUAL and not masked
        self.inputs, self.shown = self.as_inputs(self.data)
        for note in (*self.all.notes, *self._unused()):
            typer.echo(f"cafexai: note: {note}", err=True)

    def _unused(self) -> list[str]:
        """A note on columns of the table that the model does not take."""
        if self.all.form != "table" or not hasattr(self.inputs, "columns"):
            return []
        names = [name for name in self.all.names if name not in self.inputs.columns]
        return [f"{self.source.data}: not used by the model: {list_names(names)}."] * bool(names)

    def read(self, path: str, what: str) -> Data:
        """The rows of a file, with the columns that were chosen."""
        return read_data(path, parsing.names(self.source.columns), encoding=self.source.encoding, what=what)

    def as_inputs(self, data: Data, path: str | None = None) -> tuple[Any, Any]:
        """Rows in the form that the model takes, and as they are shown."""
        try:
            return model_inputs(self.model, data, schema=self.schema, preprocess=self.preprocess)
        except DataProblem as error:
            raise DataProblem(f"{path or self.source.data}: {str(error).removeprefix('the data: ')}") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """What the outputs are called."""
        own = getattr(self.model, "class_names", ()) if self.schema is None else self.schema.classes
        return tuple(map(str, own or ()))

    @property
    def baselines(self) -> Any:
        """What rows are compared with, and the data that words such as "mean" are about."""
        wanted = self.baseline
        if wanted in ("zero", "mask") and self.tokenizer is not None and self.all.form == "texts":
            return wanted
        if wanted == "mask":
            raise UseProblem(f"--baseline mask: only texts have a mask token, and {self.source.data} holds {self.all.form}.")
        if wanted == "zero":
            return None
        if wanted in WORDS:
            return wanted
        if wanted.startswith("row:"):
            try:
                (place,) = parsing.rows(wanted.removeprefix("row:"), len(self.all))
            except (UseProblem, ValueError):
                last = len(self.all) - 1
                raise UseProblem(f"--baseline {wanted}: give a row of {self.source.data}, row:0 to row:{last}.") from None
            return self.as_inputs(self.all.take([place]))[0]
        if not Path(wanted).exists():
            raise UseProblem(
                f"--baseline {wanted}: it is neither zero, mask, mean, median, mode, background nor row:N, and no file of rows."
            )
        data = self.read(wanted, "the baseline")
        if data.form != self.data.form:
            raise DataProblem(f"--baseline {wanted}: it holds {data.form}, and {self.source.data} {self.data.form}.")
        made = self.as_inputs(data, wanted)[0]
        return made if len(data) == 1 else self._stack_baselines(made)

    def _stack_baselines(self, inputs: Any) -> Any:
        """Several baselines, to average over: one more dimension in front."""
        if isinstance(inputs, list):
            raise DataProblem(f"--baseline {self.baseline}: give one text.")
        if self.schema is not None:
            inputs = self.schema.encode(inputs)
        elif hasattr(inputs, "columns"):
            inputs = inputs.to_numpy(dtype=object if hasattr(self.model, "from_raw") else "float64")
        stacks = tuple(part[:, None] for part in (inputs if isinstance(inputs, tuple) else (inputs,)))
        return stacks if len(stacks) > 1 else stacks[0]

    def background(self) -> Any:
        """The data that "mean", "median", "mode" and "background" are about; rows that the schema refuses are no background."""
        if self.baseline not in WORDS:
            return None
        data, schema = self.all, self.schema
        if self.baseline == "background" and schema is not None and schema.names and set(schema.names) <= set(data.names):
            bad = schema.check(data.rows)
            good = [place for place in range(len(data)) if place not in bad]
            data = data.take(good) if good else data
        return self.as_inputs(data)[0]

    def explain(self, how: How, asked: Asked) -> Explanation | Explanations:
        """The scores of the chosen rows; for several c or all classes, several explanations."""
        from .._engine.request import Question
        from ..explanation import Explanation

        c = parsing.sensitivity(how.c)
        if self.usual and self.all.form == "table" and len(self.all) > 1 and (self.schema is not None or self.is_pipeline):
            self.baseline = "background"  # in columns that people know, zero says nothing
        baselines, background = self.baselines, self.background()
        if baselines is None and self.all.form == "table":
            baselines = "zero"  # it was asked for
        request = asked.request(self.classes, baselines=baselines, display=self.shown)
        question = Question(every_class=asked.target == "all", several_c=tuple(c) if isinstance(c, list) else None)
        self.status.doing(f"explaining {len(self.data)} row{'s' * (len(self.data) != 1)}")

        def call() -> Any:
            cafe = how.explainer(self.model, background=background, schema=self.schema, tokenizer=self.tokenizer)
            self.cafe = cafe
            found = cafe._explain(self.inputs, request, question)
            return self._rank_conflict(found, cafe, request) if isinstance(found, Explanation) else found

        return self.guard(call).replace(row_names=self.data.labels)

    def hidden(self, found: Any) -> Any:
        """Hidden conflicts of explained rows; how many evaluations they take is said before they run."""
        from .._engine.hidden_conflicts import count_compared
        from .._engine.pair_conflicts import count_evaluations
        from ..explanation import Explanation
        from ..explanation.hidden_conflicts import hidden_price

        if not isinstance(found, Explanation):
            raise UseProblem("--hidden: it takes one explanation. Give one --c, and one --target.")
        count = count_evaluations(count_compared(len(found.names())))
        typer.echo(f"cafexai: {hidden_price(count, len(found))}", err=True)
        self.status.doing("looking for hidden conflicts")
        return self.guard(lambda: self.cafe.hidden_conflicts(found))

    def _rank_conflict(self, found: Explanation, cafe: CAFE, request: Request) -> Explanation:
        """The explanation with the rank of its conflict among rows of the table, which are explained once for that."""
        if self.all.form != "table" or len(self.all) < ENOUGH or found.conflict_kind != "measured":
            return found
        self.status.doing("explaining rows of the table, to rank conflict")
        whole = cafe.replace(background=self.as_inputs(self.all)[0])
        single = request.target if isinstance(request.target, (int, str)) else None
        options = {"baselines": "zero" if request.baselines is None else request.baselines, "against": request.against}
        scale = whole.conflict_scale(single, output=request.output, show_progress=False, **options)
        scale = dataclasses.replace(scale, among="rows of the data")
        with contextlib.suppress(ValueError):  # rows that the schema refuses are in the table, not in the background
            found = found.rank_conflict(scale)
        return found

    @property
    def is_pipeline(self) -> bool:
        """The model has a preprocessing step of its own."""
        return hasattr(self.model, "from_raw")

    def as_tensors(self) -> Any:
        """The chosen rows as tensors."""
        from .._inputs.prepare import prepare

        return self.guard(lambda: prepare(self.inputs, self.model, schema=self.schema))

    def encode(self) -> Encoded:
        """The chosen rows as the one tensor that methods take, behind the preprocessing of the model or schema."""
        from .._inputs.baselines import references
        from .._inputs.prepare import takes_raw

        given = self.as_tensors()
        if len(given.tensors) > 1:
            raise DataProblem(f"{self.source.data}: methods are compared on one input, and these are {len(given.tensors)}.")
        x, wanted, background = given.tensors[0], self.baselines, self.background()
        stack = [None] if wanted is None else self.guard(lambda: references(wanted, given, background, self.model))
        if len(stack) > 1:
            raise UseProblem(f"--baseline {self.baseline}: methods take one baseline; give a file of one row.")
        groups = None if given.grouping is None else given.grouping.index.reshape(x.shape[1:])
        return Encoded(
            self.model.network if takes_raw(self.model) else self.model, x, None if stack[0] is None else stack[0][0], groups
        )

    def target(self, text: str | None, encoded: Encoded) -> Any:
        """The output that --target names, as its index where it is a class."""
        from .._engine.diagnose import answer
        from .._inputs.target import class_index

        wanted = parsing.output(text, "target", self.classes)
        if wanted == "all":
            raise UseProblem("--target all: methods are compared on one output of each row; name it, or leave --target out.")
        if wanted not in self.classes:
            return wanted
        first = self.guard(lambda: answer("compare", encoded.model, encoded.x[:1]))
        return self.guard(lambda: class_index(wanted, self.classes, first.shape[1:], "compare"))

    def supported(self) -> Any:
        """Which calls of the model have rules."""
        from .._engine.support import supported
        from .._inputs.convert import convert_inputs
        from .._inputs.prepare import by_schema

        def call() -> Any:
            known = convert_inputs(self.inputs, None, self.tokenizer, None, None, hasattr(self.model, "from_raw"))
            rows = known.inputs if self.schema is None else by_schema(known.inputs, self.schema, "supported(frame)")
            return supported(self.model, rows, known.extra)

        return self.guard(call)

    def guard(self, call: Callable[[], Any]) -> Any:
        """What a call of ours returns; its errors are about options, or about the data."""
        return guard_call(call, self.source.model, self.source.data, self.data.form == "table")


def guard_call(call: Callable[[], Any], model: str, data: str, table: bool = True) -> Any:
    """What a call of ours about this model and these data returns; its errors are told as theirs, or as those of options."""
    try:
        return call()
    except ValueError as error:
        told = blame_option(error, data)
        if table and "does not take inputs" in str(told):
            told = DataProblem(f"{told} Choose the columns that it takes by --columns.")
        raise told from error
    except AssertionError as error:
        if "Guard failed" not in str(error):
            raise
        raise ModelProblem(
            f"{model}: it was exported for rows of another number or shape ({error}). Explain as many at a time "
            "(--batch-size 1), or export it with dynamic_shapes."
        ) from error
    except (TypeError, RuntimeError, AttributeError, IndexError, KeyError) as error:
        if isinstance(error, CompletenessError) or _inside(error):
            raise
        raise ModelProblem(f"{model}: running it on {data} failed: {describe_error(error)}.") from error


def load_monitor(path: Path, cafe: CAFE, request: Request | None = None) -> Monitor:
    """The monitor of a file, if it is of this explainer, and of the target and baselines of a request."""
    from ..monitor import Monitor

    existing(path, DataProblem, "the monitor")
    made: Monitor = guard_call(lambda: Monitor.load(path, cafe), str(path), str(path))
    if request is not None and not made.is_of(request.target, request.baselines):
        raise UseProblem(f"--monitor {path}: it was fitted with another --target or --baseline. Give the same.")
    return made


def _inside(error: Exception) -> bool:
    """It was raised by this library, not by the model or by torch."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(Path(__file__).parent.parent)


def read_schema(path: Path) -> Any:
    """The schema of a TOML file."""
    from ..schema import Schema

    try:
        return Schema.read(path)
    except ValueError as error:
        raise UseProblem(f"--schema {path}: {str(error).partition(': ')[2]}") from error


def schema_text(source: Source) -> str:
    """What the columns are taken for, in the form of a file for --schema."""
    from ..schema import Schema

    data = read_data(source.data, parsing.names(source.columns), encoding=source.encoding)
    if data.form != "table":
        raise DataProblem(f"{source.data}: a schema describes the columns of a table, and these are {data.form}.")
    if source.schema is not None:
        schema = read_schema(source.schema)
    else:
        filled = [name for name in data.names if data.kinds[name] != "nothing"]
        schema = Schema.from_frame(data.rows[filled])
    missing = data.rows.isna().sum()
    gaps = [f"# {name}: {count} of {len(data)} values are missing" for name, count in missing.items() if count]
    with tempfile.TemporaryDirectory() as folder:
        schema.write(Path(folder) / "schema.toml")
        text = (Path(folder) / "schema.toml").read_text(encoding="utf-8")
    return "\n".join([f"# {source.data}: {len(data)} rows", *gaps, "", text.rstrip("\n")])
