"""The server described for programs: OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def document(version: str, columns: Sequence[str] | None, rows: int) -> dict[str, Any]:
    """What can be asked, and what is answered."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "cafexai", "version": version, "description": "Conflict-aware scores of single rows."},
        "paths": {
            "/v1/explain": {"post": _explain(columns, rows)},
            "/health": {"get": _read("Whether rows can be explained.", "application/json", {"type": "object"})},
            "/metrics": {"get": _read("Counts, for Prometheus.", "text/plain", {"type": "string"})},
            "/openapi.json": {"get": _read("This document.", "application/json", {"type": "object"})},
        },
        "components": {"schemas": {"Error": _object({"error": {"type": "string"}}), "Result": _result()}},
    }


def _explain(columns: Sequence[str] | None, rows: int) -> dict[str, Any]:
    told = f" The columns are {', '.join(columns[:100])}." if columns else ""
    by_name = {"type": "object", "description": f"Values by the name of the column.{told}"}
    in_order = {"type": "array", "description": f"Values in the order of the columns.{told}"}
    asked = _object({"rows": {"type": "array", "minItems": 1, "maxItems": rows, "items": {"oneOf": [by_name, in_order]}}})
    answered = _object({"results": {"type": "array", "items": {"oneOf": [_ref("Result"), _ref("Error")]}}})
    return {
        "summary": "Scores of rows, one result for each, in their order. A row that cannot be explained gets the reason.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": asked}}},
        "responses": {
            "200": _said("The results.", answered),
            "400": _said("The body is no JSON.", _ref("Error")),
            "408": _said("The body came too slowly.", _ref("Error")),
            "413": _said("The body is too large.", _ref("Error")),
            "415": _said("The body is not said to be JSON.", _ref("Error")),
            "422": _said("The body is JSON, but no rows.", _ref("Error")),
            "500": _said("A fault of the server.", _ref("Error")),
            "503": _said("Too much is asked at the moment.", _ref("Error")),
        },
    }


def _result() -> dict[str, Any]:
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


def _read(summary: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {"schema": schema}}}}}


def _said(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
