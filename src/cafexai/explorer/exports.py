"""Exports: a report, scores as a file, and the lines of Python that make the same explanation."""

from __future__ import annotations

import datetime
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._core.variant import Variant
from .._extras import needs
from ..adapters.exports import storable
from ..reporting import report_page
from .requests import BACKGROUND, TYPICAL, Choice, Refused
from .rows import Edits
from .session import Session

REPORT, SCORES = 500, 20_000  # rows of a file


def report(session: Session, places: Sequence[int], choice: Choice, edits: Edits) -> bytes:
    """The report of some rows; one row may be changed."""
    _not_too_many(places, REPORT, "a report")
    e = session.explain(places, choice, edits)
    names = [session.rows.name(place) + (", changed" if edits else "") for place in places]
    data = f"{session.title}, {len(places)} of {len(session.rows)} rows; compared with the baseline {choice.baseline}"
    return report_page(e, title=f"{session.title} explained", model=session.cafe.model, data=data, row_names=names).encode()


def scores(session: Session, places: Sequence[int], choice: Choice, edits: Edits, ending: str) -> bytes:
    """The long table of scores as CSV or Parquet, with the rows as they are numbered in the file."""
    _not_too_many(places, SCORES, "a file of scores")
    frame = session.explain(places, choice, edits).to_frame()
    frame["row"] = [session.rows.data.places[places[row]] for row in frame["row"]]
    if ending == "csv":
        return bytes(frame.to_csv(index=False).encode())
    needs("pyarrow", "parquet")
    buffer = io.BytesIO()
    storable(frame).to_parquet(buffer, index=False)
    return buffer.getvalue()


def _not_too_many(places: Sequence[int], most: int, what: str) -> None:
    if not places:
        raise Refused("No row is chosen.", "rows")
    if len(places) > most:
        raise Refused(f"At most {most} rows go into {what}; these are {len(places)}. Filter them first.", "rows")


def command(session: Session, places: Sequence[int], choice: Choice) -> str:
    """The command line that explains the same rows; "" where the session was not begun by one."""
    sources = session.sources
    if "model" not in sources:
        return ""
    words = ["cafexai", "explain", sources["model"], sources["data"]]
    words += [word for name in OPTIONS if (value := sources.get(name)) for word in (f"--{name}", value)]
    rows = session.rows
    if rows.label is not None and rows.data.form == "table" and not (sources.get("columns") or sources.get("schema")):
        words += ["--columns", ",".join(rows.columns)]  # all but the label, which explain does not know
    words += ["--trust"] if sources.get("trust") else []
    words += ["--rows", ",".join(map(str, places)), "--c", f"{choice.c:g}", "--baseline", choice.baseline]
    words += [word for name, value in _variant(session, choice) for word in (f"--{name.replace('_', '-')}", value)]
    for name in ("target", "against"):
        value = getattr(choice, name)
        words += [] if value is None else [f"--{name}", str(value)]
    return shlex.join(words)


def _variant(session: Session, choice: Choice) -> list[tuple[str, str]]:
    """The variant and, if it is a custom one, its options, by name."""
    if choice.variant != "custom":
        return [("variant", choice.variant)]
    return [("variant", "default"), *session.variants["custom"].changes_from(Variant()).items()]


OPTIONS = ("weights", "schema", "columns", "encoding", "tokenizer", "preprocess", "output")


def python_lines(session: Session, places: Sequence[int], choice: Choice, edits: Edits) -> str:
    """Python that gives the same numbers; "" for data or models that take more than a few lines to read."""
    rows = session.rows
    if rows.data.form != "table" or edits.get("regions") or edits.get("struck"):
        return ""
    own = "model" in session.sources
    start = (
        _loading(session.sources, session.takes_raw) if own else ["# cafe and frame: what was given to explore(cafe, frame)"]
    )
    if not start:
        return ""
    lines = [*start, f"rows = frame[{list(rows.columns)!r}].iloc[{list(places)!r}].copy()"]
    lines += [f"rows[{name!r}] = {_write_value(value)}" for name, value in edits.get("cells", {}).items()]
    settings = [f"model, {choice.c!r}", *(f"{name}={value!r}" for name, value in _variant(session, choice))]
    baseline = "None" if session.cafe.background is None else "'zero'"  # None may stand for the background
    if choice.baseline.startswith("row:"):
        baseline = f"frame[{list(rows.columns)!r}].iloc[[{choice.baseline.removeprefix('row:')}]]"
    elif choice.baseline != "zero":
        baseline = repr(choice.baseline)
        settings.append(f"background=frame[{list(rows.columns)!r}]")
    if session.sources.get("schema"):
        settings.append("schema=schema")
    if not own:
        settings[0] = settings[0].replace("model", "cafe.model", 1)
        known = (("schema", "cafe.schema"), ("class_names", "cafe.class_names or None"), ("probability", "cafe.probability"))
        settings += [f"{name}={value}" for name, value in (*known, ("feature_names", "cafe.feature_names"))]
        settings = [one for one in settings if not one.startswith("background")]
        settings += ["background=cafe.background"] if session.cafe.background is not None else []
        if choice.baseline in (BACKGROUND, *TYPICAL) and session.cafe.background is None:
            settings.append(f"background=frame[{list(rows.columns)!r}]")
    asked = ["rows", baseline, *(f"{n}={v!r}" for n in ("target", "against") if (v := getattr(choice, n)) is not None)]
    lines.append(f"e = CAFE({', '.join(settings)}).explain({', '.join(asked)})")
    return "\n".join([*lines, "print(e.ledger())"])


def _write_value(value: Any) -> str:
    """A cell as Python writes it."""
    if isinstance(value, datetime.date):
        return f"pandas.Timestamp({str(value)!r})"
    return repr(value.item() if hasattr(value, "item") else value)


def _loading(sources: dict[str, str], pipeline: bool) -> list[str]:
    """Model and data as the command reads them, in a few lines; empty where that takes more."""
    spec, data = sources["model"], sources["data"]
    kept = pipeline and spec.endswith((".joblib", ".pkl"))
    if sources.get("encoding") or not (kept or (":" in Path(spec).name and not spec.partition(":")[0].endswith(".py"))):
        return []
    return [*(_load_pipeline(spec, kept) if pipeline else _load_network(spec, sources)), *_read_table(data, sources)]


def _load_pipeline(spec: str, kept: bool) -> list[str]:
    """A model of scikit-learn, in a file or made by a function."""
    module, _, name = spec.rpartition(":")
    top = name.split(".")[0]
    imports = ["import joblib", "import pandas"] if kept else ["import pandas"]
    imports += ["from cafexai import CAFE, Schema, from_sklearn"] + ([] if kept else [f"from {module} import {top}"])
    made = f"joblib.load({spec!r})" if kept else f"{name} if hasattr({name}, 'predict') else {name}()"
    return [*imports, "", f"model = from_sklearn({made})"]


def _read_table(data: str, sources: dict[str, str]) -> list[str]:
    reader = "parquet" if data.endswith(".parquet") else "csv"
    lines = [f"frame = pandas.read_{reader}({data!r})"]
    return [*lines, f"schema = Schema.read({sources['schema']!r})"] if sources.get("schema") else lines


def _load_network(spec: str, sources: dict[str, str]) -> list[str]:
    """A module of torch, made by a function."""
    module, _, name = spec.rpartition(":")
    top = name.split(".")[0]
    lines = ["import pandas", "import torch", "from cafexai import CAFE, Schema", f"from {module} import {top}", ""]
    lines.append(f"model = {name}() if not isinstance({name}, torch.nn.Module) else {name}")
    weights = sources.get("weights", "")
    if weights.endswith(".safetensors"):
        lines.insert(2, "from safetensors.torch import load_file")
        lines.append(f"model.load_state_dict(load_file({weights!r}))")
    elif weights:
        lines.append(f"model.load_state_dict(torch.load({weights!r}, weights_only=True))")
    return [*lines, "model.eval()"]
