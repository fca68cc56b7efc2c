"""Results as text, JSON and files, which are written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._extras import needs
from ..loading.file_errors import OutputProblem
from .errors import UseProblem

if TYPE_CHECKING:
    from ..explanation import Explanation, Explanations, HiddenConflicts
    from ..loading import Data

SHOWN = 3  # rows on the terminal


def check_out(out: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse, before any work is done, a file that could not be written in the end."""
    if out is None:
        return
    if out.suffix.lower() not in endings:
        raise UseProblem(f"--out {out}: the ending says what is written; let it be {', '.join(endings[:-1])} or {endings[-1]}.")
    folder = out.resolve().parent
    if not folder.is_dir():
        raise OutputProblem(f"--out {out}: there is no folder {folder}. Make it first.")
    if out.exists() and not out.is_file():
        raise OutputProblem(f"--out {out}: something that is no regular file is there, and is not replaced. Give another name.")
    try:
        part = out.resolve().with_name(f"{out.name}.{secrets.token_hex(4)}.part")
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise OutputProblem(
            f"--out {out}: the folder {folder} cannot be written to ({error.strerror}). Give another."
        ) from error


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """What goes wrong with the file is told as such."""
    try:
        yield
    except OSError as error:
        raise OutputProblem(f"--out {out}: it cannot be written ({error.strerror or error}).") from error


def write_out(out: Path, write: Callable[[Path], Any]) -> None:
    """The file as ``write`` makes it beside its place; an old one stays until the new one is complete."""
    from .._files import replace_file

    with writing(out):
        replace_file(out, f"--out {out}", lambda part: write(Path(part)))


def write_text(out: Path, text: str) -> None:
    """A file of text in UTF-8."""
    write_out(out, lambda part: part.write_text(text, encoding="utf-8"))


def write_frame(out: Path, frame: Any) -> None:
    """A table as CSV or Parquet."""
    if out.suffix.lower() == ".parquet":
        from .._extras import needs
        from ..adapters.exports import storable

        needs("pyarrow", "parquet")
        write_out(out, lambda part: storable(frame).to_parquet(part, index=False))
    else:
        write_out(out, lambda part: frame.to_csv(part, index=False))


def as_json(value: Any) -> str:
    """JSON that every reader takes: what is no number is null."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def each(result: Explanation | Explanations) -> Iterator[tuple[dict[str, Any], Explanation]]:
    """Every explanation, with what it is of where there are several."""
    from ..explanation import Explanation

    if isinstance(result, Explanation):
        yield {}, result
        return
    for key, explanation in result.items():
        yield dict(zip(result.by, key if len(result.by) > 1 else (key,), strict=True)), explanation


def to_frame(result: Any, data: Data) -> Any:
    """The long table, with the rows as they are numbered in the file, and their names if they have some."""
    frame = result.to_frame()
    frame["row"] = [data.places[row] for row in frame["row"]]
    return frame


def reasons(result: Any, data: Data, count: int, direction: str) -> Any:
    """The reasons of all rows, with the rows as they are numbered in the file."""
    frames = []
    for key, explanation in each(result):
        frame = explanation.reasons_frame(count, direction)
        frame["row"] = [data.places[row] for row in frame["row"]]
        for place, (word, value) in enumerate((word, value) for word, value in key.items() if word != "target"):
            frame.insert(place, word, value)
        frames.append(frame)
    return needs("pandas", "tabular").concat(frames, ignore_index=True)


def reason_lines(frame: Any, rows: int | None = None) -> str:
    """Reasons for people: a line for the row, below it a sentence each; the first rows only if there are more on a terminal."""
    keys = list(frame.columns[: list(frame.columns).index("rank")])
    parts = []
    for place, (key, group) in enumerate(frame.groupby(keys, sort=False)):
        if rows is not None and place == SHOWN:
            parts.append(
                f"{rows - SHOWN} more row{'s' * (rows - SHOWN != 1)}: --rows chooses others, --out reasons.csv writes all."
            )
            break
        told = dict(zip(keys, key, strict=True))
        label = f" ({told['name']})" if "name" in told else ""
        parts.append(
            "\n".join([f"Row {told['row']}{label}", *(f"  {line.rank}. {line.reason}" for line in group.itertuples())])
        )
    return "\n\n".join(parts) if parts else "No feature moved the score in this direction."


def to_json(result: Any, data: Data, about: dict[str, Any]) -> dict[str, Any]:
    """All numbers of an explanation for machines."""
    rows = []
    first = None
    for key, explanation in each(result):
        first = explanation if first is None else first
        rows += [_row(explanation, row, data, key) for row in range(len(explanation))]
    assert first is not None
    settings = dict(first.meta.settings)
    if hasattr(result, "by") and "c" in result.by:
        settings.pop("c")  # it is in the rows
    return {
        "cafexai": __version__,
        **about,
        "settings": settings,
        "frozen": first.frozen,
        "notes": first.notes,
        "output_error": first.checks.output_error,
        "rows": rows,
    }


def _row(explanation: Explanation, row: int, data: Data, key: dict[str, Any]) -> dict[str, Any]:
    one = explanation[row]
    target = one.target[0].tolist()
    names = one.names()
    numbers = (one.flat(part)[0].tolist() for part in (one.positive, one.negative, one.combined))
    columns: dict[str, Any] = dict(zip(("positive", "negative", "net"), numbers, strict=True))
    values = one.values()
    if values is not None:
        columns = {"value": values, **columns}
    if one.refinement is not None:
        columns["refined"] = one.flat(one.refined)[0].tolist()
    features = [
        {"name": name, **{word: numbers[place] for word, numbers in columns.items()}}
        for place, name in enumerate(names)
        if name != ""
    ]
    called = {} if one.class_names is None or len(target) != 1 else {"class": _class(one.class_names, target[0])}
    return {
        "row": data.places[row],
        **({} if data.labels is None else {"name": data.labels[row]}),
        **{word: value for word, value in key.items() if word != "target"},
        "target": target[0] if len(target) == 1 else target,
        **called,
        "output": one.output.item(),
        **({} if one.probability is None else {"probability": one.probability.item()}),
        "baseline_output": one.baseline_output.item(),
        "conflict": one.conflict.item(),
        "conflict_share": one.conflict_share.item(),
        "conflict_kind": one.conflict_kind,
        "s_conf": one.s_conf.item(),
        "completeness_error": one.completeness_error.item(),
        "bias": {"positive": one.bias_positive.item(), "negative": one.bias_negative.item(), "net": one.bias.item()},
        "features": features,
    }


def _class(names: tuple[str, ...], place: int) -> str | None:
    return names[place] if place < len(names) else None


def ledgers(result: Any, data: Data, most: int | None = None, hidden: HiddenConflicts | None = None) -> str:
    """Row after row as a table that adds up, with hidden conflicts if they were looked for."""
    from ..explanation.hidden_conflicts import NONE_HIDDEN

    parts = []
    for key, explanation in each(result):
        for row in range(len(explanation) if most is None else min(most, len(explanation))):
            what = "".join(f", {word} = {value}" for word, value in key.items())
            told = [] if hidden is None else [*(hidden.sentences(row) or [NONE_HIDDEN]), f"Held against {hidden.against}."]
            parts.append("\n".join([f"Row {data.places[row]}{what}", explanation.ledger(row), *told]))
    return "\n\n".join(parts)


def table(frame: Any) -> str:
    """A small frame for a terminal."""
    return str(frame.to_string(index=False, float_format=lambda number: f"{number:.4g}"))
