"""The server described for programs: OpenAPI, with the columns of the model as typed properties."""

from __future__ import annotations

from typing import Any

from .rows import Answerer

Described = dict[str, Any]


def document(version: str, name: str, answerer: Answerer, rows: int) -> Described:
    """What can be asked, and what is answered."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "cafexai", "version": version, "description": "Conflict-aware scores of single rows."},
        "paths": {
            "/v1/explain": {"post": _explain("rows", "results", rows)},
            f"/v1/models/{name}:explain": {"post": _explain("instances", "explanations", rows)},
            "/": {"get": _read("Whether the server runs (KServe).")},
            "/v1/models": {"get": _read("The models (KServe).")},
            f"/v1/models/{name}": {"get": _state("Whether the model is ready (KServe).")},
            "/v2": {"get": _read("The server (Open Inference Protocol).")},
            "/v2/health/live": {"get": _read("Whether the server runs.")},
            "/v2/health/ready": {"get": _state("Whether more requests are welcome; not while it drains.")},
            f"/v2/models/{name}": {"get": _read("Inputs and outputs of the model (Open Inference Protocol).")},
            f"/v2/models/{name}/ready": {"get": _state("Whether the model is ready (Open Inference Protocol).")},
            f"/v2/models/{name}/infer": {"post": _infer()},
            "/health": {"get": _read("The state, and fingerprints of what answers.")},
            "/metrics": {"get": _read("Counts, for Prometheus.", "text/plain", {"type": "string"})},
            "/openapi.json": {"get": _read("This document.")},
        },
        "components": {"schemas": _schemas(answerer)},
    }


def _schemas(answerer: Answerer) -> Described:
    error = _object({"error": {"type": "string"}, "request_id": {"type": "string"}})
    tensor = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
            "datatype": {"type": "string"},
            "data": {"type": "array"},
            "parameters": {"type": "object"},
        },
        "required": ["name", "shape", "datatype", "data"],
    }
    parts = {name: {"type": "string"} for name in ("id", "model", "schema", "baseline", "settings")}
    return {
        "Row": {"oneOf": [_by_name(answerer), _in_order(answerer)]},
        "Result": _result(),
        "RowError": _object({"error": {"type": "string"}}),
        "Error": error,
        "Tensor": tensor,
        "Fingerprint": _object(parts),
    }


def _by_name(answerer: Answerer) -> Described:
    """A row as an object: one property for each column."""
    told = "Values by the name of the column."
    if answerer.columns is None:
        return {"type": "object", "description": told}
    example = _example(answerer)
    described = _object({name: _cell(answerer, name) for name in answerer.columns})
    return {**described, "description": told, "examples": [example]}


def _in_order(answerer: Answerer) -> Described:
    """A row as a list."""
    told: Described = {"type": "array", "description": "Values in the order of the columns."}
    if answerer.columns is None:
        return told
    cells = [_cell(answerer, name) for name in answerer.columns]
    size = len(cells)
    return {**told, "prefixItems": cells, "minItems": size, "maxItems": size, "examples": [list(_example(answerer).values())]}


def _cell(answerer: Answerer, name: str) -> Described:
    schema = answerer.cafe.schema
    column = None if schema is None else next(one for one in schema.columns if one.name == name)
    if column is None and answerer.raw:
        return {}  # a fitted pipeline knows what it takes
    if column is None or column.kind == "number":
        return {"type": "number"}
    return {"type": "string", "enum": list(column.labels)}


def _example(answerer: Answerer) -> dict[str, Any]:
    """A first row of the background, or values that are allowed."""
    names, background = answerer.columns or (), answerer.cafe.background
    if hasattr(background, "iloc") and len(background) and set(names) <= set(map(str, background.columns)):
        first = background.iloc[0]
        return {name: one.item() if hasattr(one := first[name], "item") else one for name in names}
    cells = {name: _cell(answerer, name) for name in names}
    return {name: cell["enum"][0] if "enum" in cell else 0.0 for name, cell in cells.items()}


def _explain(key: str, answer: str, rows: int) -> Described:
    asked = _object({key: {"type": "array", "minItems": 1, "maxItems": rows, "items": _ref("Row")}})
    asked["properties"] |= _options()
    answered = _object({answer: {"type": "array", "items": _ref("Result")}, "fingerprint": _ref("Fingerprint")})
    some = _object(
        {
            answer: {"type": "array", "items": {"oneOf": [_ref("Result"), _ref("RowError")]}},
            "fingerprint": _ref("Fingerprint"),
            "failed": {"type": "array", "items": {"type": "integer"}},
        }
    )
    return {
        "summary": "Scores of rows, one result for each, in their order. A row that cannot be explained gets the reason.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": asked}}},
        "responses": {
            "200": _said("The results.", answered),
            "207": _said("Some rows could not be explained: `failed` are their places.", some),
            "422": _said(
                "The body is JSON, but no rows; or no row could be explained.", {"type": "object", "required": ["error"]}
            ),
            **_refusals(),
        },
    }


def _options() -> Described:
    output: Described = {"type": ["integer", "string", "array", "null"]}
    return {
        "target": {**output, "description": "The output to explain: its index, a list of indices, or the name of a class."},
        "against": {**output, "description": "Explain the difference between the target and this output."},
        "top": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "Answer with so many features only: those with the largest net scores, up or down.",
        },
    }


def _infer() -> Described:
    tensors = {"type": "array", "minItems": 1, "items": _ref("Tensor")}
    asked: Described = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "inputs": tensors,
            "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
            "parameters": {"type": "object", "properties": _options()},
        },
        "required": ["inputs"],
    }
    text = {"type": "string"}
    answered = _object({"model_name": text, "model_version": text, "outputs": tensors, "parameters": {"type": "object"}})
    answered["properties"]["id"] = text
    return {
        "summary": "Scores as tensors: one tensor for each column goes in, or one of shape [rows, columns].",
        "requestBody": {"required": True, "content": {"application/json": {"schema": asked}}},
        "responses": {
            "200": _said("The scores.", answered),
            "422": _said("A row could not be explained.", _ref("Error")),
            **_refusals(),
        },
    }


def _refusals() -> Described:
    reasons = {
        400: "The body is no JSON.",
        403: "A page of another site asks.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        415: "The body is not said to be JSON.",
        421: "This address is not served here.",
        500: "A fault of the server.",
        503: "Too much is asked at the moment.",
    }
    return {str(status): _said(reason, _ref("Error")) for status, reason in reasons.items()}


def _result() -> Described:
    number = {"type": "number"}
    feature = _object({"name": {"type": "string"}, "positive": number, "negative": number, "net": number})
    single = ("output", "baseline_output", "bias_positive", "bias_negative", "bias", "conflict", "conflict_share", "s_conf")
    target = {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}
    kind = {"type": "string", "enum": ["measured", "net"]}
    made = _object(
        dict.fromkeys(single, number)
        | {"conflict_kind": kind, "target": target, "features": {"type": "array", "items": feature}}
    )
    made["properties"] |= {"probability": number, "target_name": {"type": "string"}}
    return made


def _read(summary: str, kind: str = "application/json", schema: Described | None = None) -> Described:
    content = {kind: {"schema": schema or {"type": "object"}}}
    return {"summary": summary, "responses": {"200": {"description": summary, "content": content}}}


def _state(summary: str) -> Described:
    found = _read(summary)
    found["responses"]["503"] = _said("Not any more.", {"type": "object"})
    return found


def _said(description: str, schema: Described) -> Described:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(properties: Described) -> Described:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
