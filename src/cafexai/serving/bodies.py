"""Bodies of requests: read in time, small enough, JSON, and what is asked in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette import responses
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from .guard import is_json
from .rows import Asked


@dataclass(frozen=True)
class Limits:
    """What is held against too much."""

    body: int = 1 << 20  # bytes of a request
    rows: int = 1000  # of a request
    waiting: int = 4000  # rows in all
    seconds: float = 10.0  # until a request must have come in
    connections: int = 512


class JSONResponse(responses.JSONResponse):
    """An answer in letters that can always be sent: half a pair of surrogates, as JSON may have, is no UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Refusal(HTTPException):
    """An answer that says what is wrong."""


async def read_json(request: Request, limits: Limits) -> Any:
    """The body as JSON."""
    if "inference-header-content-length" in request.headers:
        raise Refusal(400, "binary tensors are not taken here; send them as JSON (tritonclient: binary_data=False)")
    body = await _body(request, limits)
    try:
        return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_by_key)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {error}"[:300]) from None


def rows_of(body: Any, key: str, limits: Limits) -> tuple[list[Any], Asked]:
    """The rows of ``{key: [...], "target": ..., "against": ..., "top": ...}``, and what is asked of them."""
    options = ("target", "against", "top")
    if not isinstance(body, dict) or not isinstance(body.get(key), list) or not body[key] or set(body) - {key, *options}:
        more = ", ".join(f'"{name}"' for name in options)
        raise Refusal(422, f'send {{"{key}": [...]}} with at least one row, if you want {more}, and nothing else')
    rows = body[key]
    if len(rows) > limits.rows:
        raise Refusal(422, f"{len(rows)} rows; send {limits.rows} at most")
    if not all(isinstance(row, (dict, list)) for row in rows):
        raise Refusal(422, 'a row is {"column": value, ...} or a list of values')
    return rows, asked_of(body)


def asked_of(given: Mapping[str, Any]) -> Asked:
    """Options of a request."""
    top = given.get("top")
    if top is not None and (type(top) is not int or top < 1):
        raise Refusal(422, f"top is {json.dumps(top)[:60]}; give the number of features, 1 or more")
    return Asked(_output(given, "target"), _output(given, "against"), top)


def _output(given: Mapping[str, Any], name: str) -> Any:
    value = given.get(name)
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return tuple(value)
    if value == "all":
        raise Refusal(422, f'{name} is "all"; a result is about one output. Ask for each')
    if value is None or type(value) in (int, str):
        return value
    raise Refusal(422, f"{name} is {json.dumps(value)[:60]}; give the index of an output, a list of indices, or a class name")


async def _body(request: Request, limits: Limits) -> bytes:
    """The body, if it is small enough and comes in time."""
    if not is_json(request.scope):
        kind = request.headers.get("content-type", "of no kind that is told")
        raise Refusal(415, f"the body is {kind[:100]}; send Content-Type: application/json")
    told = request.headers.get("content-length", "0")
    try:
        if told.isdecimal() and int(told) > limits.body:
            raise _TooLarge
        return await asyncio.wait_for(_read(request, limits.body), limits.seconds)
    except _TooLarge:
        raise Refusal(413, f"the body is larger than {limits.body} bytes; send fewer rows", {"Connection": "close"}) from None
    except TimeoutError:
        raise Refusal(408, f"the body has not come within {limits.seconds:g} s", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(400, "the body is not complete") from None


async def _read(request: Request, most: int) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise _TooLarge
    return bytes(found)


class _TooLarge(Exception):
    pass


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _by_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one of two values of the same key would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)[:100]!r} is there twice")
    return found
