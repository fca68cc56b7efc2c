"""The Open Inference Protocol (version 2): rows as named tensors, scores as named tensors. Pure conversions, no server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .bodies import Limits, Refusal, asked_of
from .rows import Answerer, Asked, Result, Row

NUMBERS = {"FP16": 65520.0, "FP32": 3.4028235677973366e38, "FP64": math.inf}  # what rounds to infinity
INTEGERS = {f"INT{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)}
INTEGERS |= {f"UINT{bits}": range(2**bits) for bits in (8, 16, 32, 64)}
MOST = 16  # dimensions of a tensor
SINGLE = (
    "output baseline_output bias_positive bias_negative bias conflict conflict_share s_conf probability".split()
)  # one number a row
SCORES = ("positive", "negative", "net")  # one number for each feature


def metadata_of(name: str, version: str, answerer: Answerer) -> dict[str, Any]:
    """What a model takes and gives."""
    schema = answerer.cafe.schema
    words = set() if schema is None else {column.name for column in schema.columns if column.kind != "number"}
    if answerer.columns is None:
        inputs = [{"name": "rows", "datatype": "FP64", "shape": [-1, -1]}]
    else:
        kinds = {column: "BYTES" if column in words else "FP64" for column in answerer.columns}
        inputs = [{"name": column, "datatype": kind, "shape": [-1]} for column, kind in kinds.items()]
    single = [one for one in SINGLE if one != "probability" or answerer.cafe.probability is not None]
    outputs = [{"name": one, "datatype": "FP64", "shape": [-1]} for one in single]
    outputs += [{"name": one, "datatype": "FP64", "shape": [-1, -1]} for one in SCORES]
    outputs += [
        {"name": "features", "datatype": "BYTES", "shape": [-1, -1]},
        {"name": "target", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "conflict_kind", "datatype": "BYTES", "shape": [-1]},
    ]
    return {"name": name, "versions": [version], "platform": "cafexai", "inputs": inputs, "outputs": outputs}


def rows_of_tensors(body: Any, answerer: Answerer, limits: Limits) -> tuple[list[Row], Asked, list[str] | None]:
    """The rows of an inference request, what is asked of them, and which outputs are wanted (None: all).

    A request has one tensor for each column, of shape [rows] or [rows, 1], or a single one of shape [rows, columns].
    """
    if not isinstance(body, dict) or not isinstance(body.get("inputs"), list) or not body["inputs"]:
        raise Refusal(400, 'send {"inputs": [{"name": ..., "shape": ..., "datatype": ..., "data": ...}]}')
    given = {}
    for one in body["inputs"]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or one["name"] in given:
            raise Refusal(400, "each of the inputs is an object with a name of its own")
        given[one["name"]] = _tensor(one)
    counts = {shape[0] for shape, _ in given.values()}
    if len(counts) > 1 or not 1 <= min(counts) <= limits.rows:
        raise Refusal(400, f"inputs of {sorted(counts)} rows; send the same number for all, 1 to {limits.rows}")
    (count,) = counts
    wanted = body.get("outputs")
    if wanted is not None and not (
        isinstance(wanted, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in wanted)
    ):
        raise Refusal(400, 'outputs is a list of {"name": ...}')
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise Refusal(400, "parameters is an object")
    return (
        _rows(given, count, answerer.columns),
        asked_of(parameters),
        None if wanted is None else [one["name"] for one in wanted],
    )


def _rows(given: Mapping[str, tuple[list[int], list[Any]]], count: int, columns: Sequence[str] | None) -> list[Row]:
    if len(given) == 1:
        ((name, (shape, values)),) = given.items()
        width = math.prod(shape[1:])
        if (len(shape) == 2 and name not in (columns or ())) or (columns is None and len(shape) == 1):
            return [values[row * width : (row + 1) * width] for row in range(count)]
    if columns is not None and set(given) == set(columns):
        wrong = next((name for name, (shape, _) in given.items() if math.prod(shape[1:]) != 1), None)
        if wrong is not None:
            raise Refusal(400, f"the tensor {wrong!r} is of shape {given[wrong][0]}; a column is of shape [{count}]")
        return [{name: values[row] for name, (_, values) in given.items()} for row in range(count)]
    told = f"one tensor for each of {', '.join(map(repr, columns[:20]))}, or " if columns is not None else ""
    raise Refusal(
        400, f"the tensors are {', '.join(map(repr, list(given)[:20]))}; send {told}a single one of shape [rows, columns]"
    )


def _tensor(one: Mapping[str, Any]) -> tuple[list[int], list[Any]]:
    name, kind, shape = one["name"], one.get("datatype"), one.get("shape")
    good = isinstance(shape, list) and 0 < len(shape) <= MOST and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    if not isinstance(shape, list) or not good:
        raise Refusal(400, f"the shape of {name!r} is no list of sizes")
    values = _flat(one.get("data"), name)
    if len(values) != math.prod(shape):
        raise Refusal(400, f"{name!r} has {len(values)} values, and its shape {shape} has {math.prod(shape)}")
    if kind in NUMBERS:
        good = all(type(value) in (int, float) and abs(value) < NUMBERS[kind] for value in values)
    elif kind in INTEGERS:
        good = all(type(value) is int and value in INTEGERS[kind] for value in values)
    elif kind in ("BOOL", "BYTES"):
        good = all(type(value) is (bool if kind == "BOOL" else str) for value in values)
    else:
        raise Refusal(
            400, f"the datatype of {name!r} is {str(kind)[:40]!r}; allowed are FP16 to FP64, INT8 to UINT64, BOOL and BYTES"
        )
    if not good:
        raise Refusal(400, f"{name!r} holds values that are not {kind}")
    return shape, values


def _flat(data: Any, name: str) -> list[Any]:
    """Values of a tensor, which may be nested or not."""
    if not isinstance(data, list):
        raise Refusal(400, f"{name!r} has no list of data; tensors of other forms are not taken here")
    while any(isinstance(one, list) for one in data):
        if not all(isinstance(one, list) for one in data):
            raise Refusal(400, f"the data of {name!r} are nested unevenly")
        data = [value for one in data for value in one]
    return data


def outputs_of(results: Sequence[Result], wanted: Sequence[str] | None) -> list[dict[str, Any]]:
    """Scores as tensors."""
    count = len(results)
    made = {name: _output(name, "FP64", [count], [result[name] for result in results]) for name in SINGLE if name in results[0]}
    width = len(results[0]["features"])
    for name in SCORES:
        made[name] = _output(name, "FP64", [count, width], [one[name] for result in results for one in result["features"]])
    made["features"] = _output(
        "features", "BYTES", [count, width], [one["name"] for result in results for one in result["features"]]
    )
    targets = [target if isinstance(target := result["target"], list) else [target] for result in results]
    made["target"] = _output("target", "INT64", [count, len(targets[0])], [place for one in targets for place in one])
    for name in ("target_name", "conflict_kind"):
        if name in results[0]:
            made[name] = _output(name, "BYTES", [count], [result[name] for result in results])
    if wanted is None:
        return list(made.values())
    if unknown := [name for name in wanted if name not in made]:
        raise Refusal(400, f"there is no output {str(unknown[0])[:60]!r}; there are {', '.join(made)}")
    return [made[name] for name in wanted]


def _output(name: str, kind: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": kind, "shape": shape, "data": data}
